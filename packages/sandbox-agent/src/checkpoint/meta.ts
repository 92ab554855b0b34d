/** `meta.json`: what a checkpoint is and which objects hold it. Written last; docs/checkpoint-format.md. */
import { z } from "zod";
import {
  CheckpointId,
  CheckpointReason,
  HangarError,
  LeftOut,
  ObjectId,
  Part,
  PartFile,
  SessionId,
  Sha256,
  TurnId,
} from "@hangar/shared";
import { ConversationRecord, encodeRecord } from "./conversation-record.ts";

export const META_VERSION = 1;
/** The meta's object name; `.age` is appended where it is sealed. */
export const META_FILE = "meta.json";
/** Longest meta that is read, bytes. */
export const MAX_META_BYTES = 64 * 1024 * 1024;

export const Meta = z.strictObject({
  version: z.literal(META_VERSION),
  checkpoint: CheckpointId,
  /** None: taken by the offline command. */
  session: SessionId.nullable(),
  generation: z.number().int().nonnegative(),
  parent: CheckpointId.nullable(),
  /** ISO 8601, UTC. */
  ts: z.iso.datetime(),
  reason: CheckpointReason,
  /** HEAD's branch in full (`refs/heads/x`); none: detached. */
  branch: z.string().max(4096).nullable(),
  /** None: an unborn branch. */
  head: ObjectId.nullable(),
  /** The newest commit of HEAD's history that the bundle leaves to the remote; none: the bundle is whole. */
  base: ObjectId.nullable(),
  /** The URL of `origin` without credentials. */
  remote: z.string().max(4096).nullable(),
  object_format: z.enum(["sha1", "sha256"]),
  harness: z.string(),
  harness_session: z.string().max(200).nullable(),
  turn: TurnId.nullable(),
  /** Absolute paths at which the checkpoint was taken. */
  cwd: z.string(),
  home: z.string(),
  fingerprint: Sha256,
  /** In the order a restore reads them: a later part of the same kind goes over an earlier one. */
  parts: z.array(Part).max(4096),
  /** Every conversation file, and which parts hold its bytes. */
  conversations: ConversationRecord,
  left_out: z.array(LeftOut).max(100_000),
  not_kept: z.array(LeftOut).max(1000),
  paired: z.boolean(),
  proved: z.boolean(),
  warnings: z.array(z.string().max(2000)).max(1000),
});
export type Meta = z.infer<typeof Meta>;

/** JSON with a line a value, so that it can be read and taken apart by hand. */
export const serializeMeta = (meta: Meta): Buffer => Buffer.from(`${JSON.stringify(encodeMeta(meta), null, 1)}\n`);

export const encodeMeta = (meta: Meta): z.input<typeof Meta> => ({
  ...meta,
  conversations: encodeRecord(meta.conversations),
});

const Version = z.object({ version: z.number().int() });

/** The meta object as stored. */
export const MetaObject = z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 });
export type MetaObject = z.infer<typeof MetaObject>;

/** Throws `checkpoint_invalid` naming what is wrong. */
export function parseMeta(bytes: Uint8Array): Meta {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new HangarError("checkpoint_invalid", "meta.json is not JSON: the checkpoint is damaged", { cause });
  }
  const version = Version.safeParse(json);
  if (version.success && version.data.version > META_VERSION)
    throw new HangarError(
      "checkpoint_invalid",
      `The checkpoint has format ${version.data.version}, newer than this Hangar knows (${META_VERSION}): use a newer Hangar`,
    );
  const parsed = Meta.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new HangarError(
      "checkpoint_invalid",
      `meta.json is not valid: ${[...(issue?.path ?? []), ""].join(".").replace(/\.$/, ": ")}${issue?.message ?? ""}`,
    );
  }
  const files = new Set<string>();
  for (const part of parsed.data.parts) {
    const key = `${part.from ?? ""}/${part.file}`;
    if (files.has(key)) throw new HangarError("checkpoint_invalid", `meta.json names ${part.file} twice`);
    files.add(key);
  }
  return parsed.data;
}
