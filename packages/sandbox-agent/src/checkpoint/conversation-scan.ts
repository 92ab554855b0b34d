/**
 * Which files under a home are conversations: an allow-list of folders, for every harness, since a session may switch.
 * Credentials, settings, logs and caches lie outside these folders and are never looked at.
 */
import { lstatSync, readdirSync, readlinkSync, realpathSync, type BigIntStats } from "node:fs";

export interface ConversationFile {
  /** Relative to the home; as the harness finds it, so a link to a folder may lie on the way. */
  readonly path: Buffer;
  readonly abs: Buffer;
  readonly kind: "file" | "symlink";
  readonly mode: number;
  /** Seconds since 1970. */
  readonly mtime: number;
  readonly size: number;
  readonly link?: Buffer;
  /** Equal stamps, the file not having changed just before the look, mean equal bytes. */
  readonly stamp: string;
  /** Milliseconds since 1970, of the newest of the files that the stamp speaks of. */
  readonly ctime: number;
  /** A SQLite store: its bytes count only together with those of its `-wal` and `-journal`. */
  readonly sqlite: boolean;
}

export interface ConversationRoot {
  readonly harness: string;
  readonly folder: string;
  /** Whether a file of that name counts; all when absent. */
  readonly only?: (name: string) => boolean;
}

export const CONVERSATION_ROOTS: readonly ConversationRoot[] = [
  { harness: "claude", folder: ".claude/projects" },
  { harness: "codex", folder: ".codex/sessions" },
  { harness: "pi", folder: ".pi/agent/sessions" },
  { harness: "antigravity", folder: ".gemini/antigravity-cli/conversations", only: (name) => name.endsWith(".db") },
  { harness: "script", folder: ".hangar-script/sessions", only: (name) => name.endsWith(".jsonl") },
];

/** Where harnesses and other programs keep credentials: a link out of a conversation folder into these is not followed. */
const PRIVATE_FOLDERS = new Set([
  ".claude",
  ".codex",
  ".pi",
  ".gemini",
  ".ssh",
  ".gnupg",
  ".aws",
  ".config",
  ".hangar",
  ".kube",
]);
/** Never taken from a folder that was reached by a link, whatever it is. */
const CREDENTIAL_NAME =
  /^(?:auth\.json|\.?credentials(?:\..*)?|oauth_creds\.json|\.claude\.json|settings(?:\.local)?\.json|config\.toml|models\.json|id_[a-z0-9]+|.*\.(?:key|pem|p12))$/i;
const COMPANION = /\.db-(?:wal|shm|journal)$/;

/**
 * Sorted by path. Special files are passed over; `warnings` names what was meant to be kept and cannot be: a folder or
 * file that cannot be read, a link that leads out of the home.
 */
export function scanConversations(
  home: string,
  roots: readonly ConversationRoot[] = CONVERSATION_ROOTS,
): { files: ConversationFile[]; warnings: string[] } {
  const scan: Scan = { home, realHome: realOf(Buffer.from(home)) ?? home, roots: [], files: [], warnings: [] };
  for (const root of roots) {
    const real = realOf(Buffer.from(`${home}/${root.folder}`));
    if (real !== null) scan.roots.push(real);
  }
  for (const root of roots) scanRoot(scan, root);
  scan.files.sort((a, b) => Buffer.compare(a.path, b.path));
  return { files: scan.files, warnings: scan.warnings };
}

interface Scan {
  readonly home: string;
  readonly realHome: string;
  /** The real paths (Latin-1 for bytes) of the allowed folders that are there. */
  readonly roots: string[];
  readonly files: ConversationFile[];
  readonly warnings: string[];
}

interface Place {
  readonly root: ConversationRoot;
  readonly path: Buffer;
  /** Reached by a link. */
  readonly linked: boolean;
  /** Real paths of the folders on the way, so that a loop of links ends. */
  readonly within: readonly string[];
}

function scanRoot(scan: Scan, root: ConversationRoot): void {
  const abs = Buffer.from(`${scan.home}/${root.folder}`);
  const real = realOf(abs);
  if (real === null) return;
  if (!inside(real, scan.realHome)) {
    scan.warnings.push(`~/${root.folder} leads out of the home (to ${real}): its conversations are not kept`);
    return;
  }
  const linked = real !== `${scan.realHome}/${root.folder}`;
  folder(scan, { root, path: Buffer.from(root.folder), linked, within: [real] });
}

