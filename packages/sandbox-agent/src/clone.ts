/** A fresh working copy: cloned from the remote, or an empty repository; the session's branch checked out at its base. */
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { HangarError } from "@hangar/shared";
import type { Redact } from "@hangar/shared";
import { isCode } from "./durable.ts";
import { run } from "./process.ts";
import type { Ran } from "./process.ts";
import type { Environment } from "./sandbox-env.ts";

export interface CloneInput {
  readonly repo: string | null;
  /** None: the remote's default branch. */
  readonly baseBranch: string | null;
  /** None: the base stays checked out, for a session that comes later. */
  readonly branch: string | null;
  /** Must not exist. */
  readonly cwd: string;
  readonly env: Environment;
  readonly redact: Redact;
  readonly signal: AbortSignal;
  /** A base branch that is gone is no error: the default branch is taken, since a checkpoint brings the rest. */
  readonly baseMayBeGone: boolean;
}

/**
 * Warnings for people. Throws `clone_failed` with git's own words, `branch_not_found` with what is there, `disk_full`,
 * `missing_cli`. What it leaves after a failure is to be removed by the caller.
 */
export async function cloneWorkspace(input: CloneInput): Promise<string[]> {
  await mkdir(dirname(input.cwd), { recursive: true });
  if (input.repo === null) {
    await must(
      input,
      ["init", "--quiet", `--initial-branch=${input.branch ?? "main"}`, "--", input.cwd],
      dirname(input.cwd),
    );
    return [];
  }
  const warnings = await clone(input, input.repo);
  if (input.branch !== null) await checkOutBranch({ ...input, branch: input.branch });
  return warnings;
}

async function clone(input: CloneInput, repo: string): Promise<string[]> {
  const base = input.baseBranch === null ? [] : ["--branch", input.baseBranch];
  const ran = await git(input, cloneArguments(repo, input.cwd, base), dirname(input.cwd));
  if (ran.code === 0) return [];
  const said = ran.stderr.toString("utf8");
  if (input.baseBranch === null || !/Remote branch .* not found/i.test(said)) throw cloneFailed(input, repo, said);
  if (!input.baseMayBeGone) throw await branchNotFound(input, repo, input.baseBranch);
  await must(input, cloneArguments(repo, input.cwd, []), dirname(input.cwd));
  return [`the base branch ${input.baseBranch} is no longer at the remote`];
}

/** Without hard links: what runs here must not be able to reach into a local remote's objects. */
const cloneArguments = (repo: string, cwd: string, more: readonly string[]): string[] => [
  "clone",
  "--quiet",
  "--no-hardlinks",
  "--origin=origin",
  ...more,
  "--",
  repo,
  cwd,
];

/**
 * The session's branch, at what is checked out; its base stays where the clone has put it. Without `git checkout`, which
 * would look at every file to find that none is to be changed.
 */
export async function checkOutBranch(input: GitPlace & { readonly branch: string }): Promise<void> {
  const name = `refs/heads/${input.branch}`;
  const head = await git(input, ["rev-parse", "--verify", "--quiet", "HEAD"], input.cwd);
  if (head.code === 0) await must(input, ["update-ref", name, head.stdout.toString("latin1").trim()], input.cwd);
  await must(input, ["symbolic-ref", "HEAD", name], input.cwd);
}

async function branchNotFound(input: CloneInput, repo: string, branch: string): Promise<HangarError> {
  const ran = await git(input, ["ls-remote", "--heads", "--", repo], dirname(input.cwd));
  const names = ran.stdout
    .toString("utf8")
    .split("\n")
    .flatMap((line) => /\trefs\/heads\/(.+)$/.exec(line)?.[1] ?? []);
  const some = names.slice(0, 10).join(", ");
  const there =
    names.length === 0
      ? "the remote has no branches"
      : `there are ${some}${names.length > 10 ? ` and ${names.length - 10} more` : ""}`;
  return new HangarError("branch_not_found", `The base branch ${branch} is not at ${input.redact(repo)}: ${there}`);
}

/** Where git runs, and how its words are shown. */
export type GitPlace = Pick<CloneInput, "repo" | "cwd" | "env" | "redact" | "signal">;

/** Throws `clone_failed` with git's own words, or `disk_full`. */
export async function must(input: GitPlace, args: readonly string[], cwd: string): Promise<void> {
  const ran = await git(input, args, cwd);
  if (ran.code !== 0) throw cloneFailed(input, input.repo ?? input.cwd, ran.stderr.toString("utf8"));
}

function cloneFailed(input: GitPlace, repo: string, stderr: string): HangarError {
  if (/No space left on device/i.test(stderr)) {
    return new HangarError("disk_full", "The disk of the sandbox is full: the repository does not fit");
  }
  return new HangarError("clone_failed", input.redact(`${repo} could not be cloned: ${gitsWords(stderr)}`));
}

/** What git and the remote complain of, on one line. */
function gitsWords(stderr: string): string {
  const lines = stderr.split(/[\r\n]+/).map((line) => line.trim());
  const complaints = lines.filter((line) => /^(?:fatal|error|remote|ERROR):|denied|refused|not found/i.test(line));
  const words = (complaints.length > 0 ? complaints : lines.filter((line) => line !== "").slice(-1)).slice(-3);
  return words.join("; ").slice(0, 1000) || "git said nothing";
}

export async function git(input: GitPlace, args: readonly string[], cwd: string): Promise<Ran> {
  const env = {
    ...input.env,
    LC_ALL: "C",
    GIT_SSH_COMMAND: input.env["GIT_SSH_COMMAND"] ?? "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
  };
  try {
    return await run(["git", "-c", "core.hooksPath=/dev/null", ...args], {
      cwd,
      env,
      signal: input.signal,
      keep: "tail",
    });
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
    throw new HangarError(
      "missing_cli",
      "git is not installed in the sandbox: add it to the image, or install it here",
    );
  }
}
