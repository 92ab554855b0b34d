/** Takes the conversations as they are now, against what the parent checkpoint recorded: only what is new is sent. */
import { closeSync, constants as fs, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as breathe, setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { bulk } from "./bulk.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import { scanConversations, stampOf, type ConversationFile, type ConversationRoot } from "./conversation-scan.ts";
import { encodePath } from "./path-text.ts";
import { pieceAt, pieceWithPrefix, PIECE } from "./pieces.ts";
import type { ConversationRecord, RecordedFile, RecordedSegment } from "./conversation-record.ts";
import { isSettled } from "./settled.ts";
import { copySqlite } from "./sqlite-copy.ts";

export interface CaptureOptions {
  /** What the parent checkpoint recorded; none: everything is sent. */
  readonly parent: ConversationRecord | null;
  /** The name under which the record refers to the archive that the entries will be written to. */
  readonly part: string;
  /** An existing folder on the same disk for copies; the caller removes it once the archive is written. */
  readonly scratch: string;
  /**
   * How it is made sure that a file over 8 MiB that grew was only appended to: `edges` looks at its first and last 64 KiB,
   * `full` hashes it (before a sandbox is destroyed). Smaller ones are always hashed.
   */
  readonly prefix: "edges" | "full";
  /** Where conversations are; none: where those of the known harnesses are. */
  readonly roots?: readonly ConversationRoot[] | undefined;
  readonly signal?: AbortSignal;
}

export interface Capture {
  /** What is new, for one archive; empty when nothing has to be sent. */
  readonly entries: ArchiveEntry[];
  readonly record: ConversationRecord;
  /** False: files, modes and bytes are the parent's. */
  readonly changed: boolean;
  readonly warnings: string[];
}

/** A file that ends in the middle of a line is looked at for this long: is someone writing it? */
const SETTLE_MS = 150;
const HASHED_WHOLE = 8 * 1024 * 1024;
const EDGE = 64 * 1024;
const MANY_PARTS = 16;
const MOST_PARTS = 32;

/** @throws HangarError `checkpoint_failed` when a conversation cannot be read. */
export async function captureConversations(home: string, options: CaptureOptions): Promise<Capture> {
  const lookedAt = Date.now();
  const { files, warnings } = scanConversations(home, options.roots);
  const before = new Map((options.parent?.files ?? []).map((file) => [file.path, file]));
  const taken: Taken[] = [];
  for (const file of files) {
    options.signal?.throwIfAborted();
    const known = before.get(encodePath(file.path)) ?? null;
    const one = await take(file, known, options, taken.length);
    if (one === null) continue;
    taken.push(one);
    if (one.warning) warnings.push(one.warning);
  }
  const gone = before.size - taken.filter((one) => before.has(one.record.path)).length;
  const changed = options.parent === null || gone > 0 || taken.some((one) => one.changed);
  const merged = mergeParts(taken, options);
  return {
    entries: merged.flatMap((one) => (one.entry ? [one.entry] : [])),
    record: recordOf(merged, options, lookedAt),
    changed,
    warnings,
  };
}

interface Taken {
  readonly file: ConversationFile;
  /** What holds its bytes: the file, or a copy of it. */
  readonly bytes: Buffer;
  readonly record: RecordedFile;
  /** The bytes that are to be sent; none: an earlier part has all of them. */
  readonly entry: ArchiveEntry | null;
  readonly changed: boolean;
  readonly warning?: string;
}

/** None: the file went away since it was listed. */
async function take(
  file: ConversationFile,
  known: RecordedFile | null,
  options: CaptureOptions,
  number: number,
): Promise<Taken | null> {
  const same = known?.kind === file.kind ? known : null;
  if (file.kind === "symlink") return takeLink(file, same, options);
  const trusted = same !== null && same.stamp === file.stamp && isSettled(file.ctime, options.parent?.looked_at ?? 0);
  if (trusted)
    return {
      file,
      bytes: file.abs,
      record: { ...same, mode: file.mode },
      entry: null,
      changed: same.mode !== file.mode,
    };
  try {
    return file.sqlite ? await takeSqlite(file, same, options, number) : await takeFile(file, file.abs, same, options);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP") return null;
    if (cause instanceof HangarError || code === undefined) throw cause;
    throw new HangarError(
      "checkpoint_failed",
      `The conversation ~/${file.path.toString("utf8")} cannot be read (${code})`,
      { cause },
    );
  }
}

function takeLink(file: ConversationFile, same: RecordedFile | null, options: CaptureOptions): Taken {
  const link = file.link ?? Buffer.alloc(0);
  const kept = same?.link === encodePath(link) ? same.segments : null;
  const segments = kept ?? [{ offset: 0, size: 0, part: options.part }];
  const record: RecordedFile = {
    path: encodePath(file.path),
    kind: "symlink",
    mode: 0o777,
    size: 0,
    link: encodePath(link),
    stamp: file.stamp,
    pieces: [],
    segments,
  };
  return {
    file,
    bytes: file.abs,
    record,
    entry: kept ? null : entryOf(file, file.abs, record, 0),
    changed: kept === null,
  };
}

/** A store is sent whole: its pages change in the middle. */
async function takeSqlite(
  file: ConversationFile,
  same: RecordedFile | null,
  options: CaptureOptions,
  number: number,
): Promise<Taken> {
  const copy = join(options.scratch, `store-${number}`);
  const whole = await copySqlite(file.abs, copy);
  const bytes = Buffer.from(copy);
  const taken = await takeFile(
    { ...file, abs: bytes },
    bytes,
    same,
    { ...options, prefix: "full" },
    { stamp: file.stamp, base: true },
  );
  const warning = `~/${file.path.toString("utf8")} is no SQLite store that can be read: its bytes are kept as they are`;
  return whole ? taken : { ...taken, warning };
}

async function takeFile(
  file: ConversationFile,
  bytes: Buffer,
  same: RecordedFile | null,
  options: CaptureOptions,
  sqlite?: { stamp: string; base: boolean },
): Promise<Taken> {
  const fd = openSync(bytes, fs.O_RDONLY | fs.O_NOFOLLOW | fs.O_NONBLOCK);
  try {
    const { size, stamp } = await consistentEnd(fd, file.path, sqlite !== undefined);
    const before = same !== null && same.size <= size && (!sqlite || same.size === size) ? same : null;
    const continued = before && (await continuedPieces(fd, size, before, options.prefix));
    const kept: RecordedSegment[] =
      before !== null && continued !== null && (before.size > 0 || size === 0) ? before.segments : [];
    const offset = kept.length > 0 ? (before?.size ?? 0) : 0;
    const segments = [...kept];
    if (kept.length === 0 || size > offset) segments.push({ offset, size: size - offset, part: options.part });
    const record: RecordedFile = {
      path: encodePath(file.path),
      kind: "file",
      mode: file.mode,
      size,
      link: null,
      stamp: sqlite ? sqlite.stamp : stamp,
      pieces: continued ?? (await allPieces(fd, size)),
      segments,
    };
    const sent = segments.length > kept.length;
    return {
      file,
      bytes,
      record,
      entry: sent ? entryOf(file, bytes, record, offset) : null,
      changed: sent || same?.mode !== file.mode,
    };
  } finally {
    closeSync(fd);
  }
}

/**
 * How many bytes of the file are a consistent prefix. A `.jsonl` that ends in the middle of a line while it is being
 * written is cut after its last whole line; one that a crash left so keeps its every byte.
 */
async function consistentEnd(
  fd: number,
  path: Buffer,
  still: boolean,
): Promise<{ size: number; stamp: string | null }> {
  const look = (): { size: number; stamp: string } => {
    const stat = fstatSync(fd, { bigint: true });
    return { size: Number(stat.size), stamp: stampOf([stat]) };
  };
  let now = look();
  if (still || !path.toString("latin1").endsWith(".jsonl")) return now;
  if (endsLine(fd, now.size)) return now;
  const first = now.stamp;
  for (const end = Date.now() + SETTLE_MS; Date.now() < end;) {
    await sleep(10);
    now = look();
    if (endsLine(fd, now.size)) return now;
  }
  if (now.stamp === first) return now;
  return { size: lastLineEnd(fd, now.size), stamp: null };
}

function endsLine(fd: number, size: number): boolean {
  if (size === 0) return true;
  const last = Buffer.alloc(1);
  return readSync(fd, last, 0, 1, size - 1) === 1 && last[0] === 0x0a;
}

function lastLineEnd(fd: number, size: number): number {
  const buffer = Buffer.alloc(EDGE);
  for (let end = size; end > 0;) {
    const start = Math.max(0, end - buffer.length);
    const read = readSync(fd, buffer, 0, end - start, start);
    const newline = buffer.subarray(0, read).lastIndexOf(0x0a);
    if (newline >= 0) return start + newline + 1;
    end = start;
  }
  return 0;
}

/**
 * The pieces of a file that begins with what is known of it, each byte read once; none: it does not.
 * @param how `edges`: of a large file only the ends of what is known are read again.
 */
async function continuedPieces(
  fd: number,
  size: number,
  known: RecordedFile,
  how: "edges" | "full",
): Promise<string[] | null> {
  const whole = Math.floor(known.size / PIECE);
  const edges = how === "edges" && known.size > HASHED_WHOLE;
  for (let i = 0; i < whole; i++) {
    const isEdge = i === 0 || i === known.pieces.length - 1;
    if (edges && !isEdge) continue;
    if (pieceAt(fd, i * PIECE, PIECE) !== known.pieces[i]) return null;
    if (i > 0) await breathe();
  }
  const pieces = known.pieces.slice(0, whole);
  if (whole < known.pieces.length) {
    const at = whole * PIECE;
    const { prefix, piece } = pieceWithPrefix(fd, at, known.size - at, Math.min(PIECE, size - at));
    if (prefix !== known.pieces[whole]) return null;
    pieces.push(piece);
  }
  return await allPieces(fd, size, pieces);
}

const allPieces = (fd: number, size: number, known: readonly string[] = []): Promise<string[]> =>
  bulk("pieces", { fd, size, known }, { bytes: size - known.length * PIECE });

function entryOf(file: ConversationFile, bytes: Buffer, record: RecordedFile, offset: number): ArchiveEntry {
  const common = { path: file.path, mode: record.mode, mtime: file.mtime };
  if (file.kind === "symlink") return { ...common, kind: "symlink", size: 0, link: file.link ?? Buffer.alloc(0) };
  return {
    ...common,
    kind: "file",
    size: record.size - offset,
    content: { file: bytes, offset },
    ...(offset > 0 && { segment: offset }),
  };
}

/**
 * Keeps the number of parts small at a cost that grows with the logarithm of what was written: once there are many, what the
 * newest ones hold is sent again with the new part, for as long as the next older one is not more than twice all of that.
 */
function mergeParts(taken: readonly Taken[], options: CaptureOptions): Taken[] {
  const sizes = new Map<string, number>();
  for (const { record } of taken)
    for (const { part, size } of record.segments) sizes.set(part, (sizes.get(part) ?? 0) + size);
  const older = (options.parent?.parts ?? []).filter((part) => sizes.has(part));
  if (older.length < MANY_PARTS || !taken.some((one) => one.entry)) return [...taken];
  let sum = sizes.get(options.part) ?? 0;
  let first = older.length;
  for (; first > 0; first--) {
    const size = sizes.get(older[first - 1] ?? "") ?? 0;
    if (size > 2 * sum && first < MOST_PARTS) break;
    sum += size;
  }
  const again = new Set(older.slice(first));
  return taken.map((one) => sendAgain(one, again, options));
}

/** A file's segments in the newest parts are its last ones: they become one. */
function sendAgain(one: Taken, again: ReadonlySet<string>, options: CaptureOptions): Taken {
  const { record, file, bytes } = one;
  const from = record.segments.findIndex((segment) => again.has(segment.part));
  // An unchanged store was not copied, and its file alone may not be all of it.
  if (from < 0 || (file.sqlite && one.entry === null)) return one;
  const offset = record.segments[from]?.offset ?? 0;
  if (record.kind === "symlink") {
    const segments = record.segments.map((segment) => ({ ...segment, part: options.part }));
    const moved = { ...record, segments };
    return { ...one, record: moved, entry: entryOf(file, bytes, moved, 0) };
  }
  const segment = { offset, size: record.size - offset, part: options.part };
  const moved = { ...record, segments: [...record.segments.slice(0, from), segment] };
  return { ...one, record: moved, entry: entryOf(file, bytes, moved, offset) };
}

function recordOf(taken: readonly Taken[], options: CaptureOptions, lookedAt: number): ConversationRecord {
  const used = new Set(taken.flatMap(({ record }) => record.segments.map(({ part }) => part)));
  const parts = (options.parent?.parts ?? []).filter((part) => used.has(part) && part !== options.part);
  if (used.has(options.part)) parts.push(options.part);
  return { looked_at: lookedAt, parts, files: taken.map(({ record }) => record) };
}