function folder(scan: Scan, place: Place): void {
  const abs = absolute(scan, place.path);
  let names: Buffer[];
  try {
    names = readdirSync(abs, { encoding: "buffer" });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== "ENOENT" && code !== "ENOTDIR")
      scan.warnings.push(`~/${shown(place.path)} cannot be read (${code}): not kept`);
    return;
  }
  for (const name of names)
    member(scan, place, Buffer.concat([place.path, Buffer.from("/"), name]), name.toString("latin1"));
}

function member(scan: Scan, place: Place, path: Buffer, name: string): void {
  const abs = absolute(scan, path);
  const stat = lstatSync(abs, { bigint: true, throwIfNoEntry: false });
  if (stat === undefined) return;
  if (stat.isDirectory()) folder(scan, { ...place, path });
  else if (stat.isSymbolicLink()) link(scan, place, path, stat);
  else if (stat.isFile()) {
    if (COMPANION.test(name) || (place.root.only && !place.root.only(name))) return;
    if (place.linked && CREDENTIAL_NAME.test(name)) return;
    scan.files.push(fileOf(scan, path, stat, name.endsWith(".db")));
  }
}

/** A link to a file stays a link. One to a folder is followed where that is safe, else it is said. */
function link(scan: Scan, place: Place, path: Buffer, stat: BigIntStats): void {
  const abs = absolute(scan, path);
  const real = realOf(abs);
  const toFolder =
    real !== null && lstatSync(Buffer.from(real, "latin1"), { throwIfNoEntry: false })?.isDirectory() === true;
  // Into an allowed folder: what it leads to is kept anyway.
  if (!toFolder || scan.roots.some((root) => real === root || inside(real, root))) {
    scan.files.push({
      ...fileOf(scan, path, stat, false),
      kind: "symlink",
      size: 0,
      link: readlinkSync(abs, { encoding: "buffer" }),
    });
    return;
  }
  if (!inside(real, scan.realHome)) {
    scan.warnings.push(`~/${shown(path)} leads out of the home (to ${real}): what is there is not kept`);
    return;
  }
  const top = real.slice(scan.realHome.length + 1).split("/")[0] ?? "";
  if (PRIVATE_FOLDERS.has(top) || scan.roots.some((root) => inside(root, real))) {
    scan.warnings.push(
      `~/${shown(path)} leads to a folder that may hold credentials (${real}): what is there is not kept`,
    );
    return;
  }
  if (place.within.includes(real)) return;
  folder(scan, { ...place, path, linked: true, within: [...place.within, real] });
}

function fileOf(scan: Scan, path: Buffer, stat: BigIntStats, sqlite: boolean): ConversationFile {
  const abs = absolute(scan, path);
  const stats = [stat];
  if (sqlite)
    for (const suffix of ["-wal", "-journal"]) {
      const more = lstatSync(Buffer.concat([abs, Buffer.from(suffix)]), { bigint: true, throwIfNoEntry: false });
      if (more) stats.push(more);
    }
  return {
    path,
    abs,
    kind: "file",
    mode: Number(stat.mode & 0o7777n),
    mtime: Number(stat.mtimeNs / 1_000_000_000n),
    size: Number(stat.size),
    stamp: stampOf(stats),
    ctime: Math.max(...stats.map((s) => Number(s.ctimeNs) / 1e6)),
    sqlite,
  };
}

/** Size, time of content, time of change, inode. */
export const stampOf = (stats: readonly BigIntStats[]): string =>
  stats.map((s) => `${s.size}:${s.mtimeNs}:${s.ctimeNs}:${s.ino}`).join("|");

const absolute = (scan: Scan, path: Buffer): Buffer => Buffer.concat([Buffer.from(`${scan.home}/`), path]);
const inside = (path: string, folder: string): boolean => path.startsWith(`${folder}/`);
const shown = (path: Buffer): string => path.toString("utf8");

/** Bytes as Latin-1, so that any name survives. None: not there, or a loop. */
function realOf(path: Buffer): string | null {
  try {
    return realpathSync.native(path, { encoding: "buffer" }).toString("latin1");
  } catch {
    return null;
  }
}
