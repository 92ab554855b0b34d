/**
 * One member's header of a tar file: POSIX ustar, with a pax header where ustar has no room. Names are raw bytes.
 *
 * What is written is deterministic (owner 0:0, no names, no access times). What is read is only what is written here:
 * files, symbolic links and directories under the root; all else is refused, since an archive may come from anyone.
 */
import { HangarError } from "@hangar/shared";

export interface ArchiveEntry {
  /** Relative, `/`-separated, no `.`, `..` or empty piece; any other byte but NUL. */
  readonly path: Buffer;
  readonly kind: "file" | "symlink" | "directory";
  /** Permission bits, at most 0o7777. */
  readonly mode: number;
  /** Seconds since 1970. */
  readonly mtime: number;
  /** Bytes of content; 0 for what is not a file. */
  readonly size: number;
  /** A symbolic link's target. */
  readonly link?: Buffer;
  /**
   * Set: this is a segment, `size` bytes that belong at this offset of `path`, which is `segment + size` long once it is
   * in place. By hand, segments are put together with `cat`: see `memberName`.
   */
  readonly segment?: number;
  readonly content?: { readonly file: Buffer; readonly offset: number } | { readonly bytes: Buffer };
}

export const BLOCK = 512;
const MAX_OCTAL_11 = 0o77777777777;
const SEGMENT_NAME = /@([0-9]{15})$/;
const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

/** All blocks that stand before the member's content. */
export function encodeHeader(entry: ArchiveEntry): Buffer {
  checkEntry(entry);
  const name = memberName(entry);
  const place = splitName(name);
  const records: Buffer[] = [];
  if (place === null) records.push(record("path", name));
  if (entry.link && entry.link.length > 100) records.push(record("linkpath", entry.link));
  if (entry.size > MAX_OCTAL_11) records.push(record("size", Buffer.from(String(entry.size))));
  const mtime = Math.floor(entry.mtime);
  const plainTime = mtime >= 0 && mtime <= MAX_OCTAL_11;
  if (!plainTime) records.push(record("mtime", Buffer.from(String(mtime))));

  const main = block({
    name: place?.name ?? name.subarray(0, 100),
    prefix: place?.prefix ?? Buffer.alloc(0),
    type: { file: "0", symlink: "2", directory: "5" }[entry.kind],
    mode: entry.mode,
    size: Math.min(entry.size, MAX_OCTAL_11),
    mtime: plainTime ? mtime : 0,
    link: (entry.link ?? Buffer.alloc(0)).subarray(0, 100),
  });
  if (records.length === 0) return main;
  // Says that the values are bytes of no character set; only where they are, since GNU tar warns of it (and obeys).
  if (!isUtf8(name) || (entry.link && !isUtf8(entry.link)))
    records.unshift(record("hdrcharset", Buffer.from("BINARY")));
  const body = Buffer.concat(records);
  const pax = block({
    name: Buffer.from("PaxHeader"),
    prefix: Buffer.alloc(0),
    type: "x",
    mode: 0o644,
    size: body.length,
    mtime: 0,
    link: Buffer.alloc(0),
  });
  return Buffer.concat([pax, body, Buffer.alloc(padding(body.length)), main]);
}

/** Zero bytes that fill content of this length up to whole blocks. */
export const padding = (size: number): number => (BLOCK - (size % BLOCK)) % BLOCK;

/**
 * The name a member has in the archive. A segment's is `path@` and its offset in 15 digits, so that `cat path@*` puts them
 * in order. A real file whose own name ends that way is itself written as the segment at 0 of that name: so every file
 * member that looks like a segment is one, and no reader needs to know more.
 */
export function memberName(entry: ArchiveEntry): Buffer {
  if (entry.kind === "directory") return Buffer.concat([entry.path, Buffer.from("/")]);
  if (entry.kind !== "file") return entry.path;
  const segment = entry.segment ?? (looksLikeSegment(entry.path) ? 0 : undefined);
  if (segment === undefined) return entry.path;
  return Buffer.concat([entry.path, Buffer.from(`@${String(segment).padStart(15, "0")}`)]);
}

