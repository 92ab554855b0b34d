/** Makes a working tree's files and index those of a checkpoint, once its repository is and the carried files are in place. */
import { chmodSync, copyFileSync, writeFileSync } from "node:fs";
import { setImmediate as breathe, setTimeout as sleep } from "node:timers/promises";
import { OFF, userEnv, findGitDirs, git, makeScratch, type Scratch } from "./git.ts";
import { type IndexEntry, writeIndex } from "./index-file.ts";
import { bytesOf, fsPath, lstatRaw, parentRaw, type Raw, splitZ, stringPath, toText } from "./raw.ts";
import { looksUnchanged, RealFolders } from "./read-files.ts";
import { type IndexPlan, NewEntry, planIndex, putIndex, timesOf } from "./restore-index.ts";
import type { Target } from "./restore-repository.ts";
import { makeFolder, removeSafely } from "./safe-paths.ts";
import type { Scan } from "./scan.ts";
import type { TreeState } from "./state.ts";
import type { Workspace } from "./types.ts";

export interface WorktreeInput {
  readonly tree: TreeState;
  /** Tracked and untracked files that the archives put in place; below the tree. */
  readonly carried: ReadonlySet<Raw>;
  readonly untracked: ReadonlySet<Raw>;
  /** Working trees inside this one, which come on their own. */
  readonly nested: ReadonlySet<Raw>;
  readonly scratch: Raw;
  readonly warnings: Set<string>;
  readonly signal?: AbortSignal | undefined;
}

const GITLINK = 0o160000;

export interface Planned {
  readonly scratch: Scratch;
  readonly index: IndexPlan;
}

/** What can be known before the carried files are in place. */
export async function planWorktree(
  ws: Workspace,
  target: Target,
  input: Pick<WorktreeInput, "scratch" | "signal">,
): Promise<Planned> {
  const scratch = scratchOf(ws, target, input);
  return { scratch, index: await planIndex(target, scratch, input.signal) };
}

/**
 * `trusting`: files that the clone's index has as they are to be are taken to be so without a look at each, as they are in a
 * fresh clone; the verification that follows sees where they are not.
 */
export async function restoreWorktree(
  ws: Workspace,
  target: Target,
  { scratch, index }: Planned,
  input: WorktreeInput,
  how: "trusting" | "looking",
): Promise<void> {
  const { dirs, tree } = target;
  const work = sortOut(target, input, index, how);
  for (const path of work.remove) {
    const there = lstatRaw(`${dirs.worktree}/${path}`);
    if (there && !there.isDirectory()) removeSafely(dirs.worktree, path);
  }
  await checkOut(scratch, target, index.entries, work.write, input.signal);
  await smudge(ws, target, scratch, index.entries, work.smudge, input);
  for (const path of work.folders) makeFolder(dirs.worktree, path);
  // Git, and the next look, take a file for unread that changed in the same moment as the index.
  if (tree.filtered.length > 0) await sleep(100);
  noteTimes(target, index, work);
  putIndex(target, index.entries);
}

const scratchOf = (ws: Workspace, { dirs, tree }: Target, input: Pick<WorktreeInput, "scratch">): Scratch =>
  makeScratch({
    dir: `${input.scratch}/tree-${tree.root}-${bytesOf(tree.path).toString("hex").slice(0, 100)}`,
    home: ws.home,
    objectFormat: tree.objectFormat,
    objects: [`${dirs.commonDir}/objects`],
    excludeFile: `${dirs.commonDir}/info/exclude`,
  });

// ---- what is to be done --------------------------------------------------------------------------------------------

interface Work {
  /** Places in the index of tracked files whose bytes are the blob's, or a filter's, and which are written or changed. */
  readonly touched: number[];
  readonly write: Raw[];
  readonly smudge: Raw[];
  readonly remove: Set<Raw>;
  /** Submodules that are not checked out: empty folders. */
  readonly folders: Raw[];
}

/** A file that the clone wrote as shortly as this before its index may have been changed in the same tick of the clock (ms). */
const TICK = 20;

