/** A working tree's index, and how it differs from HEAD. */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { git, type GitDirs, type Scratch } from "./git.ts";
import { type IndexFile, readIndex } from "./index-file.ts";
import type { HeadChange, TreeMemory } from "./memory.ts";
import { byBytes, fsPath, type Raw, splitZ, stringPath } from "./raw.ts";
import { readAtOnce, type ScanContext, stampOf, stampOfStat } from "./scan-context.ts";
import type { IndexDelta } from "./state.ts";

export interface TreeIndex {
  readonly file: IndexFile;
  /** What git is given to read as the index. */
  readonly path: Raw;
  readonly mtimeMs: number;
  readonly stamp: string;
}

const NO_INDEX: IndexFile = { entries: [], tree: null, needsExpansion: false };

export async function readTreeIndex(
  context: ScanContext,
  dirs: GitDirs,
  memory: TreeMemory,
  scratch: Scratch,
  format: "sha1" | "sha256",
): Promise<TreeIndex> {
  const path = `${dirs.gitDir}/index`;
  const copy = `${scratch.dir}/index`;
  const stamp = stampOf(path);
  if (stamp === "") return { file: NO_INDEX, path: `${scratch.dir}/no-index`, mtimeMs: 0, stamp: "none" };
  // Git puts a new index in place by a rename: the inode tells two of the same length and moment apart.
  const known = memory.index;
  if (known?.stamp === stamp && known.expanded === copy)
    return { file: known.file, path: copy, mtimeMs: known.mtimeMs, stamp };
  const read = readAtOnce(path);
  if (!read) return { file: NO_INDEX, path: `${scratch.dir}/no-index`, mtimeMs: 0, stamp: "none" };
  const { stat } = read;
  let file = readIndex(read.bytes, format);
  // Git is given what was read here: the file itself may be another one by then.
  writeFileSync(fsPath(copy), read.bytes);
  const expanded = copy;
  if (file.needsExpansion) {
    await expandIndex(context, dirs, scratch);
    file = readIndex(readFileSync(fsPath(copy)), format);
  }
  file.entries.sort((a, b) => byBytes(a.path, b.path) || a.stage - b.stage);
  const stampRead = stampOfStat(stat);
  memory.index = { stamp: stampRead, file, mtimeMs: stat.mtimeMs, expanded };
  return { file, path: copy, mtimeMs: stat.mtimeMs, stamp: stampRead };
}

/** A split or sparse index, written out whole in the scratch folder. */
async function expandIndex(context: ScanContext, dirs: GitDirs, scratch: Scratch): Promise<void> {
  const copy = `${scratch.dir}/index`;
  for (const name of readdirSync(fsPath(dirs.gitDir), { encoding: "latin1" }))
    if (name.startsWith("sharedindex."))
      copyFileSync(fsPath(`${dirs.gitDir}/${name}`), fsPath(`${scratch.dir}/${name}`));
  await git(
    [
      "-c",
      "index.sparse=false",
      "-c",
      "core.splitIndex=false",
      "update-index",
      "--no-split-index",
      "--force-write-index",
    ],
    {
      env: { ...scratch.env, GIT_WORK_TREE: stringPath(dirs.worktree), GIT_INDEX_FILE: stringPath(copy) },
      cwd: dirs.worktree,
      signal: context.signal,
    },
  );
}

const EMPTY_TREE = {
  sha1: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
  sha256: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
};

export async function headChanges(
  context: ScanContext,
  memory: TreeMemory,
  scratch: Scratch,
  index: TreeIndex,
  head: string | null,
  format: "sha1" | "sha256",
): Promise<HeadChange[]> {
  const key = `${index.stamp} ${head}`;
  if (memory.diff?.key === key) return memory.diff.changes;
  const output = await git(
    [
      "diff-index",
      "--cached",
      "--raw",
      "-z",
      "--no-renames",
      "--no-abbrev",
      "--ignore-submodules=none",
      head ?? EMPTY_TREE[format],
      "--",
    ],
    { env: { ...scratch.env, GIT_INDEX_FILE: stringPath(index.path) }, cwd: scratch.dir, signal: context.signal },
  );
  const pieces = splitZ(output);
  const changes: HeadChange[] = [];
  for (let i = 0; i + 1 < pieces.length; i += 2) {
    const [headMode = "", , headOid = "", indexOid = "", status = ""] = (pieces[i] ?? "").slice(1).split(" ");
    changes.push({ path: pieces[i + 1] ?? "", headMode: Number.parseInt(headMode, 8), headOid, indexOid, status });
  }
  memory.diff = { key, changes };
  return changes;
}

export function indexDelta(file: IndexFile, changes: readonly HeadChange[]): IndexDelta {
  const differs = new Set(changes.map((change) => change.path));
  for (const entry of file.entries) if (entry.stage > 0 || entry.intentToAdd) differs.add(entry.path);
  const entries: IndexDelta["entries"][number][] = [];
  const there = new Set<Raw>();
  const assume = new Runs();
  const skip = new Runs();
  let i = -1;
  for (const e of file.entries) {
    i++;
    if (e.assumeUnchanged) assume.add(i);
    if (e.skipWorktree) skip.add(i);
    if (!differs.has(e.path)) continue;
    there.add(e.path);
    entries.push({ path: e.path, stage: e.stage, mode: e.mode, oid: e.oid, intentToAdd: e.intentToAdd });
  }
  const removed = changes.filter((c) => c.headMode !== 0 && !there.has(c.path)).map((c) => c.path);
  return {
    entries,
    removed: [...new Set(removed)].sort(byBytes),
    assumeUnchanged: assume.runs,
    skipWorktree: skip.runs,
    count: file.entries.length,
  };
}

class Runs {
  readonly runs: [number, number][] = [];
  add(i: number): void {
    const last = this.runs.at(-1);
    if (last && last[0] + last[1] === i) last[1]++;
    else this.runs.push([i, 1]);
  }
}
