/**
 * Git's index file, read and written as bytes (Documentation/gitformat-index). Reading it here and not through git gives the
 * flags and the file times that no one git command prints, takes no lock, and costs no process.
 */
import { createHash } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { byBytes, type Raw } from "./raw.ts";

/** Of a file when git last saw it equal. */
export interface FileTimes {
  /** Seconds and nanoseconds. */
  readonly ctime: readonly [number, number];
  readonly mtime: readonly [number, number];
  readonly dev: number;
  /** The lower 32 bits, as size. */
  readonly ino: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
}

export interface IndexEntry extends FileTimes {
  readonly path: Raw;
  readonly mode: number;
  readonly oid: string;
  /** 0; 1 base, 2 ours, 3 theirs of a conflict. */
  readonly stage: number;
  readonly assumeUnchanged: boolean;
  readonly skipWorktree: boolean;
  readonly intentToAdd: boolean;
}

/** Where the fields of an entry lie in it; its id follows, then its flags. Numbers are big-endian. */
const CTIME = 0;
const MTIME = 8;
const DEV = 16;
const INO = 20;
const MODE = 24;
const UID = 28;
const GID = 32;
const SIZE = 36;
const OID = 40;

/**
 * An entry as it lies in the file, its fields read when they are asked for: of the 100,000 of a large repository most are
 * asked for little, and as objects they would take 40 MB.
 */
class StoredEntry implements IndexEntry {
  readonly path: Raw;
  readonly #of: { readonly file: Buffer; readonly hash: number };
  readonly #at: number;

  constructor(of: { readonly file: Buffer; readonly hash: number }, at: number, path: Raw) {
    this.#of = of;
    this.#at = at;
    this.path = path;
  }

  /** All of it up to its flags. */
  get head(): Buffer {
    return this.#of.file.subarray(this.#at, this.#flagsAt);
  }

