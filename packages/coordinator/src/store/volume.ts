/**
 * The checkpoint store on a folder of the coordinator's own disk (or one that all replicas share).
 *
 * An object is a file. It is written to a temporary name, digest and length checked on the way, flushed, then linked to its
 * own name, which fails where that exists, and its folder flushed: so a name holds the whole object for good or nothing.
 */
import { createHash, randomBytes } from "node:crypto";
import { createReadStream, constants as fs, type BigIntStats } from "node:fs";
import { link, lstat, mkdir, open, opendir, readdir, rename, rmdir, unlink, type FileHandle } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Readable } from "node:stream";
import { HangarError } from "@hangar/shared";
import { checkKey, checkPrefix } from "./keys.ts";
import { signGet, signPut, type UrlSigner } from "./signing.ts";
import type { ObjectInfo, PutIntent, Store } from "./store.ts";

export interface VolumeOptions {
  /** The folder; made when it is not there. */
  readonly root: string;
  /** What sandboxes reach this coordinator at, `http://host:port`: the signed URLs begin with it. */
  readonly baseUrl: string;
  readonly signer: UrlSigner;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export interface VolumeStore extends Store {
  readonly signer: UrlSigner;
  readonly now: () => number;
  /** Create-only, from a stream. `object_exists`, `digest_mismatch` (also for another length), `disk_full`. */
  put(intent: PutIntent, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /** The object from `start` on, and its whole size. None: no such object. */
  stream(key: string, start: number): Promise<{ size: number; bytes: Readable } | null>;
}

/** No key has a `~`. */
const TEMPORARY = "~tmp";
/** Longer than any upload's URL holds: another replica may be writing the younger ones. */
const ABANDONED_MS = 24 * 3600 * 1000;
const MAX_READ = 1024 * 1024;

/** Opens the store; removes what uploads that were cut off left behind over a day ago. */
export async function openVolumeStore(options: VolumeOptions): Promise<VolumeStore> {
  const root = resolve(options.root);
  const now = options.now ?? Date.now;
  await disk("be made ready", async () => {
    await mkdir(join(root, TEMPORARY), { recursive: true, mode: 0o700 });
    await sweep(join(root, TEMPORARY), now());
  });
  const digests = new DigestCache();
  const at = (key: string): string => {
    checkKey(key);
    return join(root, key);
  };

  async function put(intent: PutIntent, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    const path = at(intent.key);
    if (await statOf(path)) throw new HangarError("object_exists");
    await disk("take an object", async () => {
      const temporary = join(root, TEMPORARY, randomBytes(12).toString("hex"));
      try {
        await write(temporary, intent, bytes);
        const stat = await publish(root, temporary, path);
        digests.set(path, stat, intent.sha256);
      } finally {
        await unlink(temporary).catch(ignoreMissing);
      }
    });
  }

  async function head(key: string): Promise<ObjectInfo | null> {
    const path = at(key);
    return await disk("be read", async () => {
      const stat = await statOf(path);
      if (stat === null) return null;
      const known = digests.get(path, stat);
      if (known) return { key, size: Number(stat.size), sha256: known };
      // No note of a digest lies beside an object: what counts is what the disk gives now.
      const { size, sha256 } = await digestOf(path);
      digests.set(path, stat, sha256);
      return { key, size, sha256 };
    });
  }

  return {
    name: `volume:${root}`,
    signer: options.signer,
    now,
    put,
    head,
    signPut: async (intent, expiresAt) => signPut(options.signer, options.baseUrl, intent, expiresAt),
    signGet: async (key, expiresAt) => signGet(options.signer, options.baseUrl, key, expiresAt),

    async stream(key, start) {
      const path = at(key);
      return await disk("be read", async () => {
        const handle = await openObject(path);
        if (handle === null) return null;
        const { size } = await handle.stat();
        if (start > 0 && start >= size) {
          await handle.close();
          throw new HangarError("invalid_request", `The object has ${size} bytes`);
        }
        return { size, bytes: createReadStream("", { fd: handle, start, highWaterMark: 256 * 1024 }) };
      });
    },

    async read(key) {
      const path = at(key);
      return await disk("be read", async () => {
        const handle = await openObject(path);
        if (handle === null) return null;
        try {
          if ((await handle.stat()).size > MAX_READ)
            throw new HangarError("internal", `${key} is too large to be read whole`);
          return await handle.readFile();
        } finally {
          await handle.close();
        }
      });
    },

    async create(key, bytes) {
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      await put({ key, size: bytes.length, sha256 }, once(bytes));
    },

    async replace(key, bytes) {
      const path = at(key);
      await disk("be written", async () => {
        const temporary = join(root, TEMPORARY, randomBytes(12).toString("hex"));
        try {
          const sha256 = createHash("sha256").update(bytes).digest("hex");
          await write(temporary, { key, size: bytes.length, sha256 }, once(bytes));
          await rename(temporary, path);
          await syncFolder(dirname(path));
        } finally {
          await unlink(temporary).catch(ignoreMissing);
        }
      });
    },

    async *list(prefix) {
      checkPrefix(prefix);
      const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
      for await (const key of keysUnder(root, folder)) if (key.startsWith(prefix)) yield key;
    },

    async delete(key) {
      const path = at(key);
      await disk("drop an object", async () => {
        await unlink(path).catch(ignoreMissing);
        await dropEmptyFolders(root, dirname(path));
      });
    },
  };
}

async function write(temporary: string, intent: PutIntent, bytes: AsyncIterable<Uint8Array>): Promise<void> {
  const handle = await open(temporary, "wx", 0o600);
  try {
    const hash = createHash("sha256");
    let size = 0;
    for await (const piece of bytes) {
      size += piece.length;
      if (size > intent.size)
        throw new HangarError("digest_mismatch", `The body is longer than the ${intent.size} bytes announced`);
      hash.update(piece);
      await writeAll(handle, piece);
    }
    if (size < intent.size)
      throw new HangarError("digest_mismatch", `The body ended after ${size} of ${intent.size} bytes`);
    if (hash.digest("hex") !== intent.sha256) throw new HangarError("digest_mismatch");
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function writeAll(handle: FileHandle, piece: Uint8Array): Promise<void> {
  for (let at = 0; at < piece.length;) at += (await handle.write(piece, at, piece.length - at)).bytesWritten;
}

/** Gives the finished file its name, unless it is taken. A folder may be dropped as empty meanwhile: then once more. */
async function publish(root: string, temporary: string, path: string): Promise<BigIntStats> {
  for (let attempt = 0; ; attempt++) {
    await makeFolders(root, dirname(path));
    try {
      await link(temporary, path);
      break;
    } catch (error) {
      const code = codeOf(error);
      if (code === "EEXIST") throw new HangarError("object_exists", undefined, { cause: error });
      if (code !== "ENOENT" || attempt >= 10) throw error;
    }
  }
  await unlink(temporary);
  await syncFolder(dirname(path));
  return await lstat(path, { bigint: true });
}

async function makeFolders(root: string, folder: string): Promise<void> {
  if (folder === root || (await statOf(folder))) return;
  await makeFolders(root, dirname(folder));
  await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
    if (codeOf(error) !== "EEXIST") throw error;
  });
  await syncFolder(dirname(folder)).catch(ignoreMissing);
}

async function dropEmptyFolders(root: string, folder: string): Promise<void> {
  for (let at = folder; at !== root; at = dirname(at)) {
    try {
      await rmdir(at);
    } catch {
      return;
    }
  }
}

async function* keysUnder(root: string, folder: string): AsyncGenerator<string> {
  let entries;
  try {
    entries = await opendir(join(root, folder));
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return;
    throw unavailable("be listed", error);
  }
  const folders: string[] = [];
  for await (const entry of entries) {
    if (entry.name === TEMPORARY && folder === "") continue;
    if (entry.isDirectory()) folders.push(`${folder}${entry.name}/`);
    else if (entry.isFile()) yield `${folder}${entry.name}`;
  }
  for (const below of folders) yield* keysUnder(root, below);
}

async function openObject(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, fs.O_RDONLY | fs.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return null;
    throw error;
  }
}

async function digestOf(path: string): Promise<{ size: number; sha256: string }> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const piece of createReadStream(path, { highWaterMark: 1024 * 1024 }) as AsyncIterable<Buffer>) {
    hash.update(piece);
    size += piece.length;
  }
  return { size, sha256: hash.digest("hex") };
}