export interface RawHeader {
  readonly type: string;
  readonly name: Buffer;
  readonly link: Buffer;
  readonly mode: number;
  readonly size: number;
  readonly mtime: number;
}

/** None: a block of zeros, which ends the archive. */
export function decodeBlock(b: Buffer): RawHeader | null {
  if (b.every((byte) => byte === 0)) return null;
  if (checksum(b) !== octal(b, 148, 8)) throw invalid("a header's checksum is wrong");
  if (b.toString("latin1", 257, 263) !== "ustar\0") throw invalid("a header is not POSIX ustar");
  const prefix = text(b, 345, 155);
  const name = text(b, 0, 100);
  return {
    type: String.fromCharCode(b[156] ?? 0),
    name: prefix.length > 0 ? Buffer.concat([prefix, Buffer.from("/"), name]) : name,
    link: text(b, 157, 100),
    mode: octal(b, 100, 8),
    size: octal(b, 124, 12),
    mtime: octal(b, 136, 12),
  };
}

/** The entry of a header and the pax records before it; throws where it is not one that is written here. */
export function decodeEntry(raw: RawHeader, pax: ReadonlyMap<string, Buffer>): ArchiveEntry {
  const kind = ({ "0": "file", "2": "symlink", "5": "directory" } as const)[raw.type];
  if (kind === undefined) throw invalid(`a member is of type ${JSON.stringify(raw.type)}, which is never unpacked`);
  let path = pax.get("path") ?? raw.name;
  let segment: number | undefined;
  if (kind === "directory" && path.at(-1) === 0x2f) path = path.subarray(0, -1);
  if (kind === "file") {
    const match = SEGMENT_NAME.exec(path.toString("latin1"));
    if (match) {
      segment = Number(match[1]);
      path = path.subarray(0, -16);
    }
  }
  const link = kind === "symlink" ? (pax.get("linkpath") ?? raw.link) : undefined;
  const entry: ArchiveEntry = {
    path,
    kind,
    mode: raw.mode & 0o7777,
    mtime: decimal(pax.get("mtime")) ?? raw.mtime,
    size: decimal(pax.get("size")) ?? raw.size,
    ...(link && { link }),
    ...(segment !== undefined && { segment }),
  };
  checkEntry(entry);
  return entry;
}

/** `length key=value\n`, the length counting itself. */
function record(key: string, value: Buffer): Buffer {
  const rest = key.length + value.length + 3;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from("\n")]);
}

export function decodePax(body: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const digits = space < 0 ? "" : body.toString("latin1", at, space);
    const end = at + Number(digits);
    const equals = body.indexOf(0x3d, space);
    if (!/^[1-9][0-9]{0,8}$/.test(digits) || end > body.length || equals < 0 || equals >= end || body[end - 1] !== 0x0a)
      throw invalid("a pax header is malformed");
    const key = body.toString("latin1", space + 1, equals);
    if (!["path", "linkpath", "size", "mtime", "hdrcharset"].includes(key) || records.has(key))
      throw invalid("a pax header has an unknown or repeated key");
    records.set(key, body.subarray(equals + 1, end - 1));
    at = end;
  }
  return records;
}

function checkEntry(entry: ArchiveEntry): void {
  const bad = pathProblem(entry.path);
  if (bad) throw invalid(`a member's name ${bad}`, entry.path);
  if (entry.link && (entry.link.length === 0 || entry.link.includes(0)))
    throw invalid("a link's target is empty or has a NUL", entry.path);
  if ((entry.kind === "symlink") !== (entry.link !== undefined)) throw invalid("a link has no target", entry.path);
  if (!Number.isSafeInteger(entry.size) || entry.size < 0 || (entry.kind !== "file" && entry.size !== 0))
    throw invalid("a member's size is impossible", entry.path);
  if (!Number.isSafeInteger(Math.floor(entry.mtime))) throw invalid("a member's time is impossible", entry.path);
  const segment = entry.segment;
  if (segment !== undefined && (entry.kind !== "file" || segment < 0 || segment + entry.size > 999_999_999_999_999))
    throw invalid("a segment's offset is impossible", entry.path);
}

