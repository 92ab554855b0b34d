/**
 * Sealing: the age v1 format (age-encryption.org/v1), X25519 recipients. The header comes from the age-encryption library,
 * the payload (ChaCha20-Poly1305 in chunks of 64 KiB) from node:crypto, which is four times as fast as the library's own.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { PassThrough, Transform, type Readable, type TransformCallback, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { HangarError } from "@hangar/shared";
import { Decrypter, Encrypter } from "age-encryption";

const CHUNK = 64 * 1024;
const TAG = 16;
const NONCE = 16;
const MAX_HEADER = 64 * 1024;

/** Plain bytes in, an age file to all of these recipients (`age1…`) out. */
export async function sealStream(recipients: readonly string[]): Promise<Transform> {
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
  const decrypter = new Decrypter();
  for (const identity of identities) decrypter.addIdentity(identity);
  return new Opener(decrypter);
}

export interface SealedFile {
  /** Bytes in the file, sealed. */
  readonly size: number;
  /** Hex; of the sealed bytes. */
  readonly sha256: string;
}

/**
 * Makes the file `destination` (create-only) from what `produce` writes: sealed to the recipients, or plain when there are
 * none. `produce` ends the stream it is given, as `writeArchive` does.
 */
export async function writeSealed<T>(
  destination: string,
  recipients: readonly string[],
  produce: (out: Writable) => Promise<T>,
): Promise<SealedFile & { result: T }> {
  const seal = recipients.length > 0 ? await sealStream(recipients) : new PassThrough();
  const hash = createHash("sha256");
  let size = 0;
  const [result] = await bothOrFirstError(
    produce(seal),
    pipeline(
      seal,
      async function* (bytes: AsyncIterable<Buffer>) {
        for await (const piece of bytes) {
          hash.update(piece);
          size += piece.length;
          yield piece;
        }
      },
      createWriteStream(destination, { flags: "wx", mode: 0o600, highWaterMark: 1024 * 1024 }),
    ),
    seal,
  );
  return { size, sha256: hash.digest("hex"), result };
}

/** Seals one file into another (create-only); plain copy when there are no recipients. */
export async function sealFile(
  source: string,
  destination: string,
  recipients: readonly string[],
): Promise<SealedFile> {
  const { size, sha256 } = await writeSealed(destination, recipients, (out) =>
    pipeline(createReadStream(source, { highWaterMark: 256 * 1024 }), out),
  );
  return { size, sha256 };
}

/** The plain bytes of a sealed file; of a plain one when `identities` is null. The caller reads it to its end or destroys it. */
export async function openFile(source: string, identities: readonly string[] | null): Promise<Readable> {
  const file = createReadStream(source, { highWaterMark: 256 * 1024 });
  if (identities === null) return file;
  const opener = await openStream(identities);
  // Its failure reaches the reader through `opener`, which pipeline destroys with it.
  pipeline(file, opener).catch(() => {});
  return opener;
}

