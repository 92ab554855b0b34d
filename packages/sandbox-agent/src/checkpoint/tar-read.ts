/** Tar inside zstd, read as a stream. Everything in it is hostile until checked. */
import { Readable } from "node:stream";
import { setImmediate as breathe } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { BLOCK, decodeBlock, decodeEntry, decodePax, invalid, padding, type ArchiveEntry } from "./tar-header.ts";
import { decompressed, isZstdError } from "./zstd-frames.ts";

export interface ReadLimits {
  /** Most bytes of plain tar that are taken, headers included: what `writeArchive` returned. None: no bound. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal;
}

const MAX_PAX = 256 * 1024;

/** One member. `content` gives its bytes once, in pieces; what is not taken is skipped. */
export interface Member {
  readonly entry: ArchiveEntry;
  readonly content: () => AsyncGenerator<Buffer>;
  /** All of the content, where it is in memory already: the quick way for small files. Instead of `content`, not besides. */
  readonly whole: () => Buffer | null;
}

/**
 * Calls `onEntry` for each member in turn. What it does not read of `content` is skipped.
 * @throws HangarError `checkpoint_invalid` for a name that is absolute, empty, has `..` or a NUL, a device, FIFO or hard
 * link, a bad checksum, more than `maxBytes`, bytes missing or left over; what `source` and `onEntry` throw, as it is.
 */
export async function readArchive(
  source: Readable,
  onEntry: (entry: ArchiveEntry, content: Readable) => Promise<void>,
  limits: ReadLimits = {},
): Promise<void> {
  await readMembers(
    source,
    async ({ entry, content }) => {
      const stream = Readable.from(copied(content()), { objectMode: false, highWaterMark: 256 * 1024 });
      // An abandoned stream is closed, and its error has been thrown to whoever read it.
      stream.on("error", () => {});
      try {
        await onEntry(entry, stream);
      } finally {
        // A stream that was left half read may still be taking bytes.
        if (!stream.closed) await new Promise((resolve) => stream.once("close", resolve).destroy());
      }
    },
    limits,
  );
}

async function* copied(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const piece of pieces) yield Buffer.from(piece);
}

/** `readArchive` without a stream for each member: what `extractArchive` uses for many small files. */
export async function readMembers(
  source: AsyncIterable<Buffer>,
  onMember: (member: Member) => Promise<void>,
  { maxBytes, signal }: ReadLimits = {},
): Promise<void> {
  const plain = async function* (): AsyncGenerator<Buffer> {
    for await (const piece of decompressed(source)) {
      signal?.throwIfAborted();
      yield piece;
      // Others have their turn.
      await breathe();
    }
  };
  try {
    await members(new Bytes(plain(), maxBytes ?? Number.POSITIVE_INFINITY), onMember);
  } catch (error) {
    if (isZstdError(error))
      throw new HangarError("checkpoint_invalid", "The archive is damaged or cut off (zstd)", { cause: error });
    throw error;
  }
}

/** Of a plain archive. A piece counts until the next is asked for. */
export const readPlainMembers = (
  plain: AsyncIterable<Buffer>,
  onMember: (member: Member) => Promise<void>,
): Promise<void> => members(new Bytes(plain, Number.POSITIVE_INFINITY), onMember);

async function members(bytes: Bytes, onMember: (member: Member) => Promise<void>): Promise<void> {
  try {
    await allMembers(bytes, onMember);
  } finally {
    await bytes.close();
  }
}

async function allMembers(bytes: Bytes, onMember: (member: Member) => Promise<void>): Promise<void> {
  for (;;) {
    let raw = decodeBlock(bytes.ready(BLOCK) ?? (await bytes.exactly(BLOCK)));
    if (raw === null) break;
    let pax = new Map<string, Buffer>();
    if (raw.type === "x") {
      if (raw.size > MAX_PAX) throw invalid("a pax header is too long");
      pax = decodePax(Buffer.from(await bytes.exactly(raw.size)));
      await bytes.exactly(padding(raw.size));
      raw = decodeBlock(await bytes.exactly(BLOCK));
      if (raw === null) throw invalid("a pax header has no member");
    }
    const entry = decodeEntry(raw, pax);
    const content = new Content(bytes, entry.size);
    await onMember({ entry, content: () => content.pieces(), whole: () => content.whole() });
    await content.skip();
    if (bytes.ready(padding(entry.size)) === null) await bytes.exactly(padding(entry.size));
  }
  if (decodeBlock(await bytes.exactly(BLOCK)) !== null) throw invalid("it goes on after its end");
  await bytes.onlyZerosLeft();
}

/** What is left of one member's content. */
class Content {
  readonly #bytes: Bytes;
  #left: number;

  constructor(bytes: Bytes, size: number) {
    this.#bytes = bytes;
    this.#left = size;
  }

  async *pieces(): AsyncGenerator<Buffer> {
    while (this.#left > 0) yield await this.#next();
  }

  whole(): Buffer | null {
    const all = this.#bytes.ready(this.#left);
    if (all !== null) this.#left = 0;
    return all;
  }

  async skip(): Promise<void> {
    while (this.#left > 0) await this.#next();
  }

  async #next(): Promise<Buffer> {
    const piece = await this.#bytes.some(this.#left);
    this.#left -= piece.length;
    return piece;
  }
}

/** Bytes taken from a stream of pieces, by exact length or as they come; refuses to go beyond its bound. */
class Bytes {
  readonly #pieces: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);
  #allowed: number;

  constructor(pieces: AsyncIterable<Buffer>, allowed: number) {
    this.#pieces = pieces[Symbol.asyncIterator]();
    this.#allowed = allowed;
  }

  /** At least one byte, at most `most`. */
  async some(most: number): Promise<Buffer> {
    if (this.#rest.length === 0 && !(await this.#more())) throw invalid("it ends in the middle");
    const piece = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  /** None: not all of it is in memory. */
  ready(length: number): Buffer | null {
    if (this.#rest.length < length) return null;
    const piece = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return piece;
  }

  async exactly(length: number): Promise<Buffer> {
    const there = this.ready(length);
    if (there !== null) return there;
    const all = Buffer.allocUnsafe(length);
    for (let have = 0; ;) {
      const taken = this.#rest.copy(all, have);
      have += taken;
      this.#rest = this.#rest.subarray(taken);
      if (have === length) return all;
      if (!(await this.#more())) throw invalid("it ends in the middle");
    }
  }

  /** Also where it is not at its end. */
  async close(): Promise<void> {
    await this.#pieces.return?.();
  }

  async onlyZerosLeft(): Promise<void> {
    do {
      if (this.#rest.some((byte) => byte !== 0)) throw invalid("it goes on after its end");
    } while (await this.#more());
  }

  async #more(): Promise<boolean> {
    const next = await this.#pieces.next();
    if (next.done) return false;
    this.#allowed -= next.value.length;
    if (this.#allowed < 0) throw invalid("it unpacks to more than was announced");
    this.#rest = next.value;
    return true;
  }
}
