/**
 * Zstandard, read frame by frame: an archive of ours has one for each MiB, and taking one whole costs half of what zlib's
 * streams do. Larger frames, and such as do not say their length, go through a stream: so every zstd file can be read.
 * Source: RFC 8878, section 3.1.1.
 */
import { pipeline } from "node:stream/promises";
import { constants as z, createZstdDecompress, zstdDecompressSync } from "node:zlib";
import { release } from "./release.ts";

const MAGIC = 0xfd2fb528;
/** Of one frame, plain. */
const MOST = 4 * 1024 * 1024;

/**
 * The plain bytes; each piece counts until the next is asked for.
 * @throws what zlib throws (`ZSTD_error_…`), also where the last frame is cut off.
 */
export async function* decompressed(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  let isOver = false;
  const more = async (): Promise<void> => {
    const next = await pieces.next();
    if (next.done) isOver = true;
    else {
      const joined = Buffer.concat([rest, next.value]);
      release(rest);
      rest = joined;
    }
  };
  try {
    for (;;) {
      if (rest.length === 0 && !isOver) await more();
      if (rest.length === 0) return;
      const frame = lookAt(rest);
      // What is cut off is for zlib to say.
      if (frame === "large" || (frame === null && isOver)) {
        yield* streamed(rest, pieces);
        return;
      }
      if (frame === null) {
        await more();
        continue;
      }
      const options = { chunkSize: Math.max(frame.plain, 64), maxOutputLength: Math.max(frame.plain, 1) };
      const plain = zstdDecompressSync(rest.subarray(0, frame.stored), options);
      rest = rest.subarray(frame.stored);
      if (plain.length > 0) yield plain;
      release(plain);
    }
  } finally {
    await pieces.return?.();
  }
}

/** Whether it says that these bytes are no zstd file, or none that is whole. */
export function isZstdError(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === "string" && /^(?:ZSTD_error_|Z_|ERR_BUFFER_TOO)/.test(code);
}

/** The first frame's length, stored and plain; null: not all of it is there. */
function lookAt(bytes: Buffer): { stored: number; plain: number } | "large" | null {
  if (bytes.length < 18) return null;
  if (bytes.readUInt32LE(0) !== MAGIC) return "large";
  const descriptor = bytes[4] ?? 0;
  const isSingle = (descriptor & 0x20) !== 0;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6] ?? 0;
  // Neither a dictionary nor an unknown length: not what is written here.
  if ((descriptor & 3) !== 0 || sizeBytes === 0) return "large";
  let at = 5 + (isSingle ? 0 : 1);
  const said =
    sizeBytes === 1
      ? (bytes[at] ?? 0)
      : sizeBytes === 2
        ? bytes.readUInt16LE(at) + 256
        : sizeBytes === 4
          ? bytes.readUInt32LE(at)
          : Number(bytes.readBigUInt64LE(at));
  if (said > MOST) return "large";
  at += sizeBytes;
  for (let isLast = false; !isLast;) {
    if (at + 3 > bytes.length) return at > 2 * MOST ? "large" : null;
    const header = bytes.readUIntLE(at, 3);
    isLast = (header & 1) !== 0;
    const isRepeat = ((header >> 1) & 3) === 1;
    at += 3 + (isRepeat ? 1 : header >> 3);
  }
  at += (descriptor & 4) !== 0 ? 4 : 0;
  if (at > bytes.length) return at > 2 * MOST ? "large" : null;
  return { stored: at, plain: said };
}

async function* streamed(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  const source = async function* (): AsyncGenerator<Buffer> {
    yield first;
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield Buffer.from(next.value);
  };
  // A window over 8 MiB is not what is written here, and would be the memory of whoever reads it.
  const unzstd = createZstdDecompress({ chunkSize: 256 * 1024, params: { [z.ZSTD_d_windowLogMax]: 23 } });
  const done = pipeline(source(), unzstd);
  // Its failure destroys `unzstd`, whose reader then has it.
  done.catch(() => {});
  yield* unzstd as AsyncIterable<Buffer>;
}
