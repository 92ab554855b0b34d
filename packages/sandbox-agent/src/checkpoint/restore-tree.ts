/** Makes a working tree's files and index those of a checkpoint, once its repository is and the carried files are in place. */
import { chmodSync, copyFileSync, lstatSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { setImmediate as breathe, setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { OFF, userEnv, findGitDirs, git, makeScratch, type Scratch } from "./git.ts";
import { type IndexEntry, readIndex, writeIndex } from "./index-file.ts";
import { bytesOf, fsPath, lstatRaw, parentRaw, type Raw, splitZ, stringPath, toText } from "./raw.ts";
import { looksUnchanged, RealFolders } from "./read-files.ts";
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

export async function restoreWorktree(ws: Workspace, target: Target, input: WorktreeInput): Promise<void> {
  const { dirs, tree } = target;
  const scratch = scratchOf(ws, target, input);
  const old = oldIndex(target);
  const entries = indexEntries(target, await headEntries(target, scratch, old, input.signal));
  const work = sortOut(target, input, entries, old);
  for (const path of work.remove) {
    const there = lstatRaw(`${dirs.worktree}/${path}`);
    if (there && !there.isDirectory()) removeSafely(dirs.worktree, path);
  }
  await checkOut(scratch, target, entries, work.write, input.signal);
  await smudge(ws, target, scratch, entries, work.smudge, input);
  for (const path of work.folders) makeFolder(dirs.worktree, path);
  setModes(target, work);
  // Git, and the next look, take a file for unread that changed in the same moment as the index.
  if (tree.filtered.length > 0) await sleep(100);
  writeNewIndex(target, entries, work, old);
}

const scratchOf = (ws: Workspace, { dirs, tree }: Target, input: WorktreeInput): Scratch =>
  makeScratch({
    dir: `${input.scratch}/tree-${tree.root}-${bytesOf(tree.path).toString("hex").slice(0, 100)}`,
    home: ws.home,
    objectFormat: tree.objectFormat,
    objects: [`${dirs.commonDir}/objects`],
    excludeFile: `${dirs.commonDir}/info/exclude`,
  });

// ---- the index -----------------------------------------------------------------------------------------------------

const NO_TIMES = { ctime: [0, 0], mtime: [0, 0], dev: 0, ino: 0, uid: 0, gid: 0, size: 0 } as const;

const entryOf = (path: Raw, stage: number, mode: number, oid: string, intentToAdd: boolean): IndexEntry => ({
  path,
  stage,
  mode: mode === 0o100664 ? 0o100644 : mode,
  oid,
  intentToAdd,
  assumeUnchanged: false,
  skipWorktree: false,
  ...NO_TIMES,
});

/** HEAD's entries with the checkpoint's differences, without file times. */
function indexEntries({ tree }: Target, inHead: Map<Raw, IndexEntry>): IndexEntry[] {
  const more: IndexEntry[] = [];
  for (const path of tree.index.removed) inHead.delete(path);
  for (const e of tree.index.entries) {
    inHead.delete(e.path);
    more.push(entryOf(e.path, e.stage, e.mode, e.oid, e.intentToAdd));
  }
  const entries = [...inHead.values(), ...more];
  // Mostly in order already, which this sort is quick with.
  entries.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.stage - b.stage));
  if (entries.length !== tree.index.count)
    throw new HangarError(
      "checkpoint_invalid",
      `The checkpoint's index has ${tree.index.count} entries, but ${entries.length} come of it`,
    );
  for (const [runs, flag] of [
    [tree.index.assumeUnchanged, "assumeUnchanged"],
    [tree.index.skipWorktree, "skipWorktree"],
  ] as const)
    for (const [first, count] of runs)
      for (let i = first; i < Math.min(first + count, entries.length); i++) {
        const entry = entries[i];
        if (entry) entry[flag] = true;
      }
  return entries;
}

/**
 * What HEAD holds: by what it differs in from the tree that the clone's index says it is of, which is little as a rule; listed
 * whole where the index does not say.
 */
