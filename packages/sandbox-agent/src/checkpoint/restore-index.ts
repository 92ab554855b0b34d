/** What a working tree's index is to be, made of the clone's own and of what the checkpoint says is different. */
import { lstatSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { git, type Scratch } from "./git.ts";
import { type FileTimes, type IndexEntry, readIndex, writeIndex } from "./index-file.ts";
import { byBytes, fsPath, lstatRaw, type Raw, splitZ } from "./raw.ts";
import type { Target } from "./restore-repository.ts";

const NO_TIMES: FileTimes = { ctime: [0, 0], mtime: [0, 0], dev: 0, ino: 0, uid: 0, gid: 0, size: 0 };

/** An entry that the clone's index does not have, or not so. */
export class NewEntry implements IndexEntry {
  readonly path: Raw;
  readonly stage: number;
  readonly mode: number;
  readonly oid: string;
  readonly intentToAdd: boolean;
  assumeUnchanged = false;
  skipWorktree = false;
  ctime = NO_TIMES.ctime;
  mtime = NO_TIMES.mtime;
  dev = 0;
  ino = 0;
  uid = 0;
  gid = 0;
  size = 0;

  constructor(of: Pick<IndexEntry, "path" | "stage" | "mode" | "oid" | "intentToAdd">) {
    this.path = of.path;
    this.stage = of.stage;
    this.mode = of.mode === 0o100664 ? 0o100644 : of.mode;
    this.oid = of.oid;
    this.intentToAdd = of.intentToAdd;
  }

  /** The same entry with another's times. */
  note({ ctime, mtime, dev, ino, uid, gid, size }: FileTimes): void {
    Object.assign(this, { ctime, mtime, dev, ino, uid, gid, size });
  }
}

export interface IndexPlan {
  /** In git's order; what is as the clone has it is the clone's own entry. */
  readonly entries: IndexEntry[];
  /** The entry in this place, made one that may be changed: without times. */
  readonly own: (i: number) => NewEntry | undefined;
  /** The clone's entry of the same path; none: it has none. */
  readonly before: (entry: IndexEntry) => IndexEntry | undefined;
  /** Paths of the clone's index that have no entry. */
  readonly gone: readonly Raw[];
  /** When the clone's index was written; ms since 1970. */
  readonly clonedMs: number;
}

export async function planIndex({ dirs, tree }: Target, scratch: Scratch, signal?: AbortSignal): Promise<IndexPlan> {
  const old = oldIndex(`${dirs.gitDir}/index`, tree.objectFormat);
  const changes = new Map<Raw, NewEntry[]>();
  let base: readonly IndexEntry[] = [];
  if (tree.head !== null && old.tree !== null) {
    base = old.entries;
    await addDiff(changes, old.tree, tree.head, { env: scratch.env, cwd: scratch.dir, signal });
  } else if (tree.head !== null) {
    base = await listHead(tree.head, { env: scratch.env, cwd: scratch.dir, signal });
  }
  for (const path of tree.index.removed) changes.set(path, []);
  const fresh = new Set<Raw>();
  for (const row of tree.index.entries) {
    if (!fresh.has(row.path)) changes.set(row.path, []);
    fresh.add(row.path);
    changes.get(row.path)?.push(new NewEntry(row));
  }

  const entries = changes.size === 0 ? [...base] : base.filter((entry) => !changes.has(entry.path));
  for (const some of changes.values()) entries.push(...some);
  // Mostly in order already, which this sort is quick with.
  entries.sort((a, b) => byBytes(a.path, b.path) || a.stage - b.stage);
  if (entries.length !== tree.index.count)
    throw new HangarError(
      "checkpoint_invalid",
      `The checkpoint's index has ${tree.index.count} entries, but ${entries.length} come of it`,
    );
  const isOwn = base === old.entries;
  const replaced = new Map<Raw, IndexEntry>();
  for (const entry of old.entries) if (!isOwn || changes.has(entry.path)) replaced.set(entry.path, entry);
  const kept = isOwn ? null : new Set(entries.map((entry) => entry.path));
  const gone = [...replaced.keys()].filter((path) => (kept ? !kept.has(path) : changes.get(path)?.length === 0));
  /** One that may be changed, in the place of the clone's. */
  const own = (i: number): NewEntry | undefined => {
    const entry = entries[i];
    if (!entry || entry instanceof NewEntry) return entry;
    replaced.set(entry.path, entry);
    return (entries[i] = new NewEntry({ ...identityOf(entry), intentToAdd: false }));
  };
  if (isOwn && old.hasFlags)
    for (const [i, entry] of entries.entries()) if (entry.assumeUnchanged || entry.skipWorktree) own(i);
  for (const [runs, flag] of [
    [tree.index.assumeUnchanged, "assumeUnchanged"],
    [tree.index.skipWorktree, "skipWorktree"],
  ] as const)
    for (const [first, count] of runs)
      for (let i = first; i < Math.min(first + count, entries.length); i++) {
        const entry = own(i);
        if (entry) entry[flag] = true;
      }
  const before = (entry: IndexEntry): IndexEntry | undefined =>
    entry instanceof NewEntry ? replaced.get(entry.path) : entry;
  return { entries, own, before, gone, clonedMs: old.mtimeMs };
}

const identityOf = ({ path, stage, mode, oid }: IndexEntry): Pick<IndexEntry, "path" | "stage" | "mode" | "oid"> => ({
  path,
  stage,
  mode,
  oid,
});

interface RunIn {
  readonly env: Record<string, string>;
  readonly cwd: Raw;
  readonly signal?: AbortSignal | undefined;
}

/** What HEAD has otherwise than the tree that the clone's index is of: little as a rule. */
async function addDiff(changes: Map<Raw, NewEntry[]>, from: string, to: string, options: RunIn): Promise<void> {
  if (from === to) return;
  const diff = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to, "--"];
  const pieces = splitZ(await git(diff, options));
  for (let i = 0; i + 1 < pieces.length; i += 2) {
    const [, mode = "", , oid = "", status = ""] = (pieces[i] ?? "").split(" ");
    const path = pieces[i + 1] ?? "";
    const entry = { path, stage: 0, mode: Number.parseInt(mode, 8), oid, intentToAdd: false };
    changes.set(path, status === "D" ? [] : [new NewEntry(entry)]);
  }
}

