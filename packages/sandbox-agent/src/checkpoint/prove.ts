/** A conversation's member, as it comes out of its archive, held against the digests that the record has of the whole file. */
import { createHash } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";
import { PIECE } from "./pieces.ts";
import type { RecordedFile } from "./conversation-record.ts";
import { bytesOf, fromText, rawOf } from "./raw.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import type { Member } from "./tar-read.ts";

export async function provesConversation(member: Member, file: RecordedFile, source: ArchiveEntry): Promise<boolean> {
  const { entry } = member;
  if (entry.kind !== file.kind || entry.mode !== file.mode) return false;
  if (entry.kind === "symlink")
    return file.link !== null && bytesOf(fromText(file.link)).equals(entry.link ?? Buffer.alloc(0));
  const offset = entry.segment ?? 0;
  if (offset + entry.size !== file.size) return false;
  // A segment begins in the middle of a piece: the bytes before it were proved with an earlier part.
  let n = Math.floor(offset / PIECE);
  let filled = offset - n * PIECE;
  let hash = createHash("sha256").update(before(source, n * PIECE, filled));
  let good = true;
  for await (const bytes of member.content()) {
    for (let at = 0; at < bytes.length;) {
      const take = Math.min(bytes.length - at, PIECE - filled);
      hash.update(bytes.subarray(at, at + take));
      at += take;
      filled += take;
      if (filled < PIECE) continue;
      good &&= hash.digest("hex") === file.pieces[n];
      n++;
      filled = 0;
      hash = createHash("sha256");
    }
  }
  if (filled > 0) good &&= hash.digest("hex") === file.pieces[n];
  return good && rawOf(entry.path) === fromText(file.path);
}

function before(source: ArchiveEntry, at: number, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  if (size === 0 || !source.content || !("file" in source.content)) return bytes;
  const fd = openSync(source.content.file, "r");
  try {
    readSync(fd, bytes, 0, size, at);
  } finally {
    closeSync(fd);
  }
  return bytes;
}
