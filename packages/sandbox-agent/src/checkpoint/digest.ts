/** Digests of files' bytes. */
import { createHash, type Hash } from "node:crypto";
import { closeSync, constants as fs, fstatSync, openSync, readSync } from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";
import { bytesOf, fsPath, type Raw } from "./raw.ts";

export interface Digest {
  /** Hex; of the bytes, or of a link's target. */
  readonly sha256: string;
  /** The id that git would give the bytes as they are; none: not asked for. */
  readonly oid: string | null;
  readonly size: number;
}

export type ObjectFormat = "sha1" | "sha256";

const CHUNK = 1024 * 1024;
const FLAGS = fs.O_RDONLY | fs.O_NOFOLLOW | fs.O_NONBLOCK;

export class Vanished extends Error {}

/** Of a file's first `size` bytes. Throws `Vanished` when it is gone or shorter, and what open and read throw. */
export async function digestOf(path: Raw, size: number, oid: ObjectFormat | null): Promise<Digest> {
  const fd = open(path);
  try {
    const sha = createHash("sha256");
    const git = oid === null ? null : createHash(oid).update(`blob ${size}\0`);
    await feed(fd, path, 0, size, git ? [sha, git] : [sha]);
    return { sha256: sha.digest("hex"), oid: git?.digest("hex") ?? null, size };
  } finally {
    closeSync(fd);
  }
}

/** Of the bytes before `at`, and of those from there to `size`. */
export async function splitOf(path: Raw, at: number, size: number): Promise<{ before: string; after: string }> {
  const fd = open(path);
  try {
    const before = createHash("sha256");
    const after = createHash("sha256");
    await feed(fd, path, 0, at, [before]);
    await feed(fd, path, at, size, [after]);
    return { before: before.digest("hex"), after: after.digest("hex") };
  } finally {
    closeSync(fd);
  }
}

async function feed(fd: number, path: Raw, from: number, to: number, hashes: readonly Hash[]): Promise<void> {
  if (!fstatSync(fd).isFile()) throw new Vanished(path);
  const buffer = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(1, to - from)));
  for (let at = from; at < to;) {
    const n = readSync(fd, buffer, 0, Math.min(buffer.length, to - at), at);
    if (n === 0) throw new Vanished(path);
    const piece = buffer.subarray(0, n);
    for (const hash of hashes) hash.update(piece);
    at += n;
    if (at < to && at - from >= 8 * CHUNK) await breathe();
  }
}

function open(path: Raw): number {
  try {
    return openSync(fsPath(path), FLAGS);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (["ENOENT", "ENOTDIR", "ELOOP", "ENXIO"].includes(code)) throw new Vanished(path, { cause: error });
    throw error;
  }
}

export const sha256 = (bytes: Buffer | string): string => createHash("sha256").update(bytes).digest("hex");
export const sha256OfRaw = (raw: Raw): string => sha256(bytesOf(raw));