async function headEntries(
  { tree }: Target,
  scratch: Scratch,
  old: OldIndex,
  signal?: AbortSignal,
): Promise<Map<Raw, IndexEntry>> {
  const entries = new Map<Raw, IndexEntry>();
  if (tree.head === null) return entries;
  const options = { env: scratch.env, cwd: scratch.dir, signal };
  if (old.tree === null) {
    for (const line of splitZ(await git(["ls-tree", "-r", "-z", "--full-tree", tree.head], options))) {
      const tab = line.indexOf("\t");
      const [mode = "", , oid = ""] = line.slice(0, tab).split(" ");
      const path = line.slice(tab + 1);
      entries.set(path, entryOf(path, 0, Number.parseInt(mode, 8), oid, false));
    }
    return entries;
  }
  const diff = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old.tree, tree.head];
  const pieces = splitZ(await git([...diff, "--"], options));
  for (const { path, mode, oid } of old.entries.values()) entries.set(path, entryOf(path, 0, mode, oid, false));
  for (let i = 0; i + 1 < pieces.length; i += 2) {
    const [, mode = "", , oid = "", status = ""] = (pieces[i] ?? "").split(" ");
    const path = pieces[i + 1] ?? "";
    if (status === "D") entries.delete(path);
    else entries.set(path, entryOf(path, 0, Number.parseInt(mode, 8), oid, false));
  }
  return entries;
}

interface OldIndex {
  readonly entries: ReadonlyMap<Raw, IndexEntry>;
  readonly mtimeMs: number;
  /** The tree that it is of, entry by entry; none: it is of none, or does not say. */
  readonly tree: string | null;
}

const NO_INDEX: OldIndex = { entries: new Map(), mtimeMs: 0, tree: null };

/** The target's own, from its clone; empty where it cannot be read: then every file is written. */
function oldIndex({ dirs, tree }: Target): OldIndex {
  const path = `${dirs.gitDir}/index`;
  const stat = lstatRaw(path);
  if (!stat) return NO_INDEX;
  try {
    const read = readIndex(readFileSync(fsPath(path)), tree.objectFormat);
    const entries = new Map(read.entries.map((entry) => [entry.path, entry]));
    const isOfTree = !read.needsExpansion && read.entries.every((entry) => entry.stage === 0 && !entry.intentToAdd);
    return { entries, mtimeMs: stat.mtimeMs, tree: isOfTree ? read.tree : null };
  } catch {
    return NO_INDEX;
  }
}

// ---- what is to be done --------------------------------------------------------------------------------------------

interface Work {
  /** Tracked files whose bytes are the blob's, or a filter's; with what is on the disk already. */
  readonly clean: IndexEntry[];
  /** Of those, what is on the disk and stays as it is: as the clone's index noted it, and its permissions. */
  readonly asCloned: Map<Raw, { readonly noted: IndexEntry; readonly mode: number }>;
  readonly write: Raw[];
  readonly smudge: Raw[];
  readonly remove: Set<Raw>;
  /** Submodules that are not checked out: empty folders. */
  readonly folders: Raw[];
}

function sortOut({ dirs, tree }: Target, input: WorktreeInput, entries: readonly IndexEntry[], old: OldIndex): Work {
  const work: Work = {
    clean: [],
    asCloned: new Map(),
    write: [],
    smudge: [],
    remove: new Set(tree.deleted),
    folders: [],
  };
  const deleted = new Set(tree.deleted);
  const filtered = new Set(tree.filtered.map(([path]) => path));
  const folders = new RealFolders(dirs.worktree);
  const tracked = new Set<Raw>();
  for (const entry of entries) {
    const { path } = entry;
    tracked.add(path);
    if (input.carried.has(path) || input.untracked.has(path)) continue;
    if (entry.mode === GITLINK) {
      if (deleted.has(path)) removeSafely(dirs.worktree, path);
      else if (!input.nested.has(path) && !entry.skipWorktree) {
        if (findGitDirs(`${dirs.worktree}/${path}`)) removeSafely(dirs.worktree, path);
        work.folders.push(path);
      }
      continue;
    }
    if (entry.skipWorktree) work.remove.add(path);
    if (entry.stage !== 0 || entry.intentToAdd || entry.skipWorktree || deleted.has(path)) continue;
    work.clean.push(entry);
    const before = old.entries.get(path);
    const stat = folders.real(parentRaw(path)) ? lstatRaw(`${dirs.worktree}/${path}`) : undefined;
    if (
      before?.oid === entry.oid &&
      before.mode === entry.mode &&
      stat !== undefined &&
      looksUnchanged(before, stat, old.mtimeMs)
    )
      work.asCloned.set(path, { noted: before, mode: stat.mode & 0o7777 });
    else (filtered.has(path) ? work.smudge : work.write).push(path);
  }
  for (const path of old.entries.keys())
    if (!tracked.has(path) && !input.carried.has(path) && !input.untracked.has(path) && !isNested(path, input.nested))
      work.remove.add(path);
  for (const path of work.remove) if (input.carried.has(path) || input.untracked.has(path)) work.remove.delete(path);
  return work;
}

