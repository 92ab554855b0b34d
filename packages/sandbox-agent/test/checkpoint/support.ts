/** Workspaces in temporary folders, built by shell scripts, and an independent description of what is in them. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  lstatSync,
  type Stats,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { newCheckpointId } from "@hangar/shared";
import { afterAll, expect } from "vitest";
import {
  createCheckpoint,
  createMemory,
  DEFAULT_LIMITS,
  restoreCheckpoint,
  type CreateOptions,
  type MadeCheckpoint,
  type Part,
  type Restored,
  type RestoreOptions,
  type Workspace,
} from "../../src/checkpoint/engine.ts";

const made: string[] = [];
afterAll(() => {
  for (const folder of made) {
    execFileSync("chmod", ["-R", "u+w", folder]);
    rmSync(folder, { recursive: true, force: true });
  }
});

function temporary(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "hangar-checkpoint-")));
  made.push(folder);
  return folder;
}

export interface Place {
  readonly folder: string;
  readonly repo: string;
  readonly home: string;
  readonly origin: string;
}

const ENV = (home: string): Record<string, string> => ({
  PATH: process.env["PATH"] ?? "",
  HOME: home,
  LC_ALL: "C",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_TERMINAL_PROMPT: "0",
  GIT_AUTHOR_DATE: "1790000000 +0000",
  GIT_COMMITTER_DATE: "1790000000 +0000",
  GIT_AUTHOR_NAME: "Dev",
  GIT_AUTHOR_EMAIL: "dev@example.test",
  GIT_COMMITTER_NAME: "Dev",
  GIT_COMMITTER_EMAIL: "dev@example.test",
  GIT_EDITOR: "true",
  GIT_MERGE_AUTOEDIT: "no",
});

/** Runs a script in a folder; `$D` is the place's own folder. */
export function shell(place: Place, script: string, cwd = place.repo): string {
  return execFileSync("bash", ["-ec", `umask 022; ${script}`], {
    cwd,
    env: { ...ENV(place.home), D: place.folder },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/**
 * `origin.git` with one commit on main, and `repo`, a clone of it.
 * @param base makes the files of the first commit; `init` options of the repositories; `clone` options of the clone.
 */
export function place(options: { base?: string; init?: string; clone?: string } = {}): Place {
  const folder = temporary();
  const here: Place = {
    folder,
    repo: join(folder, "repo"),
    home: join(folder, "home"),
    origin: join(folder, "origin.git"),
  };
  mkdirSync(here.home);
  const base = options.base ?? "echo one >a.txt; echo two >b.txt; mkdir d; echo three >d/c.txt";
  shell(
    here,
    `git init -q --bare -b main ${options.init ?? ""} origin.git; git -C origin.git config uploadpack.allowFilter true
     git init -q -b main ${options.init ?? ""} seed; (cd seed; ${base}; git add -A; git commit -qm base; git push -q ../origin.git main:main); rm -rf seed`,
    folder,
  );
  clone(here, options.clone);
  shell(here, "git checkout -q -b work");
  return here;
}

/** A fresh clone, as an environment makes it. */
export function clone(here: Place, options = ""): void {
  shell(here, `git clone -q ${options} "file://$D/origin.git" repo`, here.folder);
}

let count = 0;
export function workspace(here: Place, more: Partial<Workspace> = {}): Workspace {
  const scratch = join(here.folder, "scratch", String(count++));
  return {
    repo: here.repo,
    home: here.home,
    harness: "claude",
    keepIgnored: [],
    scratch,
    memory: createMemory(),
    ...more,
  };
}

function options(here: Place, more: Partial<CreateOptions> = {}): CreateOptions {
  return {
    checkpoint: newCheckpointId(Date.now()),
    session: "ses-0123abcd",
    generation: 1,
    reason: "manual",
    parent: null,
    ifChanged: false,
    recipients: null,
    limits: DEFAULT_LIMITS,
    harnessSession: null,
    turn: null,
    quiesced: false,
    prove: true,
    out: join(here.folder, `out-${count++}`),
    ...more,
  };
}

export async function take(
  here: Place,
  more: Partial<CreateOptions> = {},
  ws: Workspace = workspace(here),
): Promise<MadeCheckpoint> {
  const result = await createCheckpoint(ws, options(here, more));
  if (result.outcome !== "made") throw new Error("unchanged");
  return result.made;
}

/** Objects of several checkpoints, found by the part's checkpoint and file as a store would. */
export function sourceOf(...checkpoints: readonly MadeCheckpoint[]): RestoreOptions["source"] {
  const newest = checkpoints.at(-1);
  return (part: Part) => {
    const from = part.from ?? newest?.meta.checkpoint;
    const holder = checkpoints.find(({ meta }) => meta.checkpoint === from);
    return { path: join(holder?.dir ?? "", part.file) };
  };
}

/** Moves the workspace away, clones afresh, and restores the newest of the checkpoints at the same place. */
export async function putBack(
  here: Place,
  checkpoints: readonly MadeCheckpoint[],
  more: {
    clone?: string;
    setup?: string;
    identities?: readonly string[];
    force?: boolean;
    ws?: Partial<Workspace>;
    /** The restore begins before the clone, as at a start. */
    beside?: boolean;
  } = {},
): Promise<{ old: string; restored: Restored }> {
  const newest = checkpoints.at(-1);
  if (!newest) throw new Error("no checkpoint");
  const old = join(here.folder, `old-${count++}`);
  mkdirSync(old);
  renameSync(here.repo, join(old, "repo"));
  renameSync(here.home, join(old, "home"));
  mkdirSync(here.home);
  if (readdirSync(join(old, "home")).includes(".gitconfig"))
    execFileSync("cp", [join(old, "home", ".gitconfig"), here.home]);
  const make = (): void => {
    clone(here, more.clone);
    if (more.setup !== undefined) shell(here, more.setup);
  };
  if (!more.beside) make();
  const restored = await restoreCheckpoint(workspace(here, more.ws), {
    meta: readFileSync(join(newest.dir, newest.metaObject.file)),
    source: sourceOf(...checkpoints),
    identities: more.identities ?? null,
    force: more.force ?? false,
    ...(more.beside && { cloned: sleep(50).then(make) }),
  });
  return { old, restored };
}

const OPERATION =
  /^(?:MERGE_HEAD|MERGE_MSG|MERGE_MODE|MERGE_RR|MERGE_AUTOSTASH|SQUASH_MSG|CHERRY_PICK_HEAD|REVERT_HEAD|REBASE_HEAD|ORIG_HEAD|AUTO_MERGE|BISECT_.*|NOTES_MERGE_.*|rebase-merge|rebase-apply|sequencer)$/;

/** All that git and the disk say of a working tree, without the engine: what must be equal before and after. */
export function describeTree(repo: string, home: string): Record<string, unknown> {
  const git = (...args: string[]): string => {
    try {
      return execFileSync("git", ["-c", "core.quotePath=false", "-c", "status.renames=false", ...args], {
        cwd: repo,
        env: { ...ENV(home), GIT_OPTIONAL_LOCKS: "0", GIT_NO_REPLACE_OBJECTS: "1" },
        encoding: "latin1",
        stdio: ["ignore", "pipe", "ignore"],
      });
    } catch {
      return "<fails>";
    }
  };
  const gitDir = git("rev-parse", "--absolute-git-dir").trim();
  const names = new Set([
    ...git("ls-files", "-z").split("\0"),
    ...git("ls-files", "-z", "--others", "--exclude-standard").split("\0"),
  ]);
  names.delete("");
  const files: Record<string, string> = {};
  const nested: Record<string, unknown> = {};
  for (const name of [...names].sort()) {
    const at = Buffer.from(`${repo}/${name.replace(/\/$/, "")}`, "latin1");
    const stat = lstatOf(at);
    if (!stat) continue;
    if (stat.isSymbolicLink()) files[name] = `link ${readlinkSync(at, "latin1")}`;
    else if (stat.isFile()) files[name] = `${(stat.mode & 0o7777).toString(8)} ${digest(readFileSync(at))}`;
    else if (stat.isDirectory() && lstatOf(Buffer.concat([at, Buffer.from("/.git")])))
      nested[name.replace(/\/$/, "")] = describeTree(at.toString("utf8"), home);
  }
  const operation: Record<string, string> = {};
  const walk = (path: string, name: string): void => {
    const stat = lstatOf(Buffer.from(path));
    if (stat?.isDirectory()) for (const child of readdirSync(path)) walk(join(path, child), `${name}/${child}`);
    else if (stat?.isFile()) operation[name] = readFileSync(path, "latin1");
  };
  for (const name of readdirSync(gitDir)) if (OPERATION.test(name)) walk(join(gitDir, name), name);
  return {
    head: git("symbolic-ref", "-q", "HEAD") + git("rev-parse", "-q", "--verify", "HEAD"),
    status: git("status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--ignore-submodules=none")
      .replaceAll("\0", "\n")
      .replace(/# branch\.(?:upstream|ab).*\n/g, ""),
    index: git("ls-files", "-s", "-v", "-z").replaceAll("\0", "\n"),
    intentToAdd: git("diff-files", "-z", "--name-only", "--diff-filter=A").replaceAll("\0", "\n"),
    staged: git("diff", "--cached", "--raw", "--no-abbrev", "--no-renames"),
    refs: git("for-each-ref", "--format=%(refname) %(objectname) %(symref)").replace(
      /^refs\/(?:remotes|hangar)\/.*\n/gm,
      "",
    ),
    upstreams: git("config", "--local", "--get-regexp", "^branch\\."),
    stash: git("stash", "list", "--format=%gd %gs %H %T %P"),
    worktrees: git("worktree", "list", "--porcelain"),
    sparse: git("config", "core.sparseCheckout") + git("sparse-checkout", "list"),
    whole: git("rev-list", "--objects", "--quiet", "--missing=allow-promisor", "--all"),
    format: git("rev-parse", "--show-object-format"),
    exclude: existsRead(
      join(
        git("rev-parse", "--git-common-dir")
          .trim()
          .replace(/^(?!\/)/, `${repo}/`),
        "info/exclude",
      ),
    ),
    files,
    nested,
    operation,
  };
}

const existsRead = (path: string): string => {
  try {
    return readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => !line.startsWith("#"))
      .join("\n");
  } catch {
    return "";
  }
};

function lstatOf(path: Buffer): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

export const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

export interface State {
  readonly name: string;
  /** Makes the state in the repo, on branch `work`. */
  readonly make: string;
  readonly base?: string;
  readonly init?: string;
  readonly clone?: string;
  /** Before the clone is restored: what an environment's set-up leaves. */
  readonly setup?: string;
  /** After the checkpoint, at the remote. */
  readonly between?: string;
  /** A later state, checkpointed with the first as its parent. */
  readonly later?: string;
  /** Ends the operation in progress, in the old repo and in the new: both must come to the same. */
  readonly finish?: string;
  readonly ws?: Partial<Workspace>;
  /** Other places to describe, relative to the place's folder. */
  readonly also?: readonly string[];
}

/** Checkpoint, restore in a fresh clone at the same path, compare; again with a later state; again from the restored one. */
export async function roundTrip(state: State): Promise<void> {
  const here = place(state);
  shell(here, state.make);
  const describeAll = (): unknown => [
    describeTree(here.repo, here.home),
    ...(state.also ?? []).map((path) => describeTree(join(here.folder, path), here.home)),
  ];
  const ws = workspace(here, state.ws);
  const before = describeAll();
  const first = await take(here, {}, ws);
  expect(first.meta).toMatchObject({ paired: true, proved: true, left_out: [] });
  expect(describeAll(), "the checkpoint changed the workspace").toEqual(before);
  const chain = [first];
  let expected = before;
  if (state.later !== undefined) {
    shell(here, state.later);
    expected = describeAll();
    expect(expected, "the later state is another one").not.toEqual(before);
    chain.push(await take(here, { parent: first.next, ifChanged: true }, ws));
  } else {
    const again = await createCheckpoint(ws, options(here, { parent: first.next, ifChanged: true }));
    expect(again).toMatchObject({ outcome: "unchanged", fingerprint: first.meta.fingerprint });
  }
  if (state.between !== undefined) shell(here, state.between, here.folder);
  const more = {
    ...(state.clone !== undefined && { clone: state.clone }),
    ...(state.setup !== undefined && { setup: state.setup }),
    ...(state.ws && { ws: state.ws }),
  };
  const { restored } = await putBack(here, chain, more);
  expect(restored.report.differs).toEqual([]);
  expect(restored.report.verified).toBe(true);
  expect(describeAll()).toEqual(expected);

  // Once more, from what was restored: nothing of the state was only apparently there.
  const second = await take(here, { parent: restored.next }, workspace(here, state.ws));
  expect(second.meta.fingerprint).toBe(restored.meta.fingerprint);
  const { old, restored: twice } = await putBack(here, [...chain, second], { ...more, beside: true });
  expect(twice.report).toMatchObject({ verified: true, differs: [] });
  expect(describeAll()).toEqual(expected);

  if (state.finish === undefined) return;
  const end = (repo: string): unknown => {
    const out = shell(
      here,
      `cd '${repo}'; { ${state.finish}; } >/dev/null 2>&1 || true; git log --format='%s %T %P' | head -5; git status --porcelain=v2`,
    );
    const { operation, files, refs } = describeTree(repo, here.home);
    return { out, operation, files, refs };
  };
  expect(end(here.repo)).toEqual(end(join(old, "repo")));
}

export type { MadeCheckpoint, Part };
