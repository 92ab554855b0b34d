/** A checkpoint: what is recorded of one (spec §5.2; docs/checkpoint-format.md). */
import { z } from "zod";
import { CheckpointId, SessionId, TurnId } from "./ids.ts";

export const CheckpointReason = z.enum(["turn", "suspend", "destroy", "manual", "interval"]);
export type CheckpointReason = z.infer<typeof CheckpointReason>;

export const Sha256 = z.string().regex(/^[0-9a-f]{64}$/);
/** A git object id: SHA-1 or SHA-256. */
export const ObjectId = z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/);

/** One stored object's name inside `sessions/<session>/<checkpoint>/`: no folders, no dot at the start. */
export const PartFile = z.string().regex(/^[a-z0-9][a-z0-9._-]{0,79}$/);

/** One part as it lies in the store. `size` and `sha256` are of the stored (sealed) bytes. */
export const Part = z.strictObject({
  /** What it is: agent, repo.bundle, wip.patch, worktree, untracked, git-state, review.json; segments add a suffix: agent.2 */
  name: z.string().min(1).max(80),
  file: PartFile,
  size: z.number().int().nonnegative(),
  sha256: Sha256,
  /** The checkpoint of the same session whose folder holds the object; absent: this one. */
  from: CheckpointId.optional(),
});
export type Part = z.infer<typeof Part>;

export const LeftOut = z.strictObject({ path: z.string(), size: z.number().int().nonnegative() });
export type LeftOut = z.infer<typeof LeftOut>;

/** What the coordinator keeps of a checkpoint in the session's record. Holds no content. */
export const Checkpoint = z.strictObject({
  id: CheckpointId,
  /** ISO 8601, UTC. */
  ts: z.iso.datetime(),
  reason: CheckpointReason,
  generation: z.number().int().nonnegative(),
  parent: CheckpointId.nullable(),
  /** None: an unborn branch. */
  head: ObjectId.nullable(),
  /** The newest commit of HEAD's history that the remote has; none when it has none of it. */
  base: ObjectId.nullable(),
  branch: z.string().nullable(),
  harness: z.string(),
  harness_session: z.string().nullable(),
  turn_id: TurnId.nullable(),
  fingerprint: Sha256,
  parts: z.array(Part).max(4096),
  /** Bytes of all parts, and of those that this checkpoint added to the store. */
  bytes: z.number().int().nonnegative(),
  new_bytes: z.number().int().nonnegative(),
  /** False: the tree changed while it was copied, three times over. */
  paired: z.boolean(),
  /** False: made under SIGTERM, without the rebuild that proves it. */
  proved: z.boolean(),
  left_out: z.array(LeftOut).max(1000),
  not_kept: z.array(LeftOut).max(1000),
  warnings: z.array(z.string().max(2000)).max(200),
  meta_sha256: Sha256,
  meta_size: z.number().int().nonnegative(),
  /** Set when a restore failed or did not verify: why. */
  bad: z.string().max(2000).nullable(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** The commit marker `commit.json`, written by the coordinator; a checkpoint without a valid one does not exist. */
export const CommitMarker = z.strictObject({
  version: z.literal(1),
  session: SessionId,
  checkpoint: CheckpointId,
  generation: z.number().int().nonnegative(),
  nonce: z.string().regex(/^[0-9a-f]{32}$/),
  committed_at: z.iso.datetime(),
  meta: z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 }),
  parts: z.array(Part).max(4096),
  /** The session's record and this checkpoint's, sealed with age to the vault, base64: what Redis is rebuilt from. */
  record: z.string(),
  /** HMAC-SHA256 over the canonical JSON of all the above, hex. */
  mac: Sha256,
});
export type CommitMarker = z.infer<typeof CommitMarker>;
