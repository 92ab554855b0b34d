/** Reads one working tree: its HEAD, refs, index, files and git state, as they are, without a lock or a write. */
import {
  closeSync,
  copyFileSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { linkTarget, Vanished } from "./content.ts";
import { type ConfigEntry, parseConfigList, sortConfig } from "./git-config.ts";
import { readGitFiles } from "./git-files.ts";
import { findGitDirs, fixedEnv, git, type GitDirs, makeScratch, OFF, type Scratch } from "./git.ts";
import { type IndexEntry, type IndexFile, readIndex } from "./index-file.ts";
import { type HeadChange, type Memory, type TreeMemory, treeMemory } from "./memory.ts";
import { byBytes, fsPath, joinRaw, parentRaw, type Raw, rawOf, splitZ, stringPath, toText, lstatRaw } from "./raw.ts";
import type { Files, FileState, IndexDelta, TreeState } from "./state.ts";
import { convertedPaths } from "./converted.ts";

export interface ScanContext {
  readonly home: string;
  readonly memory: Memory;
  /** A folder for scratch repositories, kept as long as the memory. */
  readonly scratch: Raw;
  /** Settings of the home's git configuration that say what is ignored and converted. */
  readonly userConfig: readonly ConfigEntry[];
  readonly warnings: Set<string>;
  /** Files that could not be read, by their path below the repo. */
  readonly unreadable: Map<string, number>;
  /** Absolute paths and sizes of files that a filter of the image made just now: what a restore left to it. */
  readonly filtered: ReadonlyMap<Raw, number>;
  readonly signal?: AbortSignal | undefined;
}

export interface TreeScan {
  readonly dirs: GitDirs;
  readonly scratch: Scratch;
  /** What git is given to read as this tree's index. */
  readonly indexPath: Raw;
  readonly state: Omit<TreeState, "kind" | "root" | "path" | "owner" | "id" | "gitDir">;
  readonly entries: readonly IndexEntry[];
  readonly changes: readonly HeadChange[];
  /** Tracked files that are not as in HEAD, and untracked ones; by path below the tree. */
  readonly tracked: Files;
  readonly untracked: Files;
  /** Folders with a git folder of their own. */
  readonly nested: readonly Raw[];
  /** Refs of remotes, with where a symbolic one leads. */
  readonly remoteRefs: ReadonlyMap<Raw, string>;
  readonly remoteHead: Raw | null;
  readonly remoteUrl: Raw | null;
  readonly partial: boolean;
}

const GITLINK = 0o160000;
const SYMLINK = 0o120000;

export async function scanTree(context: ScanContext, dirs: GitDirs, keepIgnored: readonly string[]): Promise<TreeScan> {
  const memory = treeMemory(context.memory, dirs.gitDir);
  const config = await readConfig(context, dirs, memory);
  const { objectFormat } = config;
  const scratch = scratchOf(context, dirs, memory, config);
  const [refs, index] = await Promise.all([
    readRefs(context, dirs),
    readTreeIndex(context, dirs, memory, scratch, objectFormat),
  ]);
  const { branch, head } = readHead(dirs, refs.all);
  const [changes, others] = await Promise.all([
    headChanges(context, memory, scratch, index, head, objectFormat),
    listOthers(context, dirs, scratch, index, keepIgnored),
  ]);
  const found = await readFiles(context, { dirs, scratch, index, changes, others, objectFormat, memory, config, refs });
  const gitFiles = readGitFiles(dirs.gitDir, dirs.commonDir);
  for (const warning of gitFiles.warnings) context.warnings.add(warning);
  return {
    dirs,
    scratch,
    indexPath: index.path,
    entries: index.file.entries,
    changes,
    tracked: found.tracked,
    untracked: found.untracked,
    nested: found.nested,
    remoteRefs: refs.remotes,
    remoteHead: refs.remoteHead,
    remoteUrl: config.value("remote.origin.url"),
    partial: config.value("extensions.partialclone") !== null,
    state: {
      objectFormat,
      branch,
      head,
      refs: refs.local,
      symrefs: refs.symrefs,
      index: indexDelta(index.file, changes),
      deleted: found.deleted,
      modes: found.modes,
      usualModes: found.usualModes,
      filtered: found.filtered,
      gitFiles: gitFiles.files,
      config: config.carried,
      missing: false,
    },
  };
}

// ---- configuration -------------------------------------------------------------------------------------------------

export interface TreeConfig {
  readonly objectFormat: "sha1" | "sha256";
  readonly carried: (readonly ["local" | "worktree", Raw, Raw])[];
  /** The last value of a key, local or of the working tree. */
  readonly value: (key: Raw) => Raw | null;
}

async function readConfig(context: ScanContext, dirs: GitDirs, memory: TreeMemory): Promise<TreeConfig> {
  const paths = { local: `${dirs.commonDir}/config`, worktree: `${dirs.gitDir}/config.worktree` };
  const stamp = `${stampOf(paths.local)} ${stampOf(paths.worktree)}`;
  if (memory.config?.stamp !== stamp || isFresh(paths.local) || isFresh(paths.worktree)) {
    const list = async (path: Raw): Promise<ConfigEntry[]> => {
      if (stampOf(path) === "") return [];
      const output = await git(["config", "--file", stringPath(path), "--no-includes", "--list", "-z"], {
        env: fixedEnv(context.home),
        cwd: "/",
        signal: context.signal,
      });
      return parseConfigList(output);
    };
    const [local, worktree] = await Promise.all([list(paths.local), list(paths.worktree)]);
    memory.config = { stamp, local, worktree };
  }
  const { local, worktree } = memory.config;
  const all = [...local, ...worktree];
  const value = (key: Raw): Raw | null => all.findLast(([name]) => name === key)?.[1] ?? null;
  const format = value("extensions.objectformat") === "sha256" ? "sha256" : "sha1";
  const carried: ["local" | "worktree", Raw, Raw][] = [];
  const refused: Raw[] = [];
  for (const [scope, entries] of [
    ["local", local],
    ["worktree", worktree],
  ] as const) {
    const sorted = sortConfig(entries);
    for (const [key, text] of sorted.allowed) carried.push([scope, key, text]);
    refused.push(...sorted.refused);
  }
  if (refused.length > 0)
    context.warnings.add(
      `local git configuration that may run programs or hold credentials is not kept: ${refused.slice(0, 20).map(toText).join(", ")}`,
    );
  if (value("extensions.refstorage") === "reftable")
    context.warnings.add("refs in the reftable format: reflogs, and stash entries behind the newest, are not kept");
  return { objectFormat: format, carried, value };
}

/** Equal stamps: the same file, unless it changed just now. Empty: not there. */
export function stampOf(path: Raw): string {
  const s = statSync(fsPath(path), { throwIfNoEntry: false });
  return s ? stampOfStat(s) : "";
}
const stampOfStat = (s: Stats): string => `${s.ino} ${s.size} ${s.mtimeMs} ${s.ctimeMs}`;

/** A file's bytes and what it was when they were read; none: it is not there. */
function readAtOnce(path: Raw): { bytes: Buffer; stat: Stats } | null {
  let fd: number;
  try {
    fd = openSync(fsPath(path), "r");
  } catch {
    return null;
  }
  try {
    return { stat: fstatSync(fd), bytes: readFileSync(fd) };
  } finally {
    closeSync(fd);
  }
}

const isFresh = (path: Raw): boolean => {
  const s = statSync(fsPath(path), { throwIfNoEntry: false });
  return s !== undefined && Date.now() - s.ctimeMs < 2000;
};

function scratchOf(context: ScanContext, dirs: GitDirs, memory: TreeMemory, config: TreeConfig): Scratch {
  const shallow = `${dirs.commonDir}/shallow`;
  const key = `${dirs.commonDir} ${config.objectFormat} ${stampOf(shallow)} ${config.value("core.ignorecase")}`;
  if (memory.scratch?.key === key && statSync(fsPath(`${memory.scratch.scratch.dir}/HEAD`), { throwIfNoEntry: false }))
    return memory.scratch.scratch;
  const name =
    memory.scratch?.scratch.dir ?? `${context.scratch}/tree-${context.memory.trees.size}-${Date.now().toString(36)}`;
  const scratch = makeScratch({
    dir: name,
    home: context.home,
    objectFormat: config.objectFormat,
    objects: [`${dirs.commonDir}/objects`],
    excludeFile: `${dirs.commonDir}/info/exclude`,
    shallow: readIfThere(shallow),
    ignoreCase: config.value("core.ignorecase") === "true",
  });
  memory.scratch = { key, scratch };
  return scratch;
}

export function readIfThere(path: Raw): Buffer | null {
  try {
    return readFileSync(fsPath(path));
  } catch {
    return null;
  }
}

// ---- HEAD and refs -------------------------------------------------------------------------------------------------

export interface Refs {
  /** Every ref that is no symbolic one. */
  readonly all: ReadonlyMap<Raw, string>;
  readonly local: (readonly [Raw, string])[];
  readonly symrefs: (readonly [Raw, Raw])[];
  readonly remotes: ReadonlyMap<Raw, string>;
  /** Where `refs/remotes/origin/HEAD` leads. */
  readonly remoteHead: Raw | null;
}

async function readRefs(context: ScanContext, dirs: GitDirs): Promise<Refs> {
  const output = await git(
    [...OFF, "-c", "core.worktree=/", "for-each-ref", "--format=%(objectname) %(refname)%00%(symref)"],
    { env: { ...fixedEnv(context.home), GIT_DIR: stringPath(dirs.gitDir) }, cwd: "/", signal: context.signal },
  );
  const all = new Map<Raw, string>();
  const local: [Raw, string][] = [];
  const symrefs: [Raw, Raw][] = [];
  const remotes = new Map<Raw, string>();
  let remoteHead: Raw | null = null;
  for (const line of rawOf(output).split("\n")) {
    const space = line.indexOf(" ");
    const nul = line.indexOf("\0");
    if (space < 0 || nul < 0) continue;
    const name = line.slice(space + 1, nul);
    const symref = line.slice(nul + 1);
    const oid = line.slice(0, space);
    if (symref !== "") {
      if (name === "refs/remotes/origin/HEAD") remoteHead = symref;
      if (!name.startsWith("refs/remotes/") && !name.startsWith("refs/hangar/")) symrefs.push([name, symref]);
      continue;
    }
    all.set(name, oid);
    if (name.startsWith("refs/remotes/")) remotes.set(name, oid);
    else if (!name.startsWith("refs/hangar/") && !name.startsWith("refs/prefetch/")) local.push([name, oid]);
  }
  local.sort((a, b) => byBytes(a[0], b[0]));
  symrefs.sort((a, b) => byBytes(a[0], b[0]));
  return { all, local, symrefs, remotes, remoteHead };
}

function readHead(dirs: GitDirs, refs: ReadonlyMap<Raw, string>): { branch: Raw | null; head: string | null } {
  const text = (readIfThere(`${dirs.gitDir}/HEAD`) ?? Buffer.alloc(0)).toString("latin1").replace(/[\r\n ]+$/, "");
  if (text.startsWith("ref:")) {
    const branch = text.slice(4).trim();
    return { branch, head: refs.get(branch) ?? null };
  }
  if (!/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(text))
    throw new HangarError("checkpoint_failed", "The repository's HEAD cannot be read: run git status in it");
  return { branch: null, head: text };
}

// ---- index ---------------------------------------------------------------------------------------------------------

interface TreeIndex {
  readonly file: IndexFile;
  /** What git is given to read as the index. */
  readonly path: Raw;
  readonly mtimeMs: number;
  readonly stamp: string;
}

const NO_INDEX: IndexFile = { entries: [], tree: null, needsExpansion: false };

async function readTreeIndex(
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

async function headChanges(
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

function indexDelta(file: IndexFile, changes: readonly HeadChange[]): IndexDelta {
  const differs = new Set(changes.map((change) => change.path));
  for (const entry of file.entries) if (entry.stage > 0 || entry.intentToAdd) differs.add(entry.path);
  const entries: IndexDelta["entries"][number][] = [];
  const there = new Set<Raw>();
  const assume = new Runs();
  const skip = new Runs();
  for (const [i, e] of file.entries.entries()) {
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

// ---- files ---------------------------------------------------------------------------------------------------------

/** Untracked names as git lists them; a folder with a repository of its own ends in `/`. */
async function listOthers(
  context: ScanContext,
  dirs: GitDirs,
  scratch: Scratch,
  index: TreeIndex,
  keepIgnored: readonly string[],
): Promise<Raw[]> {
  const excludes = context.userConfig.findLast(([key]) => key === "core.excludesfile")?.[1];
  const options = {
    env: { ...scratch.env, GIT_WORK_TREE: stringPath(dirs.worktree), GIT_INDEX_FILE: stringPath(index.path) },
    cwd: dirs.worktree,
    signal: context.signal,
  };
  const base = excludes ? ["-c", `core.excludesFile=${excludes}`] : [];
  const lists = await Promise.all([
    git([...base, "ls-files", "-z", "--others", "--exclude-standard"], options),
    keepIgnored.length === 0
      ? null
      : git([...base, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", ...keepIgnored], options),
  ]);
  return lists.flatMap((list) => (list ? splitZ(list) : []));
}

interface FilesInput {
  readonly dirs: GitDirs;
  readonly scratch: Scratch;
  readonly index: TreeIndex;
  readonly changes: readonly HeadChange[];
  readonly others: readonly Raw[];
  readonly objectFormat: "sha1" | "sha256";
  readonly memory: TreeMemory;
  readonly config: TreeConfig;
  readonly refs: Refs;
}

interface FoundFiles {
  readonly tracked: Files;
  readonly untracked: Files;
  readonly nested: Raw[];
  readonly deleted: Raw[];
  readonly modes: [Raw, number][];
  readonly usualModes: [number, number];
  readonly filtered: [Raw, number][];
}

/** Git takes a file for unchanged by its times; not one that changed as shortly as this before the index was written (ms). */
const RACY = 50;

async function readFiles(context: ScanContext, input: FilesInput): Promise<FoundFiles> {
  const { dirs, index, changes, others, objectFormat } = input;
  const found = { tracked: new Map(), untracked: new Map(), nested: [] as Raw[], deleted: [] as Raw[] };
  const folders = new RealFolders(dirs.worktree);
  const changed = new Set(changes.map((change) => change.path));
  const clean: { entry: IndexEntry; stat: Stats }[] = [];
  const read = async (path: Raw, stat: Stats, into: Files): Promise<void> => {
    const state = await fileState(context, dirs, path, stat, objectFormat);
    if (state) into.set(path, state);
  };

  let previous = "";
  for (const [i, entry] of index.file.entries.entries()) {
    if (i % 2000 === 1999) {
      await breathe();
      context.signal?.throwIfAborted();
    }
    const { path } = entry;
    if (path === previous) continue;
    previous = path;
    const at = `${dirs.worktree}/${path}`;
    const stat = folders.real(parentRaw(path)) ? lstatRaw(at) : undefined;
    if ((entry.mode & 0o170000) === GITLINK) {
      if (stat?.isDirectory()) {
        if (findGitDirs(at)) found.nested.push(path);
      } else if (stat?.isFile() || stat?.isSymbolicLink()) await read(path, stat, found.tracked);
      else if (!entry.skipWorktree) found.deleted.push(path);
      continue;
    }
    if (!stat || !(stat.isFile() || stat.isSymbolicLink())) {
      if (!entry.skipWorktree) found.deleted.push(path);
      if (stat?.isDirectory() && findGitDirs(at)) found.nested.push(path);
      continue;
    }
    const whole = entry.stage === 0 && !entry.intentToAdd && !entry.skipWorktree && !changed.has(path);
    if (whole && sameType(entry, stat)) {
      if (looksUnchanged(entry, stat, index.mtimeMs) || context.filtered.get(at) === stat.size) {
        clean.push({ entry, stat });
        continue;
      }
      const oid = await oidOf(context, at, stat, objectFormat);
      if (oid === entry.oid) {
        clean.push({ entry, stat });
        continue;
      }
    }
    await read(path, stat, found.tracked);
  }

  const converted = await convertedPaths(context, input, clean);
  const kept: { entry: IndexEntry; stat: Stats }[] = [];
  for (const one of clean) {
    if (converted.carry.has(one.entry.path)) await read(one.entry.path, one.stat, found.tracked);
    else kept.push(one);
  }

  const listed = new Set(others);
  for (const name of listed) {
    if (name.endsWith("/")) {
      const path = name.slice(0, -1);
      if (findGitDirs(`${dirs.worktree}/${path}`)) {
        if (!found.nested.includes(path)) found.nested.push(path);
      } else await readBroken(context, dirs, path, read, found.untracked);
      continue;
    }
    const stat = lstatRaw(`${dirs.worktree}/${name}`);
    if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(name, stat, found.untracked);
  }
  // Out of the index and ignored now, but a file of HEAD: it is part of the work all the same.
  const inIndex = new Set(index.file.entries.map((entry) => entry.path));
  for (const { path, headMode } of changes) {
    if (headMode === 0 || headMode === GITLINK || inIndex.has(path) || listed.has(path)) continue;
    const stat = folders.real(parentRaw(path)) ? lstatRaw(`${dirs.worktree}/${path}`) : undefined;
    if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(path, stat, found.tracked);
  }
  found.nested.sort(byBytes);
  return { ...found, ...permissions(kept), filtered: converted.filtered };
}

/** A folder that git takes for a repository although it has none that works: its files travel as plain ones. */
async function readBroken(
  context: ScanContext,
  dirs: GitDirs,
  path: Raw,
  read: (path: Raw, stat: Stats, into: Files) => Promise<void>,
  into: Files,
): Promise<void> {
  context.warnings.add(
    `${toText(path)} looks like a repository but has no git folder that works: its files are kept, its .git is not`,
  );
  for (const name of readdirSync(fsPath(`${dirs.worktree}/${path}`), { encoding: "latin1" })) {
    if (name === ".git") continue;
    const child = joinRaw(path, name);
    const stat = lstatRaw(`${dirs.worktree}/${child}`);
    if (stat?.isDirectory()) await readBroken(context, dirs, child, read, into);
    else if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(child, stat, into);
  }
}

/** None: it went away, or it cannot be read, which is noted. */
async function fileState(
  context: ScanContext,
  dirs: GitDirs,
  path: Raw,
  stat: Stats,
  format: "sha1" | "sha256",
): Promise<FileState | null> {
  const at = `${dirs.worktree}/${path}`;
  try {
    const digest = await context.memory.contents.digest(at, stat, format);
    if (stat.isSymbolicLink()) {
      const link = rawOf(linkTarget(at));
      return { kind: "symlink", mode: 0o777, size: 0, sha256: digest.sha256, link };
    }
    return { kind: "file", mode: stat.mode & 0o7777, size: digest.size, sha256: digest.sha256 };
  } catch (error) {
    if (error instanceof Vanished) return null;
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (!["EACCES", "EPERM", "EIO"].includes(code)) throw error;
    context.unreadable.set(at, stat.size);
    return null;
  }
}

async function oidOf(context: ScanContext, at: Raw, stat: Stats, format: "sha1" | "sha256"): Promise<string | null> {
  try {
    return (await context.memory.contents.digest(at, stat, format)).oid;
  } catch (error) {
    if (error instanceof Vanished) return null;
    if (["EACCES", "EPERM", "EIO"].includes((error as NodeJS.ErrnoException).code ?? "")) return null;
    throw error;
  }
}

function sameType(entry: IndexEntry, stat: Stats): boolean {
  if ((entry.mode & 0o170000) === SYMLINK) return stat.isSymbolicLink();
  return stat.isFile() && ((entry.mode & 0o100) !== 0) === ((stat.mode & 0o100) !== 0);
}

/** By what the index noted of the file when git last found it equal. */
export function looksUnchanged(entry: IndexEntry, stat: Stats, indexMtimeMs: number): boolean {
  return (
    entry.size === stat.size % 2 ** 32 &&
    entry.ino === stat.ino % 2 ** 32 &&
    near(entry.mtime, stat.mtimeMs) &&
    near(entry.ctime, stat.ctimeMs) &&
    stat.mtimeMs < indexMtimeMs - RACY
  );
}

/** A double of milliseconds holds a file's time to the microsecond. */
const near = ([s, ns]: readonly [number, number], ms: number): boolean => Math.abs(s * 1000 + ns / 1e6 - ms) < 0.001;

/** Which folders below a root are real: not a link, and not below one. */
export class RealFolders {
  readonly #root: Raw;
  readonly #known = new Map<Raw, boolean>([["", true]]);
  constructor(root: Raw) {
    this.#root = root;
  }
  real(folder: Raw): boolean {
    const known = this.#known.get(folder);
    if (known !== undefined) return known;
    const real = this.real(parentRaw(folder)) && lstatRaw(`${this.#root}/${folder}`)?.isDirectory() === true;
    this.#known.set(folder, real);
    return real;
  }
}

/** The commonest permissions of each kind, and the files that have others. */
function permissions(clean: readonly { entry: IndexEntry; stat: Stats }[]): {
  modes: [Raw, number][];
  usualModes: [number, number];
} {
  const counts = [new Map<number, number>(), new Map<number, number>()] as const;
  const of = (entry: IndexEntry): 0 | 1 => ((entry.mode & 0o100) === 0 ? 0 : 1);
  const files = clean.filter(({ stat }) => stat.isFile());
  for (const { entry, stat } of files) {
    const map = counts[of(entry)];
    map.set(stat.mode & 0o7777, (map.get(stat.mode & 0o7777) ?? 0) + 1);
  }
  const usual = counts.map((map, i) => {
    let best = i === 0 ? 0o644 : 0o755;
    for (const [mode, n] of map) if (n > (map.get(best) ?? 0)) best = mode;
    return best;
  }) as [number, number];
  const modes = files
    .filter(({ entry, stat }) => (stat.mode & 0o7777) !== usual[of(entry)])
    .map(({ entry, stat }): [Raw, number] => [entry.path, stat.mode & 0o7777]);
  return { modes, usualModes: usual };
}
