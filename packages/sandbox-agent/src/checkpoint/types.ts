/** What the checkpoint engine takes and gives; `engine.ts` is the face that others import. */
import type { Readable } from "node:stream";
import type { CheckpointReason, LeftOut, Part } from "@hangar/shared";
import type { ConversationRoot } from "./conversation-scan.ts";
import type { Memory } from "./memory.ts";
import type { Meta, MetaObject } from "./meta.ts";
import type { ParentState } from "./parent.ts";

export interface Workspace {
  /** The checked-out repository, absolute. */
  readonly repo: string;
  /** The sandbox's home, absolute: conversations and the git configuration for network access are there. */
  readonly home: string;
  readonly harness: string;
  /** Ignored files that travel all the same, as git pathspecs relative to the repo. */
  readonly keepIgnored: readonly string[];
  /** A folder of the caller for temporary files, outside repo and home; the same filesystem where possible. */
  readonly scratch: string;
  /** What is remembered between calls to make them fast; one per workspace, from `createMemory()`. Losing it costs time only. */
  readonly memory?: Memory;
  /** The remote's branch that the environment clones; taken as long-lived like the remote's default branch. */
  readonly baseBranch?: string | null;
  /** Environment for git's network access (credential helpers, proxies, ssh agent); default: PATH and HOME only. */
  /** Where conversations are, below the home; none: where those of the known harnesses are. */
  readonly conversationRoots?: readonly ConversationRoot[];
  readonly networkEnv?: Readonly<Record<string, string>>;
}

export interface Limits {
  /** Bound of all untracked files together, bytes; the largest are left out until the rest fits. */
  readonly maxUntrackedBytes: number;
  /** A part over this gets a warning. */
  readonly maxPartBytes: number;
}
export const DEFAULT_LIMITS: Limits = { maxUntrackedBytes: 50 * 1024 * 1024, maxPartBytes: 100 * 1024 * 1024 };

export interface CreateOptions {
  /** The new checkpoint's id. */
  readonly checkpoint: string;
  readonly session: string | null;
  readonly generation: number;
  readonly reason: CheckpointReason;
  /** What the newest committed checkpoint of this workspace left behind; none: everything is sent. */
  readonly parent: ParentState | null;
  /** Make nothing when the fingerprint equals the parent's. */
  readonly ifChanged: boolean;
  /** age recipients that every object is sealed to; none: objects are plain. */
  readonly recipients: readonly string[] | null;
  readonly limits: Limits;
  readonly harnessSession: string | null;
  readonly turn: string | null;
  /** Nothing writes to the workspace now (suspend): one look is enough, and a change is still seen. */
  readonly quiesced: boolean;
  /** False under SIGTERM: parts are not rebuilt, and the meta says `proved: false`. */
  readonly prove: boolean;
  /** Referenced parts lie in the same folder (offline command): `from` is left out of the meta. */
  readonly standalone?: boolean;
  readonly signal?: AbortSignal;
  /** An empty or absent folder for the new objects; the caller removes it. */
  readonly out: string;
}

export interface NewObject {
  readonly file: string;
  readonly size: number;
  readonly sha256: string;
  /** Where it lies now, absolute. */
  readonly path: string;
}

export interface MadeCheckpoint {
  /** The folder of the new objects, meta included. */
  readonly dir: string;
  readonly meta: Meta;
  readonly metaObject: MetaObject;
  /** New part objects; the meta is not among them. */
  readonly objects: readonly NewObject[];
  /** New and referenced parts, as in the meta. */
  readonly parts: readonly Part[];
  /** Pass this as `parent` next time, once the checkpoint is committed. */
  readonly next: ParentState;
  readonly report: SnapshotReport;
}

export type CreateResult =
  | { readonly outcome: "unchanged"; readonly checkpoint: string; readonly fingerprint: string }
  | { readonly outcome: "made"; readonly made: MadeCheckpoint };

/** What `hangar-agent snapshot` prints. */
export interface SnapshotReport {
  readonly outcome: "made" | "unchanged";
  readonly checkpoint: string;
  readonly fingerprint: string;
  readonly parts: readonly Part[];
  /** Bytes of all parts and the meta; of those that this checkpoint made. */
  readonly bytes: number;
  readonly new_bytes: number;
  readonly left_out: readonly LeftOut[];
  readonly not_kept: readonly LeftOut[];
  readonly warnings: readonly string[];
  readonly paired: boolean;
  readonly proved: boolean;
  /** Seconds by phase: scan, write, prove, seal… and total. */
  readonly seconds: Readonly<Record<string, number>>;
}

/** The stored bytes of a part, as a stream, or where they lie as a file already. Called at most once per part. */
export type PartSource = (part: Part) => Promise<Readable | { path: string }> | Readable | { path: string };

export interface RestoreOptions {
  /** The stored bytes of the meta (sealed or plain), already checked against the commit marker where there is one. */
  readonly meta: Uint8Array;
  readonly source: PartSource;
  /** age identities; none: the objects are plain. */
  readonly identities: readonly string[] | null;
  /** Also over a target with commits that its remote lacks. */
  readonly force: boolean;
  /**
   * The clone, where it is still being made: what needs no repository is done beside it. Where it fails, nothing is put in
   * place, and its error is thrown.
   */
  readonly cloned?: Promise<unknown>;
  readonly signal?: AbortSignal;
}

export interface RestoreReport {
  readonly checkpoint: string;
  readonly fingerprint: string;
  /** The restored workspace's fingerprint equals the checkpoint's. */
  readonly verified: boolean;
  /** What is not as the checkpoint says, for people: `file src/a.txt: content`. Empty when verified. */
  readonly differs: readonly string[];
  readonly left_out: readonly LeftOut[];
  readonly not_kept: readonly LeftOut[];
  readonly warnings: readonly string[];
  readonly head: string | null;
  readonly branch: string | null;
  readonly bytes: number;
  readonly seconds: Readonly<Record<string, number>>;
}

export interface Restored {
  readonly meta: Meta;
  readonly report: RestoreReport;
  /** The parent for this workspace's next checkpoint; none when the restore did not verify. */
  readonly next: ParentState | null;
}