  get ctime(): readonly [number, number] {
    return this.#pair(CTIME);
  }
  get mtime(): readonly [number, number] {
    return this.#pair(MTIME);
  }
  get dev(): number {
    return this.#of.file.readUInt32BE(this.#at + DEV);
  }
  get ino(): number {
    return this.#of.file.readUInt32BE(this.#at + INO);
  }
  get mode(): number {
    return this.#of.file.readUInt32BE(this.#at + MODE);
  }
  get uid(): number {
    return this.#of.file.readUInt32BE(this.#at + UID);
  }
  get gid(): number {
    return this.#of.file.readUInt32BE(this.#at + GID);
  }
  get size(): number {
    return this.#of.file.readUInt32BE(this.#at + SIZE);
  }
  get oid(): string {
    return this.#of.file.toString("hex", this.#at + OID, this.#flagsAt);
  }
  get stage(): number {
    return (this.#flags >> 12) & 3;
  }
  get assumeUnchanged(): boolean {
    return (this.#flags & ASSUME_UNCHANGED) !== 0;
  }
  get skipWorktree(): boolean {
    return (this.#more & SKIP_WORKTREE) !== 0;
  }
  get intentToAdd(): boolean {
    return (this.#more & INTENT_TO_ADD) !== 0;
  }

  get #flagsAt(): number {
    return this.#at + OID + this.#of.hash;
  }
  get #flags(): number {
    return this.#of.file.readUInt16BE(this.#flagsAt);
  }
  get #more(): number {
    return (this.#flags & EXTENDED) === 0 ? 0 : this.#of.file.readUInt16BE(this.#flagsAt + 2);
  }
  #pair(field: number): readonly [number, number] {
    return [this.#of.file.readUInt32BE(this.#at + field), this.#of.file.readUInt32BE(this.#at + field + 4)];
  }
}

const ASSUME_UNCHANGED = 0x8000;
const EXTENDED = 0x4000;
const SKIP_WORKTREE = 0x4000;
const INTENT_TO_ADD = 0x2000;

export interface IndexFile {
  readonly entries: IndexEntry[];
  /** The tree that the index would write, where git has noted it. */
  readonly tree: string | null;
  /** It leans on another file, or holds folders for files: have git write it out plainly first. */
  readonly needsExpansion: boolean;
}

const SHARED = new Set(["link", "sdir"]);

/** Throws `checkpoint_failed` where it is not an index that can be read. The entries keep `file` alive. */
export function readIndex(file: Buffer, format: "sha1" | "sha256"): IndexFile {
  const hash = format === "sha256" ? 32 : 20;
  if (file.length < 12 + hash || file.toString("latin1", 0, 4) !== "DIRC") throw damaged("it does not begin as one");
  const version = file.readUInt32BE(4);
  if (version < 2 || version > 4) throw damaged(`its version is ${version}`);
  const count = file.readUInt32BE(8);
  const end = file.length - hash;
  const of = { file, hash };
  const entries: IndexEntry[] = [];
  let at = 12;
  let previous = "";
  for (let i = 0; i < count; i++) {
    if (at + OID + hash + 2 > end) throw damaged("it is cut off");
    const start = at;
    const isExtended = (file.readUInt16BE(at + OID + hash) & EXTENDED) !== 0;
    let name = at + OID + hash + (isExtended ? 4 : 2);
    let path: Raw;
    if (version === 4) {
      let byte = file[name++] ?? 0;
      let strip = byte & 0x7f;
      while (byte & 0x80) {
        byte = file[name++] ?? 0;
        strip = ((strip + 1) << 7) | (byte & 0x7f);
      }
      const nul = file.indexOf(0, name);
      if (nul < 0 || nul > end || strip > previous.length) throw damaged("a name is cut off");
      path = previous.slice(0, previous.length - strip) + file.toString("latin1", name, nul);
      at = nul + 1;
    } else {
      const nul = file.indexOf(0, name);
      if (nul < 0 || nul > end) throw damaged("a name is cut off");
      path = file.toString("latin1", name, nul);
      at = start + ((nul - start + 8) & ~7);
    }
    previous = path;
    entries.push(new StoredEntry(of, start, path));
  }
  let tree: string | null = null;
  let needsExpansion = false;
  while (at + 8 <= end) {
    const name = file.toString("latin1", at, at + 4);
    const size = file.readUInt32BE(at + 4);
    if (name === "TREE") tree = rootOf(file.subarray(at + 8, at + 8 + size), hash);
    if (SHARED.has(name)) needsExpansion = true;
    at += 8 + size;
  }
  return { entries, tree, needsExpansion };
}

/** The cache tree's root: an empty name, a count (−1: not known), a space, the number of subtrees, a newline, the id. */
function rootOf(extension: Buffer, hash: number): string | null {
  const newline = extension.indexOf(0x0a);
  if (extension[0] !== 0 || newline < 0) return null;
  const count = Number(extension.toString("latin1", 1, newline).split(" ")[0]);
  return count < 0 ? null : extension.toString("hex", newline + 1, newline + 1 + hash);
}

/** Version 2, or 3 where an entry needs more flags; no extensions. Sorts the entries. */
export function writeIndex(entries: IndexEntry[], format: "sha1" | "sha256"): Buffer {
  entries.sort((a, b) => byBytes(a.path, b.path) || a.stage - b.stage);
  const hash = format === "sha256" ? 32 : 20;
  const flagsAt = OID + hash;
  const isMore = (entry: IndexEntry): boolean => entry.skipWorktree || entry.intentToAdd;
  const lengthOf = (path: Raw, more: boolean): number => (flagsAt + (more ? 4 : 2) + path.length + 8) & ~7;
  let total = 12;
  let isVersion3 = false;
  for (const entry of entries) {
    const more = isMore(entry);
    isVersion3 ||= more;
    // A path has one character for each of its bytes.
    total += lengthOf(entry.path, more);
  }
  const out = Buffer.alloc(total + hash);
  out.write("DIRC", "latin1");
  out.writeUInt32BE(isVersion3 ? 3 : 2, 4);
  out.writeUInt32BE(entries.length, 8);
  let at = 12;
  for (const entry of entries) {
    const { path } = entry;
    const more = isMore(entry);
    if (entry instanceof StoredEntry && entry.head.length === flagsAt) entry.head.copy(out, at);
    else writeHead(entry, out, at);
    const flags =
      (entry.assumeUnchanged ? ASSUME_UNCHANGED : 0) |
      (more ? EXTENDED : 0) |
      (entry.stage << 12) |
      Math.min(path.length, 0xfff);
    out.writeUInt16BE(flags, at + flagsAt);
    if (more)
      out.writeUInt16BE(
        (entry.skipWorktree ? SKIP_WORKTREE : 0) | (entry.intentToAdd ? INTENT_TO_ADD : 0),
        at + flagsAt + 2,
      );
    out.write(path, at + flagsAt + (more ? 4 : 2), "latin1");
    at += lengthOf(path, more);
  }
  createHash(format).update(out.subarray(0, total)).digest().copy(out, total);
  return out;
}

function writeHead({ ctime, mtime, dev, ino, mode, uid, gid, size, oid }: IndexEntry, out: Buffer, at: number): void {
  out.writeUInt32BE(ctime[0] >>> 0, at + CTIME);
  out.writeUInt32BE(ctime[1] >>> 0, at + CTIME + 4);
  out.writeUInt32BE(mtime[0] >>> 0, at + MTIME);
  out.writeUInt32BE(mtime[1] >>> 0, at + MTIME + 4);
  out.writeUInt32BE(dev >>> 0, at + DEV);
  out.writeUInt32BE(ino >>> 0, at + INO);
  out.writeUInt32BE(mode >>> 0, at + MODE);
  out.writeUInt32BE(uid >>> 0, at + UID);
  out.writeUInt32BE(gid >>> 0, at + GID);
  out.writeUInt32BE(size >>> 0, at + SIZE);
  out.write(oid, at + OID, "hex");
}

const damaged = (why: string): HangarError =>
  new HangarError("checkpoint_failed", `The repository's index cannot be read: ${why}. Run git status in it`);
