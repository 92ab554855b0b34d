/** What a checkpoint's meta says of its conversations: enough to send only what is new, and to check what was restored. */
import { Sha256 } from "@hangar/shared";
import { z } from "zod";

/** A path in JSON: as text where its bytes are UTF-8, else `hex:` and the bytes. */
export function encodePath(path: Buffer): string {
  const text = path.toString("utf8");
  return Buffer.from(text).equals(path) && !text.startsWith("hex:") ? text : `hex:${path.toString("hex")}`;
}

export const decodePath = (text: string): Buffer =>
  text.startsWith("hex:") ? Buffer.from(text.slice(4), "hex") : Buffer.from(text);

const count = z.number().int().nonnegative();

/** Bytes `offset` to `offset + size` of a file, and the part whose archive holds them as one member. */
export const RecordedSegment = z.strictObject({
  offset: count,
  size: count,
  sha256: Sha256,
  part: z.string().min(1).max(200),
});
export type RecordedSegment = z.infer<typeof RecordedSegment>;

export const RecordedFile = z.strictObject({
  path: z.string().min(1),
  kind: z.enum(["file", "symlink"]),
  mode: count,
  size: count,
  link: z.string().nullable(),
  /** None: the file was being written, and must be looked at again. */
  stamp: z.string().nullable(),
  /** In order and without a gap; one at least, be it empty. */
  segments: z.array(RecordedSegment).min(1),
  /** Of the first and the last 64 KiB, for a cheap look at whether a large file was only appended to. */
  edges: Sha256,
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