async function statOf(path: string): Promise<BigIntStats | null> {
  try {
    return await lstat(path, { bigint: true });
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return null;
    throw error;
  }
}

async function sweep(folder: string, now: number): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const stat = await statOf(path);
    if (stat && now - Number(stat.mtimeMs) > ABANDONED_MS) await unlink(path).catch(ignoreMissing);
  }
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Digests of objects that were seen whole, as long as the file is the very same. Bounded. */
class DigestCache {
  readonly #known = new Map<string, string>();

  get(path: string, stat: BigIntStats): string | undefined {
    return this.#known.get(this.#key(path, stat));
  }

  set(path: string, stat: BigIntStats, sha256: string): void {
    if (this.#known.size >= 20_000) {
      const oldest = this.#known.keys().next().value;
      if (oldest !== undefined) this.#known.delete(oldest);
    }
    this.#known.set(this.#key(path, stat), sha256);
  }

  #key(path: string, stat: BigIntStats): string {
    return `${path}:${stat.ino}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`;
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Runs one piece of work on the disk; what the disk says becomes one of the port's errors. */
async function disk<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw unavailable(what, error);
  }
}

function unavailable(what: string, error: unknown): unknown {
  const code = codeOf(error);
  if (error instanceof HangarError || code === undefined) return error;
  if (code === "ENOSPC" || code === "EDQUOT")
    return new HangarError("disk_full", "The checkpoint store's disk is full: free some space and try again", {
      cause: error,
    });
  // A body that breaks off is its sender's trouble.
  if (code === "ECONNRESET" || code === "ABORT_ERR" || code === "ERR_STREAM_PREMATURE_CLOSE") return error;
  return new HangarError("store_unavailable", `The checkpoint store cannot ${what} (${code})`, { cause: error });
}

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;

function ignoreMissing(error: unknown): void {
  if (codeOf(error) !== "ENOENT") throw error;
}
