/** What a checkpoint's meta says of its conversations: enough to send only what is new, and to check what was restored. */
import { createHash } from "node:crypto";
import { Sha256 } from "@hangar/shared";
import { z } from "zod";
import { decodePath } from "./path-text.ts";

const count = z.number().int().nonnegative();

/** Bytes `offset` to `offset + size` of a file, and the part whose archive holds them as one member. */
export const RecordedSegment = z.strictObject({ offset: count, size: count, part: z.string().min(1).max(200) });
export type RecordedSegment = z.infer<typeof RecordedSegment>;

/** Digests in hex; in JSON one text of 43 base64url characters each, since long conversations have many. */
const encodeDigests = (digests: readonly string[]): string =>
  digests.map((digest) => Buffer.from(digest, "hex").toString("base64url")).join("");
const Digests = z.codec(z.string().regex(/^(?:[A-Za-z0-9_-]{43})*$/), z.array(Sha256), {
  decode: (text) => (text.match(/.{43}/g) ?? []).map((one) => Buffer.from(one, "base64url").toString("hex")),
  encode: encodeDigests,
});

export const RecordedFile = z.strictObject({
  path: z.string().min(1),
  kind: z.enum(["file", "symlink"]),
  mode: count,
  size: count,
  link: z.string().nullable(),
  /** None: the file was being written, and must be looked at again. */
  stamp: z.string().nullable(),
  /** SHA-256 of each `PIECE` of the file's bytes, the last one shorter; whatever the segments are. */
  pieces: Digests,
  /** In order and without a gap; one at least, be it empty. */
  segments: z.array(RecordedSegment).min(1),
});
export type RecordedFile = z.infer<typeof RecordedFile>;

export const ConversationRecord = z.strictObject({
  /** Milliseconds since 1970 at which the files were looked at. */
  looked_at: count,
  /** The parts that hold segments, oldest first: the order in which they are unpacked. */
  parts: z.array(z.string()),
  files: z.array(RecordedFile),
});
export type ConversationRecord = z.infer<typeof ConversationRecord>;

/** As it is in JSON. What z.encode gives, without its look at every value, which the engine made itself. */
export const encodeRecord = (record: ConversationRecord): z.input<typeof ConversationRecord> => ({
  ...record,
  files: record.files.map((file) => Object.assign({}, file, { pieces: encodeDigests(file.pieces) })),
});

/** One digest of names, kinds, modes, links and bytes: the same for the same conversations, however they came to be sent. */
export function conversationDigest(record: ConversationRecord): string {
  const hash = createHash("sha256");
  for (const { path, kind, mode, size, link, pieces } of sorted(record.files))
    hash.update(`${JSON.stringify([path, kind, mode, size, link, pieces])}\n`);
  return hash.digest("hex");
}

const sorted = (files: readonly RecordedFile[]): RecordedFile[] =>
  [...files].sort((a, b) => Buffer.compare(decodePath(a.path), decodePath(b.path)));
