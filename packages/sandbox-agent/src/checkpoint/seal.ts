/**
 * Sealing: the age v1 format (age-encryption.org/v1), X25519 recipients. The header comes from the age-encryption library,
 * the payload (ChaCha20-Poly1305 in chunks of 64 KiB) from node:crypto, which is four times as fast as the library's own.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { Readable, Transform, type TransformCallback } from "node:stream";
import { setImmediate as breathe } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { Decrypter, Encrypter } from "age-encryption";
import { release } from "./release.ts";

const CHUNK = 64 * 1024;
const TAG = 16;
const NONCE = 16;
const MAX_HEADER = 64 * 1024;
/** Bytes per write of a file. */
const OUT = 256 * 1024;
/** Bytes per read. */
const IO = 1024 * 1024;

/** Plain bytes in, an age file to all of these recipients (`age1…`) out. */
export async function sealStream(recipients: readonly string[]): Promise<Transform> {
  return new SealStream(await newSealer(recipients));
}

async function newSealer(recipients: readonly string[]): Promise<Sealer> {
  const { header, fileKey } = await newHeader(recipients);
  const nonce = randomBytes(NONCE);
  return new Sealer(Buffer.concat([header, nonce]), payloadKey(fileKey, nonce));
}

/**
 * An age file in, its plain bytes out. No byte is passed on that was not authenticated, but the end is known only at the
 * end: what came out counts only when the stream has ended without an error.
 * Fails with HangarError `checkpoint_invalid`: no identity fits, cut off, bytes left over or changed.
 */
export async function openStream(identities: readonly string[]): Promise<Transform> {
  return new OpenStream(new Opener(decrypterOf(identities)));
}

function decrypterOf(identities: readonly string[]): Decrypter {
  const decrypter = new Decrypter();
  for (const identity of identities) taken("identity", () => decrypter.addIdentity(identity));
  return decrypter;
}

export interface SealedFile {
  /** Bytes in the file, sealed. */
  readonly size: number;
  /** Hex; of the sealed bytes. */
  readonly sha256: string;
}

/** Where the plain bytes of a new file go. Synchronous: at the speed of cipher and page cache, streams would cost more than the work. */
export interface Output {
  readonly write: (plain: Buffer) => void;
}

/**
 * Makes the file `destination` (create-only) from what `produce` writes: sealed to the recipients, or plain when there are
 * none. A failure leaves a file that is cut off.
 */
export async function writeSealed<T>(
  destination: string,
  recipients: readonly string[],
  produce: (out: Output) => Promise<T>,
): Promise<SealedFile & { result: T }> {
  const sealer = recipients.length > 0 ? await newSealer(recipients) : null;
  const file = new HashedFile(destination, sealer);
  try {
    const result = await produce(file);
    return { ...file.end(), result };
  } finally {
    file.close();
  }
}

/** Seals one file into another (create-only); plain copy when there are no recipients. */
export async function sealFile(
  source: string,
  destination: string,
  recipients: readonly string[],
): Promise<SealedFile> {
  const { size, sha256 } = await writeSealed(destination, recipients, async (out) => {
    for await (const piece of piecesOfFile(source)) out.write(piece);
  });
  return { size, sha256 };
}

/** Each counts until the next one is asked for. */
async function* piecesOfFile(path: string): AsyncGenerator<Buffer> {
  const fd = openSync(path, "r");
  try {
    const buffer = Buffer.allocUnsafeSlow(IO);
    for (;;) {
      const n = readSync(fd, buffer, 0, buffer.length, null);
      if (n === 0) return;
      yield buffer.subarray(0, n);
      if (n === buffer.length) await breathe();
    }
  } finally {
    closeSync(fd);
  }
}

/** The plain bytes of a stored file; `identities` is null where it is not sealed. Each piece counts until the next is asked for. */
export async function* openPieces(source: string, identities: readonly string[] | null): AsyncGenerator<Buffer> {
  if (identities === null) {
    yield* piecesOfFile(source);
    return;
  }
  const opener = new Opener(decrypterOf(identities));
  // Joined, so that what comes next is asked once for all of them.
  const joined = Buffer.allocUnsafeSlow(IO);
  let length = 0;
  const add = function* (chunk: Buffer): Generator<Buffer> {
    if (length + chunk.length > joined.length) {
      yield joined.subarray(0, length);
      length = 0;
    }
    length += chunk.copy(joined, length);
    release(chunk);
  };
  for await (const piece of piecesOfFile(source)) {
    await opener.begin(piece);
    for (const chunk of opener.push(piece)) yield* add(chunk);
  }
  for (const chunk of opener.end()) yield* add(chunk);
  if (length > 0) yield joined.subarray(0, length);
}

/** `openPieces` as a stream. The caller reads it to its end or destroys it. */
export function openFile(source: string, identities: readonly string[] | null): Readable {
  const copied = async function* (): AsyncGenerator<Buffer> {
    for await (const piece of openPieces(source, identities)) yield Buffer.from(piece);
  };
  return Readable.from(copied(), { objectMode: false, highWaterMark: IO });
}

