/** An environment: what a session's sandbox is made from (spec §5.1; records 0006). */
import { z } from "zod";
import { Slug } from "./ids.ts";

export const HarnessName = z
  .string()
  .regex(/^[a-z][a-z0-9-]{0,39}$/, "a harness is named by lower-case letters, digits and dashes");

/** A variable's or secret's name, as a shell takes it. */
export const VariableName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, "use letters, digits and _, not starting with a digit");

/** A git branch name that git itself accepts (the parts of git-check-ref-format that matter), and that is no option. */
export const BranchName = z
  .string()
  .min(1)
  .max(240)
  .refine(
    (name) =>
      // oxlint-disable-next-line no-control-regex -- control characters are what git refuses
      !/[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\/\/|\.lock(?:\/|$)|(?:^|\/)\.|[./]$|^[-/]/.test(name) && name !== "@",
    "not a branch name that git accepts",
  );

/** A clone source: https, ssh, git, file URL, scp-like, or an absolute path. Never starts with a dash. */
export const RepoUrl = z
  .string()
  .min(1)
  .max(2048)
  .refine(
    (url) =>
      /^(?:https?|ssh|git|file):\/\/\S+$/.test(url) ||
      /^\/[^\0\n]*$/.test(url) ||
      /^[\w.-]+@[\w.-]+:[^\0\s-][^\0\s]*$/.test(url),
    "not a repository: give https://…, ssh://…, git@host:path, file://… or an absolute path",
  );

const relativePath = z
  .string()
  .min(1)
  .max(1024)
  .refine(
    (p) => !p.startsWith("/") && !p.split("/").includes("..") && !p.includes("\0"),
    "give a path inside the repo",
  );

export const Environment = z.strictObject({
  name: Slug,
  /** None: the session starts in an empty repository. */
  repo: RepoUrl.nullable().default(null),
  /** None: the remote's default branch. */
  base_branch: BranchName.nullable().default(null),
  harness: HarnessName.default("script"),
  model: z.string().min(1).max(200).nullable().default(null),
  /** A shell script, run in the fresh clone before the restore. */
  setup: z.string().max(65_536).nullable().default(null),
  variables: z.record(VariableName, z.string().max(65_536)).default({}),
  /** Names of secrets in the vault; injected fresh at every open. */
  secrets: z.array(VariableName).max(200).default([]),
  /** Minutes (fractions too) without activity after which the session suspends; 0: stays up. */
  idle_minutes: z.number().min(0).max(525_600).default(30),
  /** A sandbox's hard limit in minutes, extended while it is used; 0: none. */
  ttl_minutes: z.number().min(0).max(525_600).default(1440),
  /** Ignored files that travel all the same, as git pathspecs relative to the repo. */
  keep_ignored: z.array(relativePath).max(200).default([]),
});
export type Environment = z.infer<typeof Environment>;