/** Why a path may not be used, or none. */
export function pathProblem(path: Buffer): string | null {
  if (path.length === 0) return "is empty";
  if (path.length > 65_536) return "is too long";
  if (path.includes(0)) return "has a NUL";
  if (path[0] === 0x2f) return "is absolute";
  for (const piece of path.toString("latin1").split("/"))
    if (piece === "" || piece === "." || piece === "..") return "has an empty, `.` or `..` piece";
  return null;
}

export function invalid(why: string, path?: Buffer): HangarError {
  const where = path === undefined ? "" : ` (${JSON.stringify(path.toString("utf8")).slice(0, 200)})`;
  return new HangarError("checkpoint_invalid", `The archive is damaged or forged: ${why}${where}`);
}

/** ustar keeps 100 bytes of name and 155 of the folders before it. None: they do not fit. */
function splitName(name: Buffer): { name: Buffer; prefix: Buffer } | null {
  if (name.length <= 100) return { name, prefix: Buffer.alloc(0) };
  const slash = name.indexOf(0x2f, name.length - 101);
  if (slash <= 0 || slash > 155 || slash === name.length - 1) return null;
  return { name: name.subarray(slash + 1), prefix: name.subarray(0, slash) };
}

function block(h: {
  name: Buffer;
  prefix: Buffer;
  type: string;
  mode: number;
  size: number;
  mtime: number;
  link: Buffer;
}): Buffer {
  const b = Buffer.alloc(BLOCK);
  const put = (value: number, at: number, width: number): void => {
    b.write(value.toString(8).padStart(width - 1, "0"), at, "latin1");
  };
  h.name.copy(b, 0);
  put(h.mode & 0o7777, 100, 8);
  put(0, 108, 8);
  put(0, 116, 8);
  put(h.size, 124, 12);
  put(h.mtime, 136, 12);
  b.write(h.type, 156, "latin1");
  h.link.copy(b, 157);
  b.write("ustar\x0000", 257, "latin1");
  put(0, 329, 8);
  put(0, 337, 8);
  h.prefix.copy(b, 345);
  b.write(`${checksum(b).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return b;
}

/** The sum of the bytes, the checksum's own field taken as spaces. */
function checksum(b: Buffer): number {
  let sum = 8 * 0x20;
  for (let i = 0; i < BLOCK; i++) if (i < 148 || i >= 156) sum += b[i] ?? 0;
  return sum;
}

function octal(b: Buffer, at: number, width: number): number {
  const field = b.toString("latin1", at, at + width).replace(/[\0 ]+$/, "");
  if (!/^[0-7]*$/.test(field)) throw invalid("a number in a header is malformed");
  return field === "" ? 0 : Number.parseInt(field, 8);
}

function text(b: Buffer, at: number, width: number): Buffer {
  const field = b.subarray(at, at + width);
  const end = field.indexOf(0);
  // Copied: the block belongs to the reader's buffer.
  return Buffer.from(end < 0 ? field : field.subarray(0, end));
}

function decimal(value: Buffer | undefined): number | undefined {
  if (value === undefined) return undefined;
  const digits = value.toString("latin1");
  if (!/^-?[0-9]{1,16}$/.test(digits)) throw invalid("a number in a pax header is malformed");
  return Number(digits);
}

const looksLikeSegment = (path: Buffer): boolean => SEGMENT_NAME.test(path.toString("latin1", path.length - 16));

function isUtf8(bytes: Buffer): boolean {
  try {
    strictUtf8.decode(bytes);
    return true;
  } catch {
    return false;
  }
}
