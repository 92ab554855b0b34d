/**
 * Files whose bytes on the disk are not the bytes in the repository although git finds them unchanged: line endings,
 * encodings, identifiers and filters. They have to travel, since another machine may convert otherwise; only what a filter
 * makes from a pointer that the remote has (large files) is left to that filter.
 */
import type { Clean, CleanFiles } from "./clean-files.ts";
import { Vanished } from "./digest.ts";
import { fixedEnv, OFF, git, type GitDirs, type Scratch } from "./git.ts";
import type { IndexEntry } from "./index-file.ts";
import type { TreeMemory } from "./memory.ts";
import { bytesOf, lstatRaw, type Raw, rawFrom, splitZ, stringPath } from "./raw.ts";
import type { Refs, TreeConfig } from "./read-repository.ts";
import { readIfThere, type ScanContext, stampOf } from "./scan-context.ts";

interface Input {
  readonly dirs: GitDirs;
  readonly scratch: Scratch;
  readonly memory: TreeMemory;
  readonly config: TreeConfig;
  readonly refs: Refs;
  readonly objectFormat: "sha1" | "sha256";
  readonly others: readonly Raw[];
  readonly index: { readonly file: { readonly entries: readonly IndexEntry[] }; readonly stamp: string };
}
export async function convertedPaths(
  context: ScanContext,
  input: Input,
  clean: CleanFiles,
): Promise<{ carry: Clean[]; filtered: [Raw, number][] }> {
  const sources = attributeSources(context, input);
  if (sources === null) return { carry: [], filtered: [] };
  await learnSizes(context, input, clean);
  const special = sources.special ? await specialPaths(context, input, clean, sources.key) : new Set<Raw>();
  const differ: Clean[] = [];
  for (const one of clean.files()) {
    const size = context.memory.blobSizes.get(one.entry.oid);
    // A conversion of line endings only ever takes bytes away or adds some: with equal lengths it did nothing.
    if (size === one.size && !special.has(one.entry.path)) continue;
    if (size !== undefined && size !== one.size) differ.push(one);
    else if (!(await sameBytes(context, input, one))) differ.push(one);
  }
  const filtered = await fromRemote(context, input, differ);
  const left = new Set(filtered.map(([path]) => path));
  return { carry: differ.filter(({ entry }) => !left.has(entry.path)), filtered };
}

/** None: nothing converts. `special`: more than line endings may be converted. */
function attributeSources(context: ScanContext, input: Input): { special: boolean; key: string } | null {
  const { dirs, config } = input;
  const setting = (key: string): string | null =>
    config.value(key) ?? context.userConfig.findLast(([name]) => name === key)?.[1] ?? null;
  const autocrlf = (setting("core.autocrlf") ?? "false").toLowerCase();
  const texts: Buffer[] = [];
  let key = `${input.index.stamp} ${autocrlf} ${setting("core.eol")}`;
  const add = (path: Raw): void => {
    const text = readIfThere(path);
    if (!text || text.length === 0) return;
    texts.push(text);
    key += ` ${path} ${stampOf(path)}`;
  };
  for (const { path } of input.index.file.entries) if (isAttributes(path)) add(`${dirs.worktree}/${path}`);
  for (const path of input.others) if (isAttributes(path)) add(`${dirs.worktree}/${path}`);
  add(`${dirs.commonDir}/info/attributes`);
  const home = rawFrom(context.home);
  const file = setting("core.attributesfile");
  add(file === null ? `${home}/.config/git/attributes` : file.replace(/^~(?=\/)/, home));
  if (texts.length === 0 && (autocrlf === "false" || autocrlf === "no" || autocrlf === "0")) return null;
  const special = texts.some((text) => /filter|working-tree-encoding|ident/.test(text.toString("latin1")));
  return { special, key };
}

const isAttributes = (path: Raw): boolean => path === ".gitattributes" || path.endsWith("/.gitattributes");

async function learnSizes(context: ScanContext, input: Input, clean: CleanFiles): Promise<void> {
  const { blobSizes } = context.memory;
  const ask = new Set<string>();
  for (const { entry } of clean.files()) {
    const { oid } = entry;
    if (!blobSizes.has(oid)) ask.add(oid);
  }
  if (ask.size === 0) return;
  // Without its promisor the scratch repository fetches nothing: a blob that is not here stays unknown.
  const output = await git(["cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer"], {
    env: input.scratch.env,
    cwd: input.scratch.dir,
    input: `${[...ask].join("\n")}\n`,
    signal: context.signal,
  });
  for (const line of output.toString("latin1").split("\n")) {
    const [oid, size] = line.split(" ");
    if (oid && size && /^[0-9]+$/.test(size)) blobSizes.set(oid, Number(size));
  }
}

