/** A working tree's files: which are not as in HEAD, which are untracked, which are gone. */
import { readdirSync, type Stats } from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";
import { inParallel } from "../parallel.ts";
import { linkTarget } from "./content.ts";
import { Vanished } from "./digest.ts";
import { CleanFiles } from "./clean-files.ts";
import { convertedPaths } from "./converted.ts";
import { findGitDirs, git, type GitDirs, type Scratch } from "./git.ts";
import type { IndexEntry } from "./index-file.ts";
import type { HeadChange, TreeMemory } from "./memory.ts";
import { byBytes, fsPath, joinRaw, lstatRaw, parentRaw, type Raw, rawOf, splitZ, stringPath, toText } from "./raw.ts";
import type { TreeIndex } from "./read-index.ts";
import type { Refs, TreeConfig } from "./read-repository.ts";
import type { ScanContext } from "./scan-context.ts";
import type { Files, FileState } from "./state.ts";

const GITLINK = 0o160000;
const SYMLINK = 0o120000;

/** Untracked names as git lists them; a folder with a repository of its own ends in `/`. */
export async function listOthers(
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
  /** Asked for, and listed while files are looked at. */
  readonly changes: Promise<readonly HeadChange[]>;
  readonly others: Promise<readonly Raw[]>;
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

export async function readFiles(context: ScanContext, input: FilesInput): Promise<FoundFiles> {
  const { dirs, index, objectFormat } = input;
  const found = { tracked: new Map(), untracked: new Map(), nested: [] as Raw[], deleted: [] as Raw[] };
  const folders = new RealFolders(dirs.worktree);
  const read = async (path: Raw, stat: Stats | undefined, into: Files): Promise<void> => {
    const state = stat && (await fileState(context, dirs, path, stat));
    if (state) into.set(path, state);
  };
  const readAgain = async (path: Raw): Promise<void> =>
    await read(path, lstatRaw(`${dirs.worktree}/${path}`), found.tracked);

  // What git lists is asked for already: it works while each file is looked at, and so do the threads that read large ones.
  const untracked = input.others.then((others) => readUntracked(context, dirs, others, found));
  untracked.catch(() => {});
  const { entries } = index.file;
  const clean = new CleanFiles(entries);
  const unlike: { place: number; entry: IndexEntry; stat: Stats }[] = [];
  let previous = "";
  for (let place = 0; place < entries.length; place++) {
    const entry = entries[place];
    if (!entry) continue;
    if (place % 2000 === 1999) {
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
    const whole = entry.stage === 0 && !entry.intentToAdd && !entry.skipWorktree && sameType(entry, stat);
    if (whole && (looksUnchanged(entry, stat, index.mtimeMs) || context.filtered.get(at) === stat.size))
      clean.add(place, stat);
    else unlike.push({ place, entry, stat });
  }

  const changes = await input.changes;
  const changed = new Set(changes.map((change) => change.path));
  if (changed.size > 0)
    for (const place of clean.places()) {
      const { path } = clean.at(place).entry;
      if (!changed.has(path)) continue;
      clean.delete(place);
      await readAgain(path);
    }
  for (const { place, entry, stat } of unlike) {
    const whole = entry.stage === 0 && !entry.intentToAdd && !entry.skipWorktree && !changed.has(entry.path);
    const isBlob =
      whole &&
      sameType(entry, stat) &&
      (await oidOf(context, `${dirs.worktree}/${entry.path}`, stat, objectFormat)) === entry.oid;
    if (isBlob) clean.add(place, stat);
    else await read(entry.path, stat, found.tracked);
  }

  const others = await input.others;
  const converted = await convertedPaths(context, { ...input, others }, clean);
  for (const { place, entry } of converted.carry) {
    clean.delete(place);
    await readAgain(entry.path);
  }

  await untracked;
  // Out of the index and ignored now, but a file of HEAD: it is part of the work all the same.
  for (const path of outOfIndex(changes, entries, others)) {
    const stat = folders.real(parentRaw(path)) ? lstatRaw(`${dirs.worktree}/${path}`) : undefined;
    if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(path, stat, found.tracked);
  }
  found.nested.sort(byBytes);
  return { ...found, ...permissions(clean), filtered: converted.filtered };
}

/** What git lists as untracked; large files two at a time. */
async function readUntracked(
  context: ScanContext,
  dirs: GitDirs,
  others: readonly Raw[],
  into: { readonly untracked: Files; readonly nested: Raw[] },
): Promise<void> {
  const names = [...new Set(others)];
  // In git's order, whichever is read first.
  const states = names.map((): Map<Raw, FileState> => new Map());
  const nested: Raw[] = [];
  const signal = context.signal ?? new AbortController().signal;
  await inParallel(2, [...names.entries()], signal, async ([i, name]) => {
    const read = async (path: Raw, stat: Stats): Promise<void> => {
      const state = await fileState(context, dirs, path, stat);
      if (state) states[i]?.set(path, state);
    };
    if (name.endsWith("/")) {
      const path = name.slice(0, -1);
      if (findGitDirs(`${dirs.worktree}/${path}`)) nested.push(path);
      else await readBroken(context, dirs, path, read);
      return;
    }
    const stat = lstatRaw(`${dirs.worktree}/${name}`);
    if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(name, stat);
  });
  for (const some of states) for (const [path, state] of some) into.untracked.set(path, state);
  for (const path of nested) if (!into.nested.includes(path)) into.nested.push(path);
}

/** A folder that git takes for a repository although it has none that works: its files travel as plain ones. */
async function readBroken(
  context: ScanContext,
  dirs: GitDirs,
  path: Raw,
  read: (path: Raw, stat: Stats) => Promise<void>,
): Promise<void> {
  context.warnings.add(
    `${toText(path)} looks like a repository but has no git folder that works: its files are kept, its .git is not`,
  );
  for (const name of readdirSync(fsPath(`${dirs.worktree}/${path}`), { encoding: "latin1" })) {
    if (name === ".git") continue;
    const child = joinRaw(path, name);
    const stat = lstatRaw(`${dirs.worktree}/${child}`);
    if (stat?.isDirectory()) await readBroken(context, dirs, child, read);
    else if (stat && (stat.isFile() || stat.isSymbolicLink())) await read(child, stat);
  }
}

/** None: it went away, or it cannot be read, which is noted. */
async function fileState(context: ScanContext, dirs: GitDirs, path: Raw, stat: Stats): Promise<FileState | null> {
  const at = `${dirs.worktree}/${path}`;
  try {
    const digest = await context.memory.contents.digest(at, stat, null);
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
export function looksUnchanged(entry: IndexEntry, stat: Stats, indexMtimeMs: number, racy = RACY): boolean {
  return (
    entry.size === stat.size % 2 ** 32 &&
    entry.ino === stat.ino % 2 ** 32 &&
    near(entry.mtime, stat.mtimeMs) &&
    near(entry.ctime, stat.ctimeMs) &&
    stat.mtimeMs < indexMtimeMs - racy
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

/** Files of HEAD that neither the index has nor git lists. */
function outOfIndex(changes: readonly HeadChange[], entries: readonly IndexEntry[], others: readonly Raw[]): Set<Raw> {
  const ofHead = changes.filter(({ headMode }) => headMode !== 0 && headMode !== GITLINK);
  const paths = new Set(ofHead.map(({ path }) => path));
  if (paths.size === 0) return paths;
  for (const path of others) paths.delete(path);
  for (const { path } of entries) paths.delete(path);
  return paths;
}

/** The commonest permissions of each kind, and the files that have others. */
function permissions(clean: CleanFiles): {
  modes: [Raw, number][];
  usualModes: [number, number];
} {
  const counts = [new Map<number, number>(), new Map<number, number>()] as const;
  const of = (entry: IndexEntry): 0 | 1 => ((entry.mode & 0o100) === 0 ? 0 : 1);
  for (const { entry, mode } of clean.files()) {
    const map = counts[of(entry)];
    map.set(mode & 0o7777, (map.get(mode & 0o7777) ?? 0) + 1);
  }
  const usual = counts.map((map, i) => {
    let best = i === 0 ? 0o644 : 0o755;
    for (const [mode, n] of map) if (n > (map.get(best) ?? 0)) best = mode;
    return best;
  }) as [number, number];
  const modes: [Raw, number][] = [];
  for (const { entry, mode } of clean.files())
    if ((mode & 0o7777) !== usual[of(entry)]) modes.push([entry.path, mode & 0o7777]);
  return { modes, usualModes: usual };
}