function sortOut({ dirs, tree }: Target, input: WorktreeInput, index: IndexPlan, how: "trusting" | "looking"): Work {
  const work: Work = { touched: [], write: [], smudge: [], remove: new Set(tree.deleted), folders: [] };
  const { entries } = index;
  const deleted = new Set(tree.deleted);
  const filtered = new Set(tree.filtered.map(([path]) => path));
  const modes = wantedModes(tree);
  const folders = new RealFolders(dirs.worktree);
  const trusted = how === "trusting" && hasUsualModes(dirs.worktree, tree, index);
  for (let i = 0; i < entries.length; i++) {
    const entry = entries[i];
    if (!entry) continue;
    const { path } = entry;
    if (input.carried.has(path) || input.untracked.has(path)) {
      index.own(i);
      continue;
    }
    if (entry.mode === GITLINK) {
      index.own(i);
      if (deleted.has(path)) removeSafely(dirs.worktree, path);
      else if (!input.nested.has(path) && !entry.skipWorktree) {
        if (findGitDirs(`${dirs.worktree}/${path}`)) removeSafely(dirs.worktree, path);
        work.folders.push(path);
      }
      continue;
    }
    if (entry.skipWorktree) work.remove.add(path);
    if (entry.stage !== 0 || entry.intentToAdd || entry.skipWorktree || deleted.has(path)) {
      index.own(i);
      continue;
    }
    const before = index.before(entry);
    const isSame = before !== undefined && (before === entry || isSameFile(before, entry));
    if (isSame && trusted && isBefore(before.mtime, index.clonedMs - TICK) && !modes.odd.has(path)) {
      if (before !== entry) index.own(i)?.note(before);
      continue;
    }
    const stat = folders.real(parentRaw(path)) ? lstatRaw(`${dirs.worktree}/${path}`) : undefined;
    if (isSame && stat !== undefined && looksUnchanged(before, stat, index.clonedMs, TICK)) {
      if (before !== entry) index.own(i)?.note(before);
      // Its times change with its permissions.
      if (stat.isFile() && (stat.mode & 0o7777) !== modes.of(entry)) work.touched.push(i);
      continue;
    }
    work.touched.push(i);
    (filtered.has(path) ? work.smudge : work.write).push(path);
  }
  for (const path of index.gone) if (!isNested(path, input.nested)) work.remove.add(path);
  for (const path of work.remove) if (input.carried.has(path) || input.untracked.has(path)) work.remove.delete(path);
  return work;
}

const isSameFile = (a: IndexEntry, b: IndexEntry): boolean => a.mode === b.mode && a.oid === b.oid;
const isBefore = ([s, ns]: readonly [number, number], ms: number): boolean => s * 1000 + ns / 1e6 < ms;

function wantedModes(tree: TreeState): { odd: ReadonlyMap<Raw, number>; of: (entry: IndexEntry) => number } {
  const odd = new Map(tree.modes);
  return { odd, of: ({ path, mode }) => odd.get(path) ?? tree.usualModes[(mode & 0o100) === 0 ? 0 : 1] };
}

/** Whether the clone was made with the permissions that the checkpoint's files have as a rule: by one of each kind. */
function hasUsualModes(worktree: Raw, tree: TreeState, { entries, before }: IndexPlan): boolean {
  const { odd, of } = wantedModes(tree);
  const left = new Set([0o100644, 0o100755]);
  for (const entry of entries) {
    if (left.size === 0) break;
    if (!left.has(entry.mode) || odd.has(entry.path) || before(entry) !== entry) continue;
    const stat = lstatRaw(`${worktree}/${entry.path}`);
    if (!stat?.isFile()) continue;
    if ((stat.mode & 0o7777) !== of(entry)) return false;
    left.delete(entry.mode);
  }
  return true;
}

const isNested = (path: Raw, nested: ReadonlySet<Raw>): boolean => {
  for (let folder = path; folder !== ""; folder = parentRaw(folder)) if (nested.has(folder)) return true;
  return false;
};

/** A file of an index with these paths only, which says nothing of what is on the disk: git then writes each of them. */
function indexOf(scratch: Scratch, target: Target, entries: readonly IndexEntry[], paths: readonly Raw[]): Raw {
  const index = `${scratch.dir}/new-index`;
  const wanted = new Set(paths);
  const some = entries.filter(({ path }) => wanted.has(path)).map((entry) => new NewEntry(entry));
  writeFileSync(fsPath(index), writeIndex(some, target.tree.objectFormat));
  return index;
}

/** Writes blobs as they are: no filter, no line endings. */
async function checkOut(
  scratch: Scratch,
  target: Target,
  entries: readonly IndexEntry[],
  paths: readonly Raw[],
  signal?: AbortSignal,
): Promise<void> {
  if (paths.length === 0) return;
  const index = indexOf(scratch, target, entries, paths);
  await git(["checkout-index", "-f", "-q", "-z", "--stdin"], {
    env: { ...scratch.env, GIT_WORK_TREE: stringPath(target.dirs.worktree), GIT_INDEX_FILE: stringPath(index) },
    cwd: target.dirs.worktree,
    input: bytesOf(paths.map((path) => `${path}\0`).join("")),
    signal,
  });
}

