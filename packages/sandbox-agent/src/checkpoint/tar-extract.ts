/** Unpacks an archive under one folder and nowhere else. */
import {
  closeSync,
  constants as fs,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  futimesSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeSync,
  chmodSync,
  utimesSync,
} from "node:fs";
import { randomBytes } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { orDiskFull } from "./disk-full.ts";
import { invalid, type ArchiveEntry } from "./tar-header.ts";
import { readMembers, type Member, type ReadLimits } from "./tar-read.ts";

export interface ExtractOptions extends ReadLimits {
  /** `kept`: as archived; `now`: the time of unpacking (harnesses sweep old transcripts by their time). */
  readonly times?: "kept" | "now";
  /** A folder in a file's place is removed with all it holds; a file or link in a folder's place too. Else both are refused. */
  readonly replace?: boolean;
  /** Throws for what this archive may not hold. Called before anything of the member is written. */
  readonly check?: (entry: ArchiveEntry) => void;
  /** False: this member is skipped. Called after `check`. */
  readonly want?: (entry: ArchiveEntry) => boolean;
}

/**
 * Writes each file to a temporary name beside its own and renames it, so that a name holds its old or its new content,
 * whole. Folders are made as needed; nothing is followed through a link; a segment is written behind what is there, which
 * must end exactly where it begins.
 * @param root an existing folder; its own path may lead through links.
 * @returns the paths that were written, in the archive's order.
 * @throws HangarError `checkpoint_invalid` (see `readArchive`, and for what leaves the root), `disk_full`.
 */
export async function extractArchive(
  source: AsyncIterable<Buffer>,
  root: string,
  options: ExtractOptions = {},
): Promise<{ paths: Buffer[] }> {
  const target = new Target(Buffer.from(root), options);
  const paths: Buffer[] = [];
  try {
    await readMembers(
      source,
      async (member) => {
        options.check?.(member.entry);
        if (options.want?.(member.entry) === false) return;
        await target.write(member);
        paths.push(member.entry.path);
      },
      options,
    );
    target.finish();
  } catch (cause) {
    throw orDiskFull(cause, root);
  }
  return { paths };
}

class Target {
  readonly #root: Buffer;
  readonly #options: ExtractOptions;
  /** Folders known to be real ones, by their path below the root in Latin-1. */
  readonly #folders = new Set<string>([""]);
  /** Links that this archive made: what would go through one is an attack, not a change of type. */
  readonly #links = new Set<string>();
  readonly #directories: ArchiveEntry[] = [];
  /** Temporary names that no one can have made before. */
  readonly #mark = randomBytes(8).toString("hex");
  #count = 0;

  constructor(root: Buffer, options: ExtractOptions) {
    this.#root = root;
    this.#options = options;
  }

