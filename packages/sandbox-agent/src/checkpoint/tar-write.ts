/** Tar inside zstd, written as a stream. */
import { closeSync, constants as fs, fstatSync, openSync, readSync } from "node:fs";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as breathe } from "node:timers/promises";
import { constants as z, zstdCompressSync } from "node:zlib";
import { HangarError } from "@hangar/shared";
import { release } from "./release.ts";
import { BLOCK, encodeHeader, padding, type ArchiveEntry } from "./tar-header.ts";

/** A file that was announced is gone, is no file any more, or shrank while it was read: take the checkpoint again. */
export class ArchiveChanged extends HangarError {
  readonly path: Buffer;
  constructor(path: Buffer, why: string, options?: ErrorOptions) {
    super("checkpoint_failed", `${JSON.stringify(path.toString("utf8"))} ${why} while it was copied`, options);
    this.name = "ArchiveChanged";
    this.path = path;
  }

  /** One that another thread threw, with its whole message. */
  static told(path: Buffer, message: string): ArchiveChanged {
    return Object.assign(new ArchiveChanged(path, ""), { message });
  }
}

const BLOCK_SIZE = 1024 * 1024;

/**
 * Writes the entries, in their order, as tar inside zstd, and ends `out`. A file that has grown is cut to `size`.
 * @returns the number of entries and the bytes of plain tar (a bound for whoever reads it: `limits.maxBytes`).
 * @throws ArchiveChanged; HangarError `checkpoint_invalid` for an entry that no archive may hold; what `out` throws.
 */
export async function writeArchive(
  entries: Iterable<ArchiveEntry> | AsyncIterable<ArchiveEntry>,
  out: Writable,
  options: { signal?: AbortSignal } = {},
): Promise<{ entries: number; bytes: number }> {
  const count = { entries: 0, bytes: 0 };
  const stored = async function* (): AsyncGenerator<Buffer> {
    for await (const block of archiveBlocks(entries, count)) yield Buffer.from(block.stored);
  };
  await pipeline(stored(), out, options.signal ? { signal: options.signal } : {});
  return count;
}

/**
 * The archive's bytes: a zstd frame for each MiB of tar, one after the other, which is what a reader of zstd takes for one
 * stream. Each is compressed in one go: handing pieces to zlib's threads and back cost twice what the work itself does.
 * A block counts until the next is asked for.
 */
export async function* archiveBlocks(
  entries: Iterable<ArchiveEntry> | AsyncIterable<ArchiveEntry>,
  count: { entries: number; bytes: number },
  signal?: AbortSignal,
): AsyncGenerator<{ readonly plain: Buffer; readonly stored: Buffer }> {
  for await (const plain of tarBlocks(entries, count)) {
    signal?.throwIfAborted();
    const stored = compress(plain);
    yield { plain, stored };
    release(stored);
    // Others have their turn.
    if (plain.length === BLOCK_SIZE) await breathe();
  }
}

/** Level 3: on 44 MB of source text, 1 takes 0.13 s and leaves 10.1 MB, 3 takes 0.20 s and leaves 8.7, 5 takes 0.29 s and leaves 8.0. */
export const compress = (plain: Buffer): Buffer =>
  zstdCompressSync(plain, {
    // Room for all of it at once, so that what comes out is one buffer and no copy.
    chunkSize: plain.length + (plain.length >> 7) + 1024,
    pledgedSrcSize: plain.length,
    params: { [z.ZSTD_c_compressionLevel]: 3, [z.ZSTD_c_checksumFlag]: 1 },
  });

const ZEROS = Buffer.alloc(2 * BLOCK);

/** The plain archive in blocks of `BLOCK_SIZE`, the last one shorter. Each counts until the next is asked for. */
async function* tarBlocks(
  entries: Iterable<ArchiveEntry> | AsyncIterable<ArchiveEntry>,
  count: { entries: number; bytes: number },
): AsyncGenerator<Buffer> {
  const block = new Block(count);
  for await (const entry of entries) {
    yield* block.add(encodeHeader(entry));
    yield* contentOf(entry, block);
    yield* block.add(ZEROS.subarray(0, padding(entry.size)));
    count.entries++;
  }
  yield* block.add(ZEROS);
  yield* block.take();
}

/** One buffer, filled again and again: new ones would be the collector's work. Gives what is full. */
class Block {
  readonly #count: { bytes: number };
  readonly #buffer = Buffer.allocUnsafeSlow(BLOCK_SIZE);
  #length = 0;

  constructor(count: { bytes: number }) {
    this.#count = count;
  }

  *add(piece: Buffer): Generator<Buffer> {
    for (let at = 0; at < piece.length;) {
      const taken = piece.copy(this.#buffer, this.#length, at);
      at += taken;
      this.#length += taken;
      if (this.#length === BLOCK_SIZE) yield* this.take();
    }
  }

  *read(entry: ArchiveEntry, fd: number, offset: number): Generator<Buffer> {
    for (let at = 0; at < entry.size;) {
      const most = Math.min(BLOCK_SIZE - this.#length, entry.size - at);
      const n = readSync(fd, this.#buffer, this.#length, most, offset + at);
      if (n === 0) throw new ArchiveChanged(entry.path, "shrank");
      at += n;
      this.#length += n;
      if (this.#length === BLOCK_SIZE) yield* this.take();
    }
  }

  *take(): Generator<Buffer> {
    if (this.#length === 0) return;
    const full = this.#buffer.subarray(0, this.#length);
    this.#count.bytes += this.#length;
    this.#length = 0;
    yield full;
  }
}

function* contentOf(entry: ArchiveEntry, block: Block): Generator<Buffer> {
  if (entry.size === 0) return;
  if (entry.content === undefined) throw new HangarError("internal", "an archive's file has no content");
  if ("bytes" in entry.content) {
    const { bytes } = entry.content;
    if (bytes.length < entry.size) throw new ArchiveChanged(entry.path, "is shorter than announced");
    yield* block.add(bytes.subarray(0, entry.size));
    return;
  }
  const fd = openFile(entry, entry.content.file);
  try {
    yield* block.read(entry, fd, entry.content.offset);
  } finally {
    closeSync(fd);
  }
}

// Not through a link that took the file's place, and without waiting for a FIFO that did.
const FLAGS = fs.O_RDONLY | fs.O_NOFOLLOW | fs.O_NONBLOCK;

function openFile(entry: ArchiveEntry, file: Buffer): number {
  let fd: number;
  try {
    fd = openSync(file, FLAGS);
  } catch (cause) {
    throw gone(entry, cause);
  }
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  throw new ArchiveChanged(entry.path, "stopped being a file");
}

function gone(entry: ArchiveEntry, cause: unknown): Error {
  const code = (cause as NodeJS.ErrnoException).code;
  if (code === "ENOENT" || code === "ELOOP" || code === "ENOTDIR" || code === "ENXIO")
    return new ArchiveChanged(entry.path, "went away", { cause });
  if (code === "EACCES" || code === "EPERM")
    return new HangarError(
      "checkpoint_failed",
      `${JSON.stringify(entry.path.toString("utf8"))} cannot be read (${code}): give it read permission, or remove it`,
      { cause },
    );
  return cause as Error;
}