/** Writes files through the image's own filters, as its clone would. */
async function smudge(
  ws: Workspace,
  target: Target,
  scratch: Scratch,
  entries: readonly IndexEntry[],
  paths: readonly Raw[],
  input: WorktreeInput,
): Promise<void> {
  if (paths.length === 0) return;
  const index = indexOf(scratch, target, entries, paths);
  await git([...OFF, "checkout-index", "-f", "-q", "-z", "--stdin"], {
    env: {
      ...userEnv(ws.home, ws.networkEnv),
      GIT_DIR: stringPath(target.dirs.gitDir),
      GIT_WORK_TREE: stringPath(target.dirs.worktree),
      GIT_INDEX_FILE: stringPath(index),
    },
    cwd: target.dirs.worktree,
    input: bytesOf(paths.map((path) => `${path}\0`).join("")),
    signal: input.signal,
  }).catch((error: unknown) => {
    input.warnings.add(
      `files that a filter makes could not be written: ${paths.slice(0, 5).map(toText).join(", ")} (${(error as Error).message})`,
    );
  });
}

/** Removes what is untracked and not in the checkpoint: leftovers of set-up. */
export async function sweepWorktree(ws: Workspace, target: Target, input: WorktreeInput): Promise<void> {
  const { dirs } = target;
  const scratch = scratchOf(ws, target, input);
  const index = `${scratch.dir}/sweep-index`;
  copyFileSync(fsPath(`${dirs.gitDir}/index`), fsPath(index));
  const output = await git(["ls-files", "-z", "--others", "--exclude-standard"], {
    env: { ...scratch.env, GIT_WORK_TREE: stringPath(dirs.worktree), GIT_INDEX_FILE: stringPath(index) },
    cwd: dirs.worktree,
    signal: input.signal,
  });
  for (const name of splitZ(output)) {
    const path = name.endsWith("/") ? name.slice(0, -1) : name;
    if (input.nested.has(path) || isNested(path, input.nested)) continue;
    if (input.carried.has(path) || input.untracked.has(path)) continue;
    removeSafely(dirs.worktree, path);
  }
}

/** Permissions, and the times of the files that are the blobs, so that git need not read them again. */
function noteTimes({ dirs, tree }: Target, index: IndexPlan, { touched }: Work): void {
  const modes = wantedModes(tree);
  const filtered = new Set(tree.filtered.map(([path]) => path));
  for (const i of touched) {
    const entry = index.own(i);
    if (!entry) continue;
    const at = `${dirs.worktree}/${entry.path}`;
    if ((entry.mode & 0o170000) === 0o100000) {
      const stat = lstatRaw(at);
      if (stat?.isFile() && (stat.mode & 0o7777) !== modes.of(entry)) chmodSync(fsPath(at), modes.of(entry));
    }
    if (filtered.has(entry.path) && !index.before(entry)) continue;
    const times = timesOf(at);
    if (times) entry.note(times);
  }
}

/**
 * The clone may have left converted bytes in files that the checkpoint takes from the repository as they are. True: some
 * were written anew.
 */
export async function fixRawBytes(
  targets: ReadonlyMap<number, Target | null>,
  carriedOf: (tree: TreeState) => ReadonlySet<Raw>,
  scan: Scan,
  signal?: AbortSignal,
): Promise<boolean> {
  let fixed = false;
  for (const target of targets.values()) {
    if (!target) continue;
    const { tree } = target;
    const carried = carriedOf(tree);
    const at = scan.trees.findIndex((other) => other.root === tree.root && other.path === tree.path);
    const own = scan.scans[at];
    if (!own) continue;
    const differs = new Set(tree.index.entries.map((entry) => entry.path));
    const wrong = own.entries.filter(
      (entry) =>
        entry.stage === 0 &&
        own.tracked.has(entry.path) &&
        !differs.has(entry.path) &&
        !entry.skipWorktree &&
        entry.mode !== GITLINK,
    );
    const paths = wrong.map((entry) => entry.path).filter((path) => !carried.has(path));
    if (paths.length === 0) continue;
    await checkOut(own.scratch, target, own.entries, paths, signal);
    // Git takes a file of another length than its index noted for changed, without a look.
    const written = new Set(paths);
    const noted = own.entries.map((entry) => {
      if (!written.has(entry.path)) return entry;
      const anew = new NewEntry(entry);
      anew.assumeUnchanged = entry.assumeUnchanged;
      anew.note(timesOf(`${target.dirs.worktree}/${entry.path}`) ?? entry);
      return anew;
    });
    putIndex(target, noted);
    await breathe();
    fixed = true;
  }
  return fixed;
}