  async write(member: Member): Promise<void> {
    const { entry } = member;
    const parent = parentOf(entry.path);
    this.#folder(parent, entry);
    const at = this.#at(entry.path);
    if (entry.kind === "directory") {
      this.#folder(entry.path, entry);
      this.#directories.push(entry);
      return;
    }
    if (entry.kind === "file" && entry.segment !== undefined && entry.segment > 0) {
      await this.#append(member, at);
      return;
    }
    const name = `.hangar-${this.#mark}-${this.#count++}.tmp`;
    const temporary = this.#at(
      parent.length === 0 ? Buffer.from(name) : Buffer.concat([parent, Buffer.from(`/${name}`)]),
    );
    try {
      if (entry.kind === "symlink") this.#link(entry, temporary);
      else await this.#file(member, temporary);
      this.#put(entry, temporary, at);
    } catch (error) {
      rmSync(temporary, { force: true });
      throw error;
    }
  }

  /** Folders get their mode and time last: one may be closed to writing. */
  finish(): void {
    for (const entry of this.#directories.toReversed()) {
      const at = this.#at(entry.path);
      const now = lstatSync(at, { throwIfNoEntry: false });
      if (!now?.isDirectory()) continue;
      chmodSync(at, entry.mode);
      if (this.#options.times !== "now") utimesSync(at, timeOf(entry), timeOf(entry));
    }
  }

  #at(path: Buffer): Buffer {
    return path.length === 0 ? this.#root : Buffer.concat([this.#root, Buffer.from("/"), path]);
  }

  async #file({ entry, content, whole }: Member, temporary: Buffer): Promise<void> {
    const fd = openSync(temporary, fs.O_WRONLY | fs.O_CREAT | fs.O_EXCL | fs.O_NOFOLLOW, 0o600);
    try {
      const all = whole();
      if (all !== null) writeAll(fd, all, null);
      else for await (const piece of content()) writeAll(fd, piece, null);
      fchmodSync(fd, entry.mode);
      if (this.#options.times !== "now") futimesSync(fd, timeOf(entry), timeOf(entry));
    } finally {
      closeSync(fd);
    }
  }

  #link(entry: ArchiveEntry, temporary: Buffer): void {
    symlinkSync(entry.link ?? Buffer.alloc(0), temporary);
    if (this.#options.times !== "now") lutimesSync(temporary, timeOf(entry), timeOf(entry));
  }

  #put(entry: ArchiveEntry, temporary: Buffer, at: Buffer): void {
    const key = entry.path.toString("latin1");
    const there = lstatSync(at, { throwIfNoEntry: false });
    if (there?.isDirectory()) {
      if (this.#options.replace) rmSync(at, { recursive: true, force: true });
      else removeEmpty(at, entry.path);
      this.#forget(key);
    }
    renameSync(temporary, at);
    if (entry.kind === "symlink") this.#links.add(key);
    else this.#links.delete(key);
  }

  async #append({ entry, content }: Member, at: Buffer): Promise<void> {
    const offset = entry.segment ?? 0;
    const there = lstatSync(at, { throwIfNoEntry: false });
    if (!there?.isFile()) throw invalid("a segment has nothing before it", entry.path);
    const fd = openAppend(at);
    try {
      const { size } = fstatSync(fd);
      if (size !== offset)
        throw invalid(`a segment begins at ${offset}, but ${size} bytes stand before it`, entry.path);
      let position = offset;
      for await (const piece of content()) {
        writeAll(fd, piece, position);
        position += piece.length;
      }
      ftruncateSync(fd, position);
      fchmodSync(fd, entry.mode);
      if (this.#options.times !== "now") futimesSync(fd, timeOf(entry), timeOf(entry));
    } finally {
      closeSync(fd);
    }
  }

  /** Makes sure that `path` and all above it are real folders. */
  #folder(path: Buffer, entry: ArchiveEntry): void {
    const key = path.toString("latin1");
    if (this.#folders.has(key)) return;
    this.#folder(parentOf(path), entry);
    const at = this.#at(path);
    const there = lstatSync(at, { throwIfNoEntry: false });
    if (there && !there.isDirectory()) {
      if (!this.#options.replace || this.#links.has(key))
        throw invalid(
          there.isSymbolicLink() ? "a member lies behind a link" : "a member lies below a file",
          entry.path,
        );
      unlinkSync(at);
    }
    if (!there?.isDirectory()) mkdirSync(at, { mode: 0o777 });
    this.#folders.add(key);
  }

  #forget(key: string): void {
    for (const folder of this.#folders)
      if (folder === key || folder.startsWith(`${key}/`)) this.#folders.delete(folder);
    for (const link of this.#links) if (link.startsWith(`${key}/`)) this.#links.delete(link);
  }
}

/** As a Date: Node takes a negative number for "now". */
const timeOf = (entry: ArchiveEntry): Date => new Date(entry.mtime * 1000);

function parentOf(path: Buffer): Buffer {
  const slash = path.lastIndexOf(0x2f);
  return slash < 0 ? Buffer.alloc(0) : path.subarray(0, slash);
}

function removeEmpty(at: Buffer, path: Buffer): void {
  try {
    rmdirSync(at);
  } catch (cause) {
    throw new HangarError(
      "checkpoint_invalid",
      `A folder that is not empty stands where ${JSON.stringify(path.toString("utf8"))} is to be put`,
      { cause },
    );
  }
}

function openAppend(at: Buffer): number {
  const flags = fs.O_WRONLY | fs.O_NOFOLLOW | fs.O_NONBLOCK;
  try {
    return openSync(at, flags);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EACCES") throw cause;
    // The segment before it made the file read-only, as the archive says.
    chmodSync(at, 0o600);
    return openSync(at, flags);
  }
}

function writeAll(fd: number, piece: Buffer, position: number | null): void {
  for (let at = 0; at < piece.length;)
    at += writeSync(fd, piece, at, piece.length - at, position === null ? null : position + at);
}