async function listHead(head: string, options: RunIn): Promise<NewEntry[]> {
  return splitZ(await git(["ls-tree", "-r", "-z", "--full-tree", head], options)).map((line) => {
    const tab = line.indexOf("\t");
    const [mode = "", , oid = ""] = line.slice(0, tab).split(" ");
    return new NewEntry({
      path: line.slice(tab + 1),
      stage: 0,
      mode: Number.parseInt(mode, 8),
      oid,
      intentToAdd: false,
    });
  });
}

interface OldIndex {
  readonly entries: readonly IndexEntry[];
  readonly mtimeMs: number;
  /** The tree that it is of, entry by entry; none: it is of none, or does not say. */
  readonly tree: string | null;
  readonly hasFlags: boolean;
}

/** The target's own, from its clone; empty where it cannot be read: then every file is written. */
function oldIndex(path: Raw, format: "sha1" | "sha256"): OldIndex {
  const none: OldIndex = { entries: [], mtimeMs: 0, tree: null, hasFlags: false };
  const stat = lstatRaw(path);
  if (!stat) return none;
  try {
    const read = readIndex(readFileSync(fsPath(path)), format);
    let isOfTree = !read.needsExpansion;
    let hasFlags = false;
    for (const entry of read.entries) {
      if (entry.stage !== 0 || entry.intentToAdd) isOfTree = false;
      if (entry.assumeUnchanged || entry.skipWorktree) hasFlags = true;
    }
    return { entries: read.entries, mtimeMs: stat.mtimeMs, tree: isOfTree ? read.tree : null, hasFlags };
  } catch {
    return none;
  }
}

/** What `lstat` says of a file, as an index has it; none: it is not there. */
export function timesOf(path: Raw): FileTimes | null {
  const stat = lstatSync(fsPath(path), { bigint: true, throwIfNoEntry: false });
  if (!stat) return null;
  const pair = (ns: bigint): [number, number] => [Number(ns / 1_000_000_000n), Number(ns % 1_000_000_000n)];
  const low = (n: bigint): number => Number(BigInt.asUintN(32, n));
  return {
    ctime: pair(stat.ctimeNs),
    mtime: pair(stat.mtimeNs),
    dev: low(stat.dev),
    ino: low(stat.ino),
    uid: Number(stat.uid),
    gid: Number(stat.gid),
    size: low(stat.size),
  };
}

/** Puts it in the place of the clone's at once. */
export function putIndex({ dirs, tree }: Target, entries: IndexEntry[]): void {
  const temporary = `${dirs.gitDir}/hangar-index-${process.pid}`;
  writeFileSync(fsPath(temporary), writeIndex(entries, tree.objectFormat));
  renameSync(fsPath(temporary), fsPath(`${dirs.gitDir}/index`));
  rmSync(fsPath(`${dirs.gitDir}/index.lock`), { force: true });
}
