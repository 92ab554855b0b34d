/**
 * What a workspace is made of, apart from its ignored files: the same shape whether it was read from a disk or from a
 * checkpoint's parts, so that one function fingerprints both.
 */
import type { Raw } from "./raw.ts";

export interface FileState {
  readonly kind: "file" | "symlink";
  /** Permission bits; 0o777 for a link. */
  readonly mode: number;
  readonly size: number;
  /** Hex; of the content, or of a link's target. */
  readonly sha256: string;
  readonly link?: Raw;
}
export type Files = Map<Raw, FileState>;

/**
 * Where files lie: `worktree` and `untracked` below the repo, `worktree.parent` and `worktree.home` for linked working trees
 * beside it and in the home (tracked and untracked alike).
 */
export const CHANNELS = ["worktree", "untracked", "worktree.parent", "worktree.home"] as const;
export type Channel = (typeof CHANNELS)[number];
export type Channels = Record<Channel, Files>;
export const noFiles = (): Channels => ({
  worktree: new Map(),
  untracked: new Map(),
  "worktree.parent": new Map(),
  "worktree.home": new Map(),
});

export type Root = "repo" | "parent" | "home";

export interface IndexDelta {
  /** Entries of every path at which the index differs from HEAD. */
  readonly entries: readonly { path: Raw; stage: number; mode: number; oid: string; intentToAdd: boolean }[];
  /** Paths of HEAD that are not in the index. */
  readonly removed: readonly Raw[];
  /** Runs [first, count] over all entries in their order. */
  readonly assumeUnchanged: readonly (readonly [number, number])[];
  readonly skipWorktree: readonly (readonly [number, number])[];
  readonly count: number;
}

/** One working tree: the main one, a nested repository (submodules too), or a linked working tree. */
export interface TreeState {
  readonly kind: "main" | "nested" | "linked";
  readonly root: Root;
  /** Below the root; empty for the main one. */
  readonly path: Raw;
  /** Which tree's repository it belongs to, by place in the list; itself unless it is linked. */
  readonly owner: number;
  /** Linked: the name under `.git/worktrees`. */
  readonly id: Raw | null;
  /** Nested, with its git folder elsewhere below the repo (submodules): where, relative to the repo. */
  readonly gitDir: Raw | null;
  readonly objectFormat: "sha1" | "sha256";
  /** HEAD's branch in full; none: detached. */
  readonly branch: Raw | null;
  /** None: unborn. */
  readonly head: string | null;
  /** Local refs, sorted; for a linked tree only those of its own. Without `refs/hangar/`, and for the main one without `refs/remotes/`. */
  readonly refs: readonly (readonly [Raw, string])[];
  readonly symrefs: readonly (readonly [Raw, Raw])[];
  readonly index: IndexDelta;
  /** Tracked paths that are not on the disk. */
  readonly deleted: readonly Raw[];
  /** Permissions of tracked files that are as in HEAD otherwise, where they are not the usual ones. */
  readonly modes: readonly (readonly [Raw, number])[];
  /** The usual permissions: of a plain and of an executable file. */
  readonly usualModes: readonly [number, number];
  /** Unchanged files whose bytes a filter of the image makes from what the remote has (large-file pointers): path and size. */
  readonly filtered: readonly (readonly [Raw, number])[];
  /** Files of the git folder: operations in progress, the stash's log, excludes, sparse patterns. */
  readonly gitFiles: ReadonlyMap<Raw, Buffer>;
  /** [scope, key, value], by the allow-list. */
  readonly config: readonly (readonly ["local" | "worktree", Raw, Raw])[];
  /** The working tree's folder is not there. */
  readonly missing: boolean;
}

export interface WorkspaceState {
  /** The main one first; an owner before what it owns; a folder before what lies in it. */
  readonly trees: readonly TreeState[];
  readonly files: Channels;
  /** Digest over every conversation's name, mode and bytes (`conversationDigest`). */
  readonly conversations: string;
}

/** The channel of a tree's tracked and untracked files. */
export function channelsOf(root: Root): { tracked: Channel; untracked: Channel } {
  if (root === "repo") return { tracked: "worktree", untracked: "untracked" };
  const one = root === "parent" ? "worktree.parent" : "worktree.home";
  return { tracked: one, untracked: one };
}
