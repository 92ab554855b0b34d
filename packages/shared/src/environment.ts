/** An environment: what a session's sandbox is made from (spec §5.1; records 0006). */
import { z } from "zod";
import { HarnessName, VariableName } from "./environment-names.ts";
import { HarnessDefinitions } from "./harness-definition.ts";
import { Slug } from "./ids.ts";
import { KubernetesPod } from "./kubernetes.ts";
import { WarmHours } from "./warm-hours.ts";

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

/** Where a secret's file lies: `~/…` in the sandbox's home, or a path inside the repo. */
export const SecretPath = z
  .string()
  .max(1024)
  .refine(
    (path) =>
      // oxlint-disable-next-line no-control-regex -- control characters are what is refused
      /^(?:~\/)?[^/~][^\x00-\x1f\x7f]*$/.test(path) &&
      !path.split("/").some((part) => part === "" || part === "." || part === ".." || part.toLowerCase() === ".git") &&
      !/^~\/\.hangar(?:\/|$)/.test(path),
    "give ~/… or a path inside the repo, without .. and outside of .git and ~/.hangar",
  );

/** In octal, for the owner alone. YAML's `0600` is the number 600. */
export const SecretMode = z
  .union([z.string(), z.number()])
  .transform((mode) => String(mode).padStart(4, "0"))
  .refine((mode) => /^0[4-7]00$/.test(mode), 'for the owner alone, such as "0600" or "0400"');

/** A secret that is a file, and no variable. */
const SecretFile = z.strictObject({ name: VariableName, file: SecretPath, mode: SecretMode.optional() });
const SecretRef = z.union([VariableName, SecretFile], {
  error: "give a secret's name, or { name, file, mode } with a file at ~/… or inside the repo",
});
type SecretRef = z.infer<typeof SecretRef>;

/** The same, whichever way it was written; `file`: none where the environment does not say. */
export const secretRefs = (
  secrets: readonly SecretRef[],
): { readonly name: string; readonly file: string | null; readonly mode: string | null }[] =>
  secrets.map((ref) =>
    typeof ref === "string"
      ? { name: ref, file: null, mode: null }
      : { name: ref.name, file: ref.file, mode: ref.mode ?? null },
  );

export const Environment = z.strictObject({
  name: Slug,
  /** None: the session starts in an empty repository. */
  repo: RepoUrl.nullable().default(null),
  /** None: the remote's default branch. */
  base_branch: BranchName.nullable().default(null),
  harness: HarnessName.default("script"),
  model: z.string().min(1).max(200).nullable().default(null),
  /** Agents that Hangar does not know, declared (docs/harnesses.md). */
  harnesses: HarnessDefinitions.default([]),
  /** A shell script, run in the fresh clone before the restore. */
  setup: z.string().max(65_536).nullable().default(null),
  /** A shell script that tells whether the work is good, run in the repo when it is asked for: tests, say. */
  check: z.string().min(1).max(65_536).nullable().default(null),
  variables: z.record(VariableName, z.string().max(65_536)).default({}),
  /** Secrets in the vault, injected fresh at every open: by name as variables, or `{ name, file, mode }` as files. */
  secrets: z.array(SecretRef).max(200).default([]),
  /** Minutes (fractions too) without activity after which the session suspends; 0: stays up. */
  idle_minutes: z.number().min(0).max(525_600).default(30),
  /** A sandbox's hard limit in minutes, extended while it is used; 0: none. */
  ttl_minutes: z.number().min(0).max(525_600).default(1440),
  /** Ignored files that travel all the same, as git pathspecs relative to the repo. */
  keep_ignored: z.array(relativePath).max(200).default([]),
  /** How many sandboxes wait for sessions, cloned and set up without any secret; 0: none. */
  warm_pool: z.number().int().min(0).max(100).default(0),
  /** When they wait, such as `Mon-Fri 08:00-20:00 America/New_York`, several after semicolons or as a list; none: always. */
  warm_pool_hours: WarmHours.nullable().default(null),
  /** For the `kubernetes` driver; none: its defaults. Other drivers have no use for it. */
  kubernetes: KubernetesPod.nullable().default(null),
});
export type Environment = z.infer<typeof Environment>;
