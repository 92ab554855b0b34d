/** Digests of a long file, piece by piece. */
import { createHash } from "node:crypto";
import { readSync } from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";

/** A file's bytes are hashed in pieces of this size, so that what is appended costs what it is. */
export const PIECE = 4 * 1024 * 1024;

/** Of each piece of an open file's first `size` bytes; those that are known already are not read. */
export async function piecesOf(fd: number, size: number, known: readonly string[] = []): Promise<string[]> {
  const pieces = [...known];
  for (let at = pieces.length * PIECE; at < size; at += PIECE) {
    pieces.push(pieceAt(fd, at, Math.min(PIECE, size - at)));
    if (at > 0) await breathe();
  }
  return pieces;
}

/** Bytes that are not there any more leave the hash short, and so another. */
export const pieceAt = (fd: number, offset: number, size: number): string =>
  pieceWithPrefix(fd, offset, size, size).piece;

/** Nothing else runs while it is in use; a new one each time would have the collector at work. */
const shared = Buffer.allocUnsafeSlow(256 * 1024);

/** Also of the piece's first `prefix` bytes, in the same pass. */
export function pieceWithPrefix(
  fd: number,
  offset: number,
  prefix: number,
  size: number,
): { prefix: string; piece: string } {
  const hash = createHash("sha256");
  let at = 0;
  const readTo = (end: number): void => {
    while (at < end) {
      const read = readSync(fd, shared, 0, Math.min(shared.length, end - at), offset + at);
      if (read === 0) break;
      hash.update(shared.subarray(0, read));
      at += read;
    }
  };
  readTo(prefix);
  const first = prefix === size ? null : hash.copy().digest("hex");
  readTo(size);
  const piece = hash.digest("hex");
  return { prefix: first ?? piece, piece };
}