/** The header and its file key. The library draws the key and shows it to each recipient: one that only looks gets it. */
async function newHeader(recipients: readonly string[]): Promise<{ header: Buffer; fileKey: Buffer }> {
  if (recipients.length === 0) throw new HangarError("internal", "nothing can be sealed to no recipient");
  const encrypter = new Encrypter();
  let fileKey: Buffer | undefined;
  encrypter.addRecipient({
    wrapFileKey(key) {
      fileKey = Buffer.from(key);
      return [];
    },
  });
  for (const recipient of recipients) taken("recipient", () => encrypter.addRecipient(recipient));
  const empty = await encrypter.encrypt(new Uint8Array(0));
  if (fileKey === undefined) throw new HangarError("internal", "age-encryption showed no file key");
  // What follows the header is a nonce and one empty chunk.
  return { header: Buffer.from(empty.subarray(0, empty.length - NONCE - TAG)), fileKey };
}

/** The library's own words about a key may hold some of it. */
function taken(what: "identity" | "recipient", add: () => void): void {
  try {
    add();
  } catch {
    throw new HangarError("invalid_request", `An age ${what} is misspelt or cut off: give it as age-keygen made it`);
  }
}

const payloadKey = (fileKey: Uint8Array, nonce: Uint8Array): Buffer =>
  Buffer.from(hkdfSync("sha256", fileKey, nonce, "payload", 32));

/** 11 bytes of counter, then 1 for the last chunk. */
class ChunkNonce {
  readonly #nonce = Buffer.alloc(12);
  #count = 0;
  next(last: boolean): Buffer {
    this.#nonce.writeUIntBE(this.#count++, 5, 6);
    this.#nonce[11] = last ? 1 : 0;
    return this.#nonce;
  }
}

/**
 * Cuts a stream into chunks of one size; the last is told apart only when the stream ends. A chunk counts until the next one
 * is asked for: what lies in one piece is not copied.
 */
class Chunks {
  readonly #size: number;
  readonly #begun: Buffer;
  #length = 0;

  constructor(size: number) {
    this.#size = size;
    this.#begun = Buffer.allocUnsafe(size);
  }

