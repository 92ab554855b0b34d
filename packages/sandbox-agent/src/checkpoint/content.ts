/** Digests of files, remembered as long as nothing says that the file may have changed. */
import { createHash, type Hash } from "node:crypto";
import { closeSync, constants as fs, fstatSync, openSync, readlinkSync, readSync, type Stats } from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";
import { bytesOf, fsPath, type Raw } from "./raw.ts";
import { isSettled } from "./settled.ts";

export interface Digest {
  /** Hex; of the bytes, or of a link's target. */
  readonly sha256: string;
  /** The id that git would give the bytes as they are. */
  readonly oid: string;
  readonly size: number;
}

interface Known extends Digest {
  readonly stamp: string;
  /** When the file was opened, ms since 1970. */
  readonly looked: number;
}

const CHUNK = 1024 * 1024;
const FLAGS = fs.O_RDONLY | fs.O_NOFOLLOW | fs.O_NONBLOCK;

export class Vanished extends Error {}

export class Contents {
  readonly #known = new Map<Raw, Known>();

  /** How many bytes were read so far: for tests and reports. */
  read = 0;

  /**
   * The digest of a file or link that `lstat` gave `stat` for. A file that grows while it is read is taken up to
   * `stat.size`. Throws `Vanished` when it is gone or shorter, and what open and read throw.
   */
  async digest(path: Raw, stat: Stats, format: "sha1" | "sha256"): Promise<Digest> {
    const stamp = stampOf(stat, format);
    const known = this.#known.get(path);
    if (known && known.stamp === stamp && isSettled(stat.ctimeMs, known.looked)) return known;
    const looked = Date.now();
    const digest = stat.isSymbolicLink() ? digestLink(path, format) : await this.#digestFile(path, stat.size, format);
    this.#known.set(path, { ...digest, stamp, looked });
    return digest;
  }

  /** Of the bytes before `at`, and of those from there to `size`. */
  async split(path: Raw, at: number, size: number): Promise<{ before: string; after: string }> {
    const fd = open(path);
    try {
      const before = createHash("sha256");
      const after = createHash("sha256");
      await this.#feed(fd, path, 0, at, [before]);
      await this.#feed(fd, path, at, size, [after]);
      return { before: before.digest("hex"), after: after.digest("hex") };
    } finally {
      closeSync(fd);
    }
  }

  /** Forgets files that are not there any more. */
  keepOnly(paths: ReadonlySet<Raw>): void {
    for (const path of this.#known.keys()) if (!paths.has(path)) this.#known.delete(path);
  }

  get count(): number {
    return this.#known.size;
  }

  async #digestFile(path: Raw, size: number, format: "sha1" | "sha256"): Promise<Digest> {
    const fd = open(path);
    try {
      const sha = createHash("sha256");
      const git = createHash(format).update(`blob ${size}\0`);
      await this.#feed(fd, path, 0, size, [sha, git]);
      return { sha256: sha.digest("hex"), oid: git.digest("hex"), size };
    } finally {
      closeSync(fd);
    }
  }

  async #feed(fd: number, path: Raw, from: number, to: number, hashes: readonly Hash[]): Promise<void> {
    if (!fstatSync(fd).isFile()) throw new Vanished(path);
    const buffer = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(1, to - from)));
    for (let at = from; at < to;) {
      const n = readSync(fd, buffer, 0, Math.min(buffer.length, to - at), at);
      if (n === 0) throw new Vanished(path);
      const piece = buffer.subarray(0, n);
      for (const hash of hashes) hash.update(piece);
      at += n;
      this.read += n;
      if (at < to && at - from >= 8 * CHUNK) await breathe();
    }
  }
}

const stampOf = (s: Stats, kind: string): string =>
  `${kind} ${s.dev} ${s.ino} ${s.mode} ${s.size} ${s.mtimeMs} ${s.ctimeMs}`;

function open(path: Raw): number {
  try {
    return openSync(fsPath(path), FLAGS);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (["ENOENT", "ENOTDIR", "ELOOP", "ENXIO"].includes(code)) throw new Vanished(path, { cause: error });
    throw error;
  }
}

function digestLink(path: Raw, format: "sha1" | "sha256"): Digest {
  const target = linkTarget(path);
  return {
    sha256: createHash("sha256").update(target).digest("hex"),
    oid: createHash(format).update(`blob ${target.length}\0`).update(target).digest("hex"),
    size: target.length,
  };
}

export function linkTarget(path: Raw): Buffer {
  try {
    return readlinkSync(fsPath(path), { encoding: "buffer" });
  } catch (error) {
    throw new Vanished(path, { cause: error });
  }
}

export const sha256 = (bytes: Buffer | string): string => createHash("sha256").update(bytes).digest("hex");
export const sha256OfRaw = (raw: Raw): string => sha256(bytesOf(raw));
