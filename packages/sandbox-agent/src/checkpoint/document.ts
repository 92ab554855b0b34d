/** The `git-state` part: all of a workspace's state that is not the content of files. JSON, git's own files beside it, and for people. */
import { z } from "zod";
import { HangarError, ObjectId } from "@hangar/shared";
import { byHand } from "./by-hand.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import { isGitFile } from "./git-files.ts";
import { bytesOf, fromText, type Raw, toText } from "./raw.ts";
import { CHANNELS, type Channel, type TreeState } from "./state.ts";

export const STATE_FILE = "state.json";
const MAX_STATE = 256 * 1024 * 1024;

/** A name: text, or `hex:` and digits where it is not UTF-8. */
const name = z.string().max(200_000);
const mode = z.number().int().min(0).max(0o7777);
const runs = z.array(z.tuple([z.number().int().nonnegative(), z.number().int().positive()]));

const Tree = z.strictObject({
  kind: z.enum(["main", "nested", "linked"]),
  root: z.enum(["repo", "parent", "home"]),
  path: name,
  owner: z.number().int().nonnegative(),
  id: name.nullable(),
  git_dir: name.nullable(),
  object_format: z.enum(["sha1", "sha256"]),
  branch: name.nullable(),
  head: ObjectId.nullable(),
  refs: z.array(z.tuple([name, ObjectId])),
  symrefs: z.array(z.tuple([name, name])),
  index: z.strictObject({
    /** [path, stage, mode, id, intent-to-add]. */
    entries: z.array(
      z.tuple([name, z.number().int().min(0).max(3), z.number().int().nonnegative(), ObjectId, z.boolean()]),
    ),
    removed: z.array(name),
    assume_unchanged: runs,
    skip_worktree: runs,
    count: z.number().int().nonnegative(),
  }),
  deleted: z.array(name),
  modes: z.array(z.tuple([name, mode])),
  usual_modes: z.tuple([mode, mode]),
  filtered: z.array(z.tuple([name, z.number().int().nonnegative()])),
  /** Names of git's own files, which lie at `trees/<n>/<name>` in this archive. */
  git_files: z.array(name),
  config: z.array(z.tuple([z.enum(["local", "worktree"]), name, z.string()])),
  missing: z.boolean(),
  /** Bundles of this repository's objects, oldest first: names of parts. */
  bundles: z.array(z.string().max(80)),
});

const Document = z.strictObject({
  version: z.literal(1),
  trees: z.array(Tree).min(1).max(1000),
  /** Archive parts of each place, oldest first, and the paths in them that are no more. */
  channels: z.array(
    z.strictObject({
      name: z.enum(CHANNELS),
      parts: z.array(z.string().max(80)),
      removed: z.array(name),
      /** Of all members of these parts together: no more comes out of them. */
      bytes: z.number().int().nonnegative(),
    }),
  ),
});

export interface StateDocument {
  readonly trees: readonly TreeState[];
  /** By place in `trees`; empty for a linked tree, whose objects are its owner's. */
  readonly bundles: readonly (readonly string[])[];
  readonly channels: Readonly<Record<Channel, ChannelParts>>;
}

export interface ChannelParts {
  readonly parts: readonly string[];
  readonly removed: readonly Raw[];
  readonly bytes: number;
}

export function encodeDocument(doc: StateDocument): ArchiveEntry[] {
  const trees = doc.trees.map((tree, n) => ({
    kind: tree.kind,
    root: tree.root,
    path: toText(tree.path),
    owner: tree.owner,
    id: tree.id === null ? null : toText(tree.id),
    git_dir: tree.gitDir === null ? null : toText(tree.gitDir),
    object_format: tree.objectFormat,
    branch: tree.branch === null ? null : toText(tree.branch),
    head: tree.head,
    refs: tree.refs.map(([ref, oid]) => [toText(ref), oid]),
    symrefs: tree.symrefs.map(([ref, target]) => [toText(ref), toText(target)]),
    index: {
      entries: tree.index.entries.map((e) => [toText(e.path), e.stage, e.mode, e.oid, e.intentToAdd]),
      removed: tree.index.removed.map(toText),
      assume_unchanged: tree.index.assumeUnchanged,
      skip_worktree: tree.index.skipWorktree,
      count: tree.index.count,
    },
    deleted: tree.deleted.map(toText),
    modes: tree.modes.map(([path, mode]) => [toText(path), mode]),
    usual_modes: tree.usualModes,
    filtered: tree.filtered.map(([path, size]) => [toText(path), size]),
    git_files: [...tree.gitFiles.keys()].map(toText),
    config: tree.config.map(([scope, key, value]) => [scope, toText(key), toText(value)]),
    missing: tree.missing,
    bundles: doc.bundles[n] ?? [],
  }));
  const channels = CHANNELS.map((channel) => ({
    name: channel,
    parts: doc.channels[channel].parts,
    removed: doc.channels[channel].removed.map(toText),
    bytes: doc.channels[channel].bytes,
  }));
  const json = Buffer.from(`${JSON.stringify({ version: 1, trees, channels }, null, 1)}\n`);
  const entries: ArchiveEntry[] = [member(STATE_FILE, json)];
  for (const [n, tree] of doc.trees.entries())
    for (const [file, bytes] of tree.gitFiles) entries.push(member(`trees/${n}/${file}`, bytes));
  for (const [file, bytes] of byHand(doc)) entries.push(member(file, bytes));
  return entries;
}

const member = (path: Raw, bytes: Buffer): ArchiveEntry => ({
  path: bytesOf(path),
  kind: "file",
  mode: 0o644,
  mtime: 0,
  size: bytes.length,
  content: { bytes },
});