  /** Gives every chunk that is certainly not the last: one byte more is there. */
  *push(piece: Buffer): Generator<Buffer> {
    let at = 0;
    if (this.#length > 0) {
      at = piece.copy(this.#begun, this.#length);
      this.#length += at;
      if (at === piece.length) return;
      yield this.#begun;
    }
    for (; piece.length - at > this.#size; at += this.#size) yield piece.subarray(at, at + this.#size);
    this.#length = piece.copy(this.#begun, 0, at);
  }

  last(): Buffer {
    return this.#begun.subarray(0, this.#length);
  }
}

/** Seals piece by piece. What it gives is to be written in its order. */
class Sealer {
  readonly #key: Buffer;
  readonly #nonce = new ChunkNonce();
  readonly #chunks = new Chunks(CHUNK);
  /** What stands before the first chunk. */
  readonly head: Buffer;

  constructor(head: Buffer, key: Buffer) {
    this.head = head;
    this.#key = key;
  }

  *push(piece: Buffer): Generator<Buffer> {
    for (const chunk of this.#chunks.push(piece)) yield* this.#seal(chunk, false);
  }

  *end(): Generator<Buffer> {
    yield* this.#seal(this.#chunks.last(), true);
  }

  *#seal(chunk: Buffer, last: boolean): Generator<Buffer> {
    const cipher = createCipheriv("chacha20-poly1305", this.#key, this.#nonce.next(last), { authTagLength: TAG });
    yield cipher.update(chunk);
    cipher.final();
    yield cipher.getAuthTag();
  }
}

class SealStream extends Transform {
  readonly #sealer: Sealer;

  constructor(sealer: Sealer) {
    super({ readableHighWaterMark: IO, writableHighWaterMark: IO });
    this.#sealer = sealer;
    this.push(sealer.head);
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    for (const sealed of this.#sealer.push(piece)) this.push(sealed);
    done();
  }

  override _flush(done: TransformCallback): void {
    for (const sealed of this.#sealer.end()) this.push(sealed);
    done();
  }
}

/** A new file, hashed as it is written, through one buffer. */
class HashedFile implements Output {
  readonly #sealer: Sealer | null;
  readonly #fd: number;
  readonly #hash = createHash("sha256");
  readonly #buffer = Buffer.allocUnsafe(OUT);
  #length = 0;
  #size = 0;

  constructor(path: string, sealer: Sealer | null) {
    this.#sealer = sealer;
    this.#fd = openSync(path, "wx", 0o600);
    if (sealer) this.#put(sealer.head);
  }

  write(plain: Buffer): void {
    if (this.#sealer === null) return this.#put(plain);
    for (const sealed of this.#sealer.push(plain)) {
      this.#put(sealed);
      release(sealed);
    }
  }

  end(): SealedFile {
    for (const sealed of this.#sealer?.end() ?? []) this.#put(sealed);
    this.#flush();
    return { size: this.#size, sha256: this.#hash.digest("hex") };
  }

  close(): void {
    closeSync(this.#fd);
  }

  #put(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const taken = bytes.copy(this.#buffer, this.#length, at);
      at += taken;
      this.#length += taken;
      if (this.#length === this.#buffer.length) this.#flush();
    }
  }

  #flush(): void {
    const bytes = this.#buffer.subarray(0, this.#length);
    this.#hash.update(bytes);
    for (let at = 0; at < bytes.length;) at += writeSync(this.#fd, bytes, at);
    this.#size += bytes.length;
    this.#length = 0;
  }
}

/** Opens piece by piece: `begin` with each, then `push` it; `end` when there are no more. */
class Opener {
  readonly #decrypter: Decrypter;
  readonly #nonce = new ChunkNonce();
  readonly #chunks = new Chunks(CHUNK + TAG);
  #head: Buffer = Buffer.alloc(0);
  #key: Buffer | null = null;
  /** Of the piece that the header ended in: where its payload begins. */
  #skip = 0;
  #opened = 0;

  constructor(decrypter: Decrypter) {
    this.#decrypter = decrypter;
  }

  /** Takes what of the piece belongs to the header, whose key takes a moment. */
  async begin(piece: Buffer): Promise<void> {
    this.#skip = 0;
    if (this.#key !== null) return;
    const before = this.#head.length;
    this.#head = Buffer.concat([this.#head, piece]);
    const end = headerEnd(this.#head);
    if (end === null || this.#head.length < end + NONCE) {
      if (this.#head.length > MAX_HEADER) throw damaged("it has no age header");
      this.#skip = piece.length;
      return;
    }
    const fileKey = await this.#fileKey(this.#head.subarray(0, end));
    this.#key = payloadKey(fileKey, this.#head.subarray(end, end + NONCE));
    this.#skip = end + NONCE - before;
  }

  *push(piece: Buffer): Generator<Buffer> {
    if (this.#key === null) return;
    for (const chunk of this.#chunks.push(piece.subarray(this.#skip))) yield this.#open(this.#key, chunk, false);
  }

  *end(): Generator<Buffer> {
    if (this.#key === null) throw damaged("it ends within its header");
    const chunk = this.#chunks.last();
    if (chunk.length < TAG || (chunk.length === TAG && this.#opened > 0)) throw damaged("it is cut off");
    yield this.#open(this.#key, chunk, true);
  }

  async #fileKey(header: Buffer): Promise<Uint8Array> {
    try {
      return await this.#decrypter.decryptHeader(header);
    } catch (cause) {
      const wrongKey = (cause as Error).message.startsWith("no identity matched");
      throw damaged(
        wrongKey ? "it is not sealed to this identity: give the right one" : "its header is malformed or changed",
        cause,
      );
    }
  }

  #open(key: Buffer, chunk: Buffer, last: boolean): Buffer {
    const cipher = createDecipheriv("chacha20-poly1305", key, this.#nonce.next(last), { authTagLength: TAG });
    const end = chunk.length - TAG;
    cipher.setAuthTag(chunk.subarray(end));
    const plain = cipher.update(chunk.subarray(0, end));
    try {
      cipher.final();
    } catch (cause) {
      throw damaged("its bytes were changed, or it is cut off or longer than it was", cause);
    }
    this.#opened++;
    return plain;
  }
}

class OpenStream extends Transform {
  readonly #opener: Opener;

  constructor(opener: Opener) {
    super({ readableHighWaterMark: IO, writableHighWaterMark: IO });
    this.#opener = opener;
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    void this.#takeThen(piece, done);
  }

  async #takeThen(piece: Buffer, done: TransformCallback): Promise<void> {
    let error: Error | null = null;
    try {
      await this.#opener.begin(piece);
      this.#pass(this.#opener.push(piece));
    } catch (cause) {
      error = cause as Error;
    }
    done(error);
  }

  override _flush(done: TransformCallback): void {
    try {
      this.#pass(this.#opener.end());
    } catch (error) {
      done(error as Error);
      return;
    }
    done();
  }

  #pass(chunks: Iterable<Buffer>): void {
    for (const plain of chunks) if (plain.length > 0) this.push(plain);
  }
}

/** Where the header ends: behind the line that begins with `---`. None: not there yet. */
function headerEnd(bytes: Buffer): number | null {
  if (!bytes.subarray(0, 21).equals(Buffer.from("age-encryption.org/v1").subarray(0, bytes.length)))
    throw damaged("it is no age file");
  const mac = bytes.indexOf("\n---");
  const end = mac < 0 ? -1 : bytes.indexOf("\n", mac + 4);
  return end < 0 ? null : end + 1;
}

const damaged = (why: string, cause?: unknown): HangarError =>
  new HangarError(
    "checkpoint_invalid",
    `The sealed file cannot be opened: ${why}`,
    cause === undefined ? {} : { cause },
  );
