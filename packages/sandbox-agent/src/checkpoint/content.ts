/** Digests of files, remembered as long as nothing says that the file may have changed. */
import { createHash } from "node:crypto";
import { readlinkSync, type Stats } from "node:fs";
import { bulk } from "./bulk.ts";
import { type Digest, type ObjectFormat, Vanished } from "./digest.ts";
import { fsPath, type Raw } from "./raw.ts";
import { isSettled } from "./settled.ts";

interface Known extends Digest {
  readonly stamp: string;
  /** When the file was opened, ms since 1970. */
  readonly looked: number;
}

const ID_LENGTH = { sha1: 40, sha256: 64 } as const;

export class Contents {
  readonly #known = new Map<Raw, Known>();

  /** How many bytes were read so far: for tests and reports. */
  read = 0;

  /**
   * The digest of a file or link that `lstat` gave `stat` for; `oid`: with the id that git would give it. A file that grows
   * while it is read is taken up to `stat.size`. Throws `Vanished` when it is gone or shorter, and what open and read throw.
   */
  async digest(path: Raw, stat: Stats, oid: ObjectFormat | null): Promise<Digest> {
    const stamp = `${stat.dev} ${stat.ino} ${stat.mode} ${stat.size} ${stat.mtimeMs} ${stat.ctimeMs}`;
    const known = this.#known.get(path);
    if (
      known?.stamp === stamp &&
      isSettled(stat.ctimeMs, known.looked) &&
      (oid === null || known.oid?.length === ID_LENGTH[oid])
    )
      return known;
    const looked = Date.now();
    const digest = stat.isSymbolicLink() ? digestLink(path, oid) : await this.#digestFile(path, stat.size, oid);
    this.#known.set(path, { ...digest, stamp, looked });
    return digest;
  }

  /** Of the bytes before `at`, and of those from there to `size`. */
  async split(path: Raw, at: number, size: number): Promise<{ before: string; after: string }> {
    const both = await bulk("split", { path, at, size }, { bytes: size });
    this.read += size;
    return both;
  }

  /** Forgets files that are not there any more. */
  keepOnly(paths: ReadonlySet<Raw>): void {
    for (const path of this.#known.keys()) if (!paths.has(path)) this.#known.delete(path);
  }

  get count(): number {
    return this.#known.size;
  }

  async #digestFile(path: Raw, size: number, oid: ObjectFormat | null): Promise<Digest> {
    const digest = await bulk("digest", { path, size, oid }, { bytes: size });
    this.read += size;
    return digest;
  }
}

function digestLink(path: Raw, oid: ObjectFormat | null): Digest {
  const target = linkTarget(path);
  return {
    sha256: createHash("sha256").update(target).digest("hex"),
    oid: oid === null ? null : createHash(oid).update(`blob ${target.length}\0`).update(target).digest("hex"),
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
