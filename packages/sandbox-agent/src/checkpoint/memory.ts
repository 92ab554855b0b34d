/** What the engine remembers between calls on one workspace, in the process only. Losing it costs time, never exactness. */
import type { ConversationRecord } from "./conversation.ts";
import { Contents } from "./content.ts";
import type { Scratch } from "./git.ts";
import type { ConfigEntry } from "./git-config.ts";
import type { IndexFile } from "./index-file.ts";
import type { Raw } from "./raw.ts";

export interface Memory {
  readonly contents: Contents;
  /** By git folder. */
  readonly trees: Map<Raw, TreeMemory>;
  /** Sizes of blobs, by id. */
  readonly blobSizes: Map<string, number>;
  conversations: ConversationRecord | null;
  userConfig: { stamp: string; entries: ConfigEntry[] } | null;
  notKept: { stamp: string; at: number; entries: { path: string; size: number }[] } | null;
  /** What commits say, which never changes: by HEAD and the commits that it is compared with. */
  mergeBase: { key: string; base: string | null } | null;
  log: { key: string; commits: readonly ReviewCommit[] } | null;
}

export interface ReviewCommit {
  readonly commit: string;
  readonly author: string;
  readonly date: string;
  readonly subject: string;
}

export interface TreeMemory {
  scratch: { key: string; scratch: Scratch } | null;
  index: { stamp: string; file: IndexFile; mtimeMs: number; expanded: Raw | null } | null;
  diff: { key: string; changes: HeadChange[] } | null;
  config: { stamp: string; local: ConfigEntry[]; worktree: ConfigEntry[] } | null;
  attributes: { key: string; special: Set<Raw> } | null;
  /** What `for-each-ref` said when the files of the refs were as stamped. */
  refs: { stamp: string; listed: ListedRefs } | null;
}

export interface ListedRefs {
  readonly output: Buffer;
  /** Names that git warns of and passes over. */
  readonly ignored: readonly Raw[];
}

/** A path at which the index differs from HEAD. */
export interface HeadChange {
  readonly path: Raw;
  readonly headMode: number;
  readonly headOid: string;
  readonly indexOid: string;
  readonly status: string;
}

export const createMemory = (): Memory => ({
  contents: new Contents(),
  trees: new Map(),
  blobSizes: new Map(),
  conversations: null,
  userConfig: null,
  notKept: null,
  mergeBase: null,
  log: null,
});

export function treeMemory(memory: Memory, gitDir: Raw): TreeMemory {
  let known = memory.trees.get(gitDir);
  if (!known) {
    known = { scratch: null, index: null, diff: null, config: null, attributes: null, refs: null };
    memory.trees.set(gitDir, known);
  }
  return known;
}
