/**
 * A workspace made ahead: cloned and set up without a session, kept up with its remote, and then a session's. Whether it is
 * whole is on disk (`warm.json`): while it is changed it is not, and a start that finds none clones for itself.
 */
import { existsSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { HangarError, START_WORDS } from "@hangar/shared";
import type { BootSpec, Redactor, WarmBoot } from "@hangar/shared";
import { z } from "zod";
import { checkOutBranch, cloneWorkspace, git, must } from "../clone.ts";
import { readJson, replaceFile } from "../durable.ts";
import type { Environment } from "../sandbox-env.ts";
import { runSetup } from "../setup.ts";

type Made = Pick<BootSpec, "repo" | "base_branch" | "cwd" | "setup" | "variables">;

export interface WarmWorkspaceDeps {
  readonly made: Made;
  readonly env: Environment;
  readonly state: string;
  readonly redact: Redactor;
  readonly signal: AbortSignal;
}

const file = (state: string): string => join(state, "warm.json");
const Whole = z.strictObject({ of: z.string() });
const ofWhat = ({ repo, base_branch, cwd, setup, variables }: Made): string =>
  JSON.stringify([repo, base_branch, cwd, setup, Object.entries(variables).toSorted(([a], [b]) => (a < b ? -1 : 1))]);

/** Whether a whole one of the same lies there. */
export const hasWarmWorkspace = (state: string, made: Made): boolean =>
  readJson(file(state), Whole)?.of === ofWhat(made) && existsSync(join(made.cwd, ".git"));

/** Clones and sets up, from nothing. Throws what a start throws: `clone_failed`, `setup_failed`, … */
export async function makeWarmWorkspace(deps: WarmWorkspaceDeps, say: (doing: string) => void): Promise<void> {
  const { made, env, redact, signal, state } = deps;
  rmSync(file(state), { force: true });
  say(START_WORDS.cloning);
  await rm(made.cwd, { recursive: true, force: true });
  const { repo, cwd } = made;
  await cloneWorkspace({
    repo,
    baseBranch: made.base_branch,
    branch: null,
    cwd,
    env,
    redact,
    signal,
    baseMayBeGone: false,
  });
  await setUp(deps, say);
  markWhole(deps);
}

/**
 * Fetches; where the base has moved, goes on to where it is and sets up again. Throws `clone_failed` where the clone cannot
 * follow, since history was rewritten or the setup has changed the same files: it is then of no use.
 */
export async function followRemote(deps: WarmWorkspaceDeps, say: (doing: string) => void): Promise<void> {
  const { made, state } = deps;
  if (made.repo === null) return;
  await must(
    place(deps),
    ["fetch", "--quiet", "--prune", "--tags", "--force", "--no-write-fetch-head", "origin"],
    made.cwd,
  );
  if (await isUpToDate(deps)) return;
  rmSync(file(state), { force: true });
  await must(place(deps), ["merge", "--quiet", "--ff-only", "@{upstream}"], made.cwd);
  rmSync(join(made.cwd, ".git", "ORIG_HEAD"), { force: true });
  await setUp(deps, say);
  markWhole(deps);
}

/** Makes it the session's: what is new is fetched, and the session's branch is checked out. */
export async function takeWarmWorkspace(
  deps: WarmWorkspaceDeps & { readonly branch: string },
  say: (doing: string) => void,
): Promise<void> {
  await followRemote(deps, say);
  // From here on it is this session's alone.
  rmSync(file(deps.state), { force: true });
  await checkOutBranch({ ...place(deps), branch: deps.branch });
}

async function isUpToDate(deps: WarmWorkspaceDeps): Promise<boolean> {
  const head = await read(deps, "rev-parse", "--verify", "--quiet", "HEAD");
  // Cloned when the remote was empty: it is up to date for as long as that is so.
  if (head === null && (await read(deps, "for-each-ref", "--count=1", "refs/remotes")) === "") return true;
  const detached = (await read(deps, "symbolic-ref", "--quiet", "HEAD")) === null;
  const base = detached ? `${deps.made.base_branch}^{commit}` : "@{upstream}";
  const there = await read(deps, "rev-parse", "--verify", "--quiet", base);
  if (head === null || there === null || (detached && there !== head)) {
    rmSync(file(deps.state), { force: true });
    throw new HangarError("clone_failed", "The base branch is not what it was when it was cloned");
  }
  return there === head;
}

async function setUp(
  { made, env, state, redact, signal }: WarmWorkspaceDeps,
  say: (doing: string) => void,
): Promise<void> {
  if (made.setup === null || made.setup.trim() === "") return;
  say(START_WORDS.setup);
  await runSetup({ script: made.setup, cwd: made.cwd, env, state, redact, signal });
}

const markWhole = ({ state, made }: WarmWorkspaceDeps): void =>
  replaceFile(file(state), JSON.stringify({ of: ofWhat(made) } satisfies z.infer<typeof Whole>));

const place = ({ made, env, redact, signal }: WarmWorkspaceDeps) => ({
  repo: made.repo,
  cwd: made.cwd,
  env,
  redact,
  signal,
});

/** What git printed; none: it failed. */
async function read(deps: WarmWorkspaceDeps, ...args: string[]): Promise<string | null> {
  const ran = await git(place(deps), args, deps.made.cwd);
  return ran.code === 0 ? ran.stdout.toString("utf8").trim() : null;
}

/** What of a boot answer a workspace is made of. */
export const madeOf = ({ repo, base_branch, cwd, setup, variables }: BootSpec | WarmBoot): Made => ({
  repo,
  base_branch,
  cwd,
  setup,
  variables,
});