/** Paths with a filter, an encoding or an identifier. */
async function specialPaths(context: ScanContext, input: Input, clean: CleanFiles, key: string): Promise<Set<Raw>> {
  if (input.memory.attributes?.key === key) return input.memory.attributes.special;
  const special = new Set<Raw>();
  for (const [path, attribute, value] of await attributesOf(
    context,
    input,
    ["filter", "working-tree-encoding", "ident"],
    clean.files(),
  ))
    if (attribute !== "" && value !== "unspecified" && value !== "unset") special.add(path);
  input.memory.attributes = { key, special };
  return special;
}

async function attributesOf(
  context: ScanContext,
  input: Input,
  names: readonly string[],
  files: Iterable<Clean>,
): Promise<[Raw, Raw, Raw][]> {
  let paths = "";
  for (const { entry } of files) paths += `${entry.path}\0`;
  if (paths === "") return [];
  const file = context.userConfig.findLast(([name]) => name === "core.attributesfile")?.[1];
  const output = await git(
    [...OFF, ...(file ? ["-c", `core.attributesFile=${file}`] : []), "check-attr", "-z", "--stdin", ...names],
    {
      env: {
        ...fixedEnv(context.home),
        GIT_DIR: stringPath(input.dirs.gitDir),
        GIT_WORK_TREE: stringPath(input.dirs.worktree),
      },
      cwd: input.dirs.worktree,
      input: bytesOf(paths),
      signal: context.signal,
    },
  );
  const pieces = splitZ(output);
  const rows: [Raw, Raw, Raw][] = [];
  for (let i = 0; i + 2 < pieces.length; i += 3) rows.push([pieces[i] ?? "", pieces[i + 1] ?? "", pieces[i + 2] ?? ""]);
  return rows;
}

async function sameBytes(context: ScanContext, input: Input, { entry }: Clean): Promise<boolean> {
  const at = `${input.dirs.worktree}/${entry.path}`;
  try {
    const stat = lstatRaw(at);
    if (!stat) return true;
    return (await context.memory.contents.digest(at, stat, input.objectFormat)).oid === entry.oid;
  } catch (error) {
    if (error instanceof Vanished) return true;
    throw error;
  }
}

/** Of the files that differ: those with a filter whose blob is the one in the remote's branch, so that its server has it. */
async function fromRemote(context: ScanContext, input: Input, differ: readonly Clean[]): Promise<[Raw, number][]> {
  const given = differ.filter(
    ({ entry, size }) => context.filtered.get(`${input.dirs.worktree}/${entry.path}`) === size,
  );
  if (given.length > 0) return given.map(({ entry, size }): [Raw, number] => [entry.path, size]);
  const base = input.refs.remoteHead === null ? undefined : input.refs.remotes.get(input.refs.remoteHead);
  if (base === undefined || differ.length === 0) return [];
  const withFilter = new Set<Raw>();
  for (const [path, , value] of await attributesOf(context, input, ["filter"], differ))
    if (!["unspecified", "unset", "set", ""].includes(value)) withFilter.add(path);
  if (withFilter.size === 0) return [];
  const tree = await git(["ls-tree", "-r", "-z", "--full-tree", base], {
    env: input.scratch.env,
    cwd: input.scratch.dir,
    signal: context.signal,
  });
  const there = new Map<Raw, string>();
  for (const line of splitZ(tree)) {
    const tab = line.indexOf("\t");
    there.set(line.slice(tab + 1), line.slice(0, tab).split(" ")[2] ?? "");
  }
  const left: [Raw, number][] = [];
  for (const { entry, size, mtimeMs } of differ) {
    if (!withFilter.has(entry.path) || there.get(entry.path) !== entry.oid) continue;
    // Only what git's own index calls unchanged now: a check by the filter would run it.
    const now = lstatRaw(`${input.dirs.worktree}/${entry.path}`);
    if (now && now.mtimeMs === mtimeMs && now.size === size) left.push([entry.path, size]);
  }
  return left;
}