/** Of two halves of one pipe, the failure of either ends the other; the first failure is the one thrown. */
async function bothOrFirstError<A, B>(a: Promise<A>, b: Promise<B>, pipe: Transform): Promise<[A, B]> {
  let first: unknown;
  const watch = async <T>(half: Promise<T>): Promise<T> => {
    try {
      return await half;
    } catch (error) {
      first ??= error;
      pipe.destroy(error as Error);
      throw error;
    }
  };
  const [x, y] = await Promise.allSettled([watch(a), watch(b)]);
  if (x.status === "rejected" || y.status === "rejected") throw first;
  return [x.value, y.value];
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
  for (const recipient of recipients) encrypter.addRecipient(recipient);
  const empty = await encrypter.encrypt(new Uint8Array(0));
  if (fileKey === undefined) throw new HangarError("internal", "age-encryption showed no file key");
  // What follows the header is a nonce and one empty chunk.
  return { header: Buffer.from(empty.subarray(0, empty.length - NONCE - TAG)), fileKey };
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

/** Cuts a stream into chunks of one size; the last is told apart only when the stream ends. */
class Chunks {
  readonly #size: number;
  #pieces: Buffer[] = [];
  #length = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Gives every chunk that is certainly not the last: one byte more is there. */
  *push(piece: Buffer): Generator<Buffer> {
    this.#pieces.push(piece);
    this.#length += piece.length;
    if (this.#length <= this.#size) return;
    const all = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces, this.#length);
    let at = 0;
    for (; all.length - at > this.#size; at += this.#size) yield all.subarray(at, at + this.#size);
    this.#pieces = [all.subarray(at)];
    this.#length = all.length - at;
  }

  last(): Buffer {
    return Buffer.concat(this.#pieces, this.#length);
  }
}

class Sealer extends Transform {
  readonly #key: Buffer;
  readonly #nonce = new ChunkNonce();
  readonly #chunks = new Chunks(CHUNK);

  constructor(head: Buffer, key: Buffer) {
    super({ readableHighWaterMark: 256 * 1024, writableHighWaterMark: 256 * 1024 });
    this.#key = key;
    this.push(head);
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    for (const chunk of this.#chunks.push(piece)) this.#seal(chunk, false);
    done();
  }

  override _flush(done: TransformCallback): void {
    this.#seal(this.#chunks.last(), true);
    done();
  }

  #seal(chunk: Buffer, last: boolean): void {
    const cipher = createCipheriv("chacha20-poly1305", this.#key, this.#nonce.next(last), { authTagLength: TAG });
    this.push(cipher.update(chunk));
    cipher.final();
    this.push(cipher.getAuthTag());
  }
}

class Opener extends Transform {
  readonly #decrypter: Decrypter;
  readonly #nonce = new ChunkNonce();
  readonly #chunks = new Chunks(CHUNK + TAG);
  #head: Buffer | null = Buffer.alloc(0);
  #key: Buffer | null = null;
  #opened = 0;

  constructor(decrypter: Decrypter) {
    super({ readableHighWaterMark: 256 * 1024, writableHighWaterMark: 256 * 1024 });
    this.#decrypter = decrypter;
  }

  override _transform(piece: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    void this.#takeThen(piece, done);
  }

  override _flush(done: TransformCallback): void {
    try {
      if (this.#key === null) throw damaged("it ends within its header");
      const chunk = this.#chunks.last();
      if (chunk.length < TAG || (chunk.length === TAG && this.#opened > 0)) throw damaged("it is cut off");
      this.#open(this.#key, chunk, true);
      done();
    } catch (error) {
      done(error as Error);
    }
  }

  async #takeThen(piece: Buffer, done: TransformCallback): Promise<void> {
    let error: Error | null = null;
    try {
      await this.#take(piece);
    } catch (cause) {
      error = cause as Error;
    }
    done(error);
  }

  async #take(piece: Buffer): Promise<void> {
    let payload = piece;
    if (this.#head !== null) {
      this.#head = Buffer.concat([this.#head, piece]);
      const end = headerEnd(this.#head);
      if (end === null || this.#head.length < end + NONCE) {
        if (this.#head.length > MAX_HEADER) throw damaged("it has no age header");
        return;
      }
      const fileKey = await this.#fileKey(this.#head.subarray(0, end));
      this.#key = payloadKey(fileKey, this.#head.subarray(end, end + NONCE));
      payload = this.#head.subarray(end + NONCE);
      this.#head = null;
    }
    if (this.#key === null) throw new HangarError("internal", "age: no key after the header");
    for (const chunk of this.#chunks.push(payload)) this.#open(this.#key, chunk, false);
  }

  async #fileKey(header: Buffer): Promise<Uint8Array> {
    try {
      return await this.#decrypter.decryptHeader(header);
    } catch (cause) {
      const wrongKey = (cause as Error).message.startsWith("no identity matched");
      throw damaged(wrongKey ? "it is not sealed to this identity" : "its header is malformed or changed", cause);
    }
  }

  #open(key: Buffer, chunk: Buffer, last: boolean): void {
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
    if (plain.length > 0) this.push(plain);
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