/** @param members every file of the part by its name. Throws `checkpoint_invalid` for what no checkpoint says. */
export function decodeDocument(members: ReadonlyMap<Raw, Buffer>): StateDocument {
  const json = members.get(STATE_FILE);
  if (!json || json.length > MAX_STATE) throw invalid("it has no state.json");
  let value: unknown;
  try {
    value = JSON.parse(json.toString("utf8"));
  } catch {
    throw invalid("state.json is not JSON");
  }
  const parsed = Document.safeParse(value);
  if (!parsed.success)
    throw invalid(`state.json: ${parsed.error.issues[0]?.path.join(".")}: ${parsed.error.issues[0]?.message}`);
  const { data } = parsed;
  const trees = data.trees.map((tree, n): TreeState => {
    const gitFiles = new Map<Raw, Buffer>();
    for (const text of tree.git_files) {
      const file = fromText(text);
      const bytes = members.get(`trees/${n}/${file}`);
      if (!isGitFile(file) || !bytes) throw invalid(`a git file is not there or may not be: ${text.slice(0, 100)}`);
      gitFiles.set(file, bytes);
    }
    checkTree(tree, n, data.trees);
    return {
      kind: tree.kind,
      root: tree.root,
      path: checkedPath(tree.path, n === 0),
      owner: tree.owner,
      id: tree.id === null ? null : checkedPath(tree.id),
      gitDir: tree.git_dir === null ? null : checkedPath(tree.git_dir),
      objectFormat: tree.object_format,
      branch: tree.branch === null ? null : checkedRef(tree.branch),
      head: tree.head,
      refs: tree.refs.map(([ref, oid]) => [checkedRef(ref), oid]),
      symrefs: tree.symrefs.map(([ref, target]) => [checkedRef(ref), checkedRef(target)]),
      index: {
        entries: tree.index.entries.map(([path, stage, mode, oid, intentToAdd]) => ({
          path: checkedPath(path),
          stage,
          mode: checkedMode(mode),
          oid,
          intentToAdd,
        })),
        removed: tree.index.removed.map((path) => checkedPath(path)),
        assumeUnchanged: tree.index.assume_unchanged,
        skipWorktree: tree.index.skip_worktree,
        count: tree.index.count,
      },
      deleted: tree.deleted.map((path) => checkedPath(path)),
      modes: tree.modes.map(([path, mode]) => [checkedPath(path), mode]),
      usualModes: tree.usual_modes,
      filtered: tree.filtered.map(([path, size]) => [checkedPath(path), size]),
      gitFiles,
      config: tree.config.map(([scope, key, text]) => [scope, checkedKey(key), fromText(text)]),
      missing: tree.missing,
    };
  });
  const channels = {} as Record<Channel, ChannelParts>;
  for (const channel of CHANNELS) {
    const found = data.channels.filter((one) => one.name === channel);
    if (found.length > 1) throw invalid("state.json names a place twice");
    channels[channel] = {
      parts: found[0]?.parts ?? [],
      removed: (found[0]?.removed ?? []).map((path) => checkedPath(path)),
      bytes: found[0]?.bytes ?? 0,
    };
  }
  return { trees, bundles: data.trees.map((tree) => tree.bundles), channels };
}

type RawTree = z.infer<typeof Tree>;

function checkTree(tree: RawTree, n: number, all: readonly RawTree[]): void {
  const owner = all[tree.owner];
  if ((n === 0) !== (tree.kind === "main")) throw invalid("the main working tree is not the first");
  if (tree.kind === "main" && (tree.root !== "repo" || tree.path !== ""))
    throw invalid("the main working tree lies elsewhere");
  if (tree.kind === "linked") {
    if (!owner || owner.kind === "linked" || tree.owner >= n || tree.id === null || tree.id.includes("/"))
      throw invalid("a linked working tree belongs to no repository");
  } else if (tree.owner !== n || tree.id !== null) throw invalid("a repository is not its own");
  if (tree.git_dir !== null && (tree.kind !== "nested" || !/(?:^|\/)\.git\/modules\/./.test(tree.git_dir)))
    throw invalid("a git folder lies where none may be");
}

/** Relative, going nowhere else, and not into a git folder. */
function checkedPath(text: string, empty = false): Raw {
  const path = fromText(text);
  if (empty && path === "") return path;
  const bad = path.split("/").some((piece) => piece === "" || piece === "." || piece === "..");
  if (bad || path.includes("\0")) throw invalid(`a path leads elsewhere: ${JSON.stringify(text).slice(0, 200)}`);
  return path;
}

function checkedRef(text: string): Raw {
  const ref = fromText(text);
  // oxlint-disable-next-line no-control-regex -- control characters are what git refuses
  if (!ref.startsWith("refs/") || /[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\/\/|\.lock(?:\/|$)|(?:^|\/)\.|[./]$/.test(ref))
    throw invalid(`a ref's name is not one: ${JSON.stringify(text).slice(0, 200)}`);
  return ref;
}

function checkedMode(mode: number): number {
  if (![0o100644, 0o100755, 0o120000, 0o160000, 0o100664].includes(mode))
    throw invalid("an index entry's mode is not one");
  return mode;
}

function checkedKey(text: string): Raw {
  const key = fromText(text);
  if (!/^[a-z][a-z0-9-]*\.(?:[^\n\0]*\.)?[a-z][a-z0-9-]*$/is.test(key)) throw invalid("a configuration key is not one");
  return key;
}

const invalid = (why: string): HangarError =>
  new HangarError("checkpoint_invalid", `The checkpoint's git-state is damaged or forged: ${why}`);
