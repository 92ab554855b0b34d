/**
 * Git's index file, read and written as bytes (Documentation/gitformat-index). Reading it here and not through git gives the
 * flags and the file times that no one git command prints, takes no lock, and costs no process.
 */
import { createHash } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { byBytes, type Raw } from "./raw.ts";

export interface IndexEntry {
  path: Raw;
  mode: number;
  oid: string;
  /** 0; 1 base, 2 ours, 3 theirs of a conflict. */
  stage: number;
  assumeUnchanged: boolean;
  skipWorktree: boolean;
  intentToAdd: boolean;
  /** Of the file when git last saw it equal: seconds and nanoseconds. */
  ctime: readonly [number, number];
  mtime: readonly [number, number];
  dev: number;
  /** The lower 32 bits, as size. */
  ino: number;
  uid: number;
  gid: number;
  size: number;
}

export interface IndexFile {
  readonly entries: IndexEntry[];
  /** The tree that the index would write, where git has noted it. */
  readonly tree: string | null;
  /** It leans on another file, or holds folders for files: have git write it out plainly first. */
  readonly needsExpansion: boolean;
}

const SHARED = new Set(["link", "sdir"]);

/** Throws `checkpoint_failed` where it is not an index that can be read. */
export function readIndex(file: Buffer, format: "sha1" | "sha256"): IndexFile {
  const hash = format === "sha256" ? 32 : 20;
  if (file.length < 12 + hash || file.toString("latin1", 0, 4) !== "DIRC") throw damaged("it does not begin as one");
  const version = file.readUInt32BE(4);
  if (version < 2 || version > 4) throw damaged(`its version is ${version}`);
  const count = file.readUInt32BE(8);
  const end = file.length - hash;
  const entries: IndexEntry[] = [];
  let at = 12;
  let previous = "";
  for (let i = 0; i < count; i++) {
    if (at + 42 + hash > end) throw damaged("it is cut off");
    const start = at;
    const flags = file.readUInt16BE(at + 40 + hash);
    const extended = (flags & 0x4000) !== 0 ? file.readUInt16BE(at + 42 + hash) : 0;
    let name = at + 42 + hash + ((flags & 0x4000) !== 0 ? 2 : 0);
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
    entries.push({
      path,
      ctime: [file.readUInt32BE(start), file.readUInt32BE(start + 4)],
      mtime: [file.readUInt32BE(start + 8), file.readUInt32BE(start + 12)],
      dev: file.readUInt32BE(start + 16),
      ino: file.readUInt32BE(start + 20),
      mode: file.readUInt32BE(start + 24),
      uid: file.readUInt32BE(start + 28),
      gid: file.readUInt32BE(start + 32),
      size: file.readUInt32BE(start + 36),
      oid: file.toString("hex", start + 40, start + 40 + hash),
      stage: (flags >> 12) & 3,
      assumeUnchanged: (flags & 0x8000) !== 0,
      skipWorktree: (extended & 0x4000) !== 0,
      intentToAdd: (extended & 0x2000) !== 0,
    });
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
  const isMore = (entry: IndexEntry): boolean => entry.skipWorktree || entry.intentToAdd;
  const lengthOf = (entry: IndexEntry): number => (42 + hash + (isMore(entry) ? 2 : 0) + entry.path.length + 8) & ~7;
  // A path has one character for each of its bytes.
  const total = entries.reduce((sum, entry) => sum + lengthOf(entry), 12);
  const out = Buffer.alloc(total + hash);
  out.write("DIRC", "latin1");
  out.writeUInt32BE(entries.some(isMore) ? 3 : 2, 4);
  out.writeUInt32BE(entries.length, 8);
  let at = 12;
  for (const entry of entries) {
    const more = isMore(entry);
    const { ctime, mtime, dev, ino, mode, uid, gid, size } = entry;
    out.writeUInt32BE(ctime[0] >>> 0, at);
    out.writeUInt32BE(ctime[1] >>> 0, at + 4);
    out.writeUInt32BE(mtime[0] >>> 0, at + 8);
    out.writeUInt32BE(mtime[1] >>> 0, at + 12);
    out.writeUInt32BE(dev >>> 0, at + 16);
    out.writeUInt32BE(ino >>> 0, at + 20);
    out.writeUInt32BE(mode >>> 0, at + 24);
    out.writeUInt32BE(uid >>> 0, at + 28);
    out.writeUInt32BE(gid >>> 0, at + 32);
    out.writeUInt32BE(size >>> 0, at + 36);
    out.write(entry.oid, at + 40, "hex");
    const flags =
      (entry.assumeUnchanged ? 0x8000 : 0) |
      (more ? 0x4000 : 0) |
      (entry.stage << 12) |
      Math.min(entry.path.length, 0xfff);
    out.writeUInt16BE(flags, at + 40 + hash);
    if (more) out.writeUInt16BE((entry.skipWorktree ? 0x4000 : 0) | (entry.intentToAdd ? 0x2000 : 0), at + 42 + hash);
    out.write(entry.path, at + 42 + hash + (more ? 2 : 0), "latin1");
    at += lengthOf(entry);
  }
  createHash(format).update(out.subarray(0, total)).digest().copy(out, total);
  return out;
}

const damaged = (why: string): HangarError =>
  new HangarError("checkpoint_failed", `The repository's index cannot be read: ${why}. Run git status in it`);
