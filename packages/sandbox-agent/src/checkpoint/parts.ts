/** Makes the objects of a checkpoint: sealed or plain files in one folder, with the sizes and digests that the meta names. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { constants as z, zstdCompress } from "node:zlib";
import { HangarError, type Part } from "@hangar/shared";
import type { ArchiveEntry } from "./tar-header.ts";
import { type Member, readMembers } from "./tar-read.ts";
import { writeArchive } from "./tar-write.ts";
import { sealFile, writeSealed } from "./seal.ts";
import type { NewObject } from "./types.ts";

export interface Written {
  readonly part: Part;
  readonly object: NewObject;
}

const zstd = (bytes: Buffer): Promise<Buffer> =>
  promisify<Buffer, object, Buffer>(zstdCompress)(bytes, {
    params: { [z.ZSTD_c_compressionLevel]: 3, [z.ZSTD_c_checksumFlag]: 1 },
  });

export class PartWriter {
  readonly #out: string;
  readonly #recipients: readonly string[];
  readonly #signal: AbortSignal | undefined;
  readonly made: Written[] = [];

  constructor(out: string, recipients: readonly string[] | null, signal?: AbortSignal) {
    this.#out = out;
    this.#recipients = recipients ?? [];
    this.#signal = signal;
  }

  /** `name` and its extension make the object's name: `worktree.2` and `.tar.zst`. */
  fileOf(name: string, extension: string): string {
    return `${name}${extension}${this.#recipients.length > 0 ? ".age" : ""}`;
  }

  /**
   * An archive of these entries. `prove` gets each member as it comes out of the finished archive again; none: unproved.
   */
  async archive(
    name: string,
    entries: readonly ArchiveEntry[],
    prove: ((member: Member) => Promise<void>) | null,
  ): Promise<Part> {
    return await this.#make(name, ".tar.zst", async (out) => {
      if (!prove) {
        await writeArchive(entries, out, this.#options);
        return;
      }
      const copy = new PassThrough({ highWaterMark: 1024 * 1024 });
      const proof = readMembers(copy, prove);
      proof.catch((error: unknown) => copy.destroy(error as Error));
      try {
        await writeArchive(entries, new Tee(out, copy), this.#options);
      } catch (error) {
        copy.destroy(error as Error);
        await proof.catch(() => {});
        throw error;
      }
      await proof;
    });
  }

  /** `.zst` is appended to the extension where they are compressed. */
  async bytes(name: string, extension: string, bytes: Buffer, compressed: boolean): Promise<Part> {
    const stored = compressed ? await zstd(bytes) : bytes;
    return await this.#make(name, `${extension}${compressed ? ".zst" : ""}`, async (out) => {
      await pipeline([stored], out);
    });
  }

  /** Of a file that lies elsewhere. */
  async file(name: string, extension: string, source: string): Promise<Part> {
    const file = this.fileOf(name, extension);
    const path = join(this.#out, file);
    return this.#done(name, file, path, await sealFile(source, path, this.#recipients));
  }

  get #options(): { signal?: AbortSignal } {
    return this.#signal ? { signal: this.#signal } : {};
  }

  async #make(name: string, extension: string, produce: (out: Writable) => Promise<void>): Promise<Part> {
    const file = this.fileOf(name, extension);
    const path = join(this.#out, file);
    return this.#done(name, file, path, await writeSealed(path, this.#recipients, produce));
  }

  #done(name: string, file: string, path: string, { size, sha256 }: { size: number; sha256: string }): Part {
    const part: Part = { name, file, size, sha256 };
    this.made.push({ part, object: { file, size, sha256, path } });
    return part;
  }
}

/** Hex; of a member's bytes, or of a link's target. */
export async function digestMember({ entry, content }: Member): Promise<string> {
  const hash = createHash("sha256");
  if (entry.kind === "symlink") hash.update(entry.link ?? "");
  else for await (const piece of content()) hash.update(piece);
  return hash.digest("hex");
}

/** Of an archive's plain content, whatever its compression makes of it. */
export function digestEntries(entries: readonly ArchiveEntry[]): string {
  const hash = createHash("sha256");
  for (const entry of entries) {
    hash.update(`${entry.path.length} ${entry.size} `).update(entry.path);
    if (entry.content && "bytes" in entry.content) hash.update(entry.content.bytes);
  }
  return hash.digest("hex");
}

/** Writes to two streams, as fast as the slower takes it; ends both. */
class Tee extends Writable {
  readonly #a: Writable;
  readonly #b: Writable;
  constructor(a: Writable, b: Writable) {
    super({ highWaterMark: 1024 * 1024 });
    this.#a = a;
    this.#b = b;
    for (const half of [a, b]) half.once("error", (error) => this.destroy(error));
  }
  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    let waiting = 1;
    const ready = (): void => {
      if (--waiting === 0) done();
    };
    for (const half of [this.#a, this.#b]) {
      if (half.write(chunk)) continue;
      waiting++;
      half.once("drain", ready);
    }
    ready();
  }
  override _final(done: (error?: Error | null) => void): void {
    this.#b.end();
    this.#a.end(() => done());
  }
}

/** The next free name of a kind: `worktree`, `worktree.2`, …; of bundles `repo.bundle`, `repo.2.bundle`. */
export function nextName(kind: string, used: readonly string[], ending = ""): string {
  let highest = 0;
  for (const name of used) {
    if (!name.startsWith(kind) || !name.endsWith(ending)) continue;
    const middle = name.slice(kind.length, name.length - ending.length);
    const n = middle === "" ? 1 : /^\.[0-9]+$/.test(middle) ? Number(middle.slice(1)) : 0;
    highest = Math.max(highest, n);
  }
  return highest === 0 ? `${kind}${ending}` : `${kind}.${highest + 1}${ending}`;
}

export const proofFailed = (what: string): HangarError =>
  new HangarError(
    "checkpoint_failed",
    `${what} does not come out of its part as it went in: take the checkpoint again`,
  );