const isNested = (path: Raw, nested: ReadonlySet<Raw>): boolean => {
  for (let folder = path; folder !== ""; folder = parentRaw(folder)) if (nested.has(folder)) return true;
  return false;
};

/** Writes blobs as they are: no filter, no line endings. */
async function checkOut(
  scratch: Scratch,
  target: Target,
  entries: readonly IndexEntry[],
  paths: readonly Raw[],
  signal?: AbortSignal,
): Promise<void> {
  if (paths.length === 0) return;
  const index = `${scratch.dir}/new-index`;
  const wanted = new Set(paths);
  writeFileSync(
    fsPath(index),
    writeIndex(
      entries.filter(({ path }) => wanted.has(path)),
      target.tree.objectFormat,
    ),
  );
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
  const index = `${scratch.dir}/new-index`;
  const wanted = new Set(paths);
  writeFileSync(
    fsPath(index),
    writeIndex(
      entries.filter(({ path }) => wanted.has(path)),
      target.tree.objectFormat,
    ),
  );
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

/** Removes what is untracked and not in the checkpoint: leftovers of set-up. True: there were some. */
export async function sweepWorktree(ws: Workspace, target: Target, input: WorktreeInput): Promise<boolean> {
  const { dirs } = target;
  const scratch = scratchOf(ws, target, input);
  const index = `${scratch.dir}/sweep-index`;
  copyFileSync(fsPath(`${dirs.gitDir}/index`), fsPath(index));
  let found = false;
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
    found = true;
  }
  return found;
}

function setModes({ dirs, tree }: Target, { clean, asCloned }: Work): void {
  const odd = new Map(tree.modes);
  for (const { path, mode } of clean) {
    if ((mode & 0o170000) !== 0o100000) continue;
    const want = odd.get(path) ?? tree.usualModes[(mode & 0o100) === 0 ? 0 : 1];
    if (asCloned.get(path)?.mode === want) continue;
    // Its times change with its permissions.
    asCloned.delete(path);
    const at = fsPath(`${dirs.worktree}/${path}`);
    const stat = lstatSync(at, { throwIfNoEntry: false });
    if (stat?.isFile() && (stat.mode & 0o7777) !== want) chmodSync(at, want);
  }
}

/** With the times of the files that are the blobs, so that git need not read them again. */
function writeNewIndex(target: Target, entries: IndexEntry[], { clean, asCloned }: Work, old: OldIndex): void {
  const { dirs, tree } = target;
  const filtered = new Set(tree.filtered.map(([path]) => path));
  for (const entry of clean) {
    const cloned = asCloned.get(entry.path);
    if (cloned) {
      const { ctime, mtime, dev, ino, uid, gid, size } = cloned.noted;
      Object.assign(entry, { ctime, mtime, dev, ino, uid, gid, size });
      continue;
    }
    const stat = lstatSync(fsPath(`${dirs.worktree}/${entry.path}`), { bigint: true, throwIfNoEntry: false });
    if (!stat) continue;
    const before = old.entries.get(entry.path);
    if (filtered.has(entry.path) && !before) continue;
    entry.ctime = [Number(stat.ctimeNs / 1_000_000_000n), Number(stat.ctimeNs % 1_000_000_000n)];
    entry.mtime = [Number(stat.mtimeNs / 1_000_000_000n), Number(stat.mtimeNs % 1_000_000_000n)];
    entry.dev = Number(BigInt.asUintN(32, stat.dev));
    entry.ino = Number(BigInt.asUintN(32, stat.ino));
    entry.uid = Number(stat.uid);
    entry.gid = Number(stat.gid);
    entry.size = Number(BigInt.asUintN(32, stat.size));
  }
  const temporary = `${dirs.gitDir}/hangar-index-${process.pid}`;
  writeFileSync(fsPath(temporary), writeIndex(entries, tree.objectFormat));
  renameSync(fsPath(temporary), fsPath(`${dirs.gitDir}/index`));
  rmSync(fsPath(`${dirs.gitDir}/index.lock`), { force: true });
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
    await breathe();
    fixed = true;
  }
  return fixed;
}
