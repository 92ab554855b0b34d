/** Puts the conversations of a checkpoint back into a home: all of them, checked, or none. */
import {
  chmodSync,
  closeSync,
  constants as fs,
  fstatSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  utimesSync,
} from "node:fs";
import { HangarError } from "@hangar/shared";
import { bulk } from "./bulk.ts";
import type { ExtractRule } from "./extract-rules.ts";
import { invalid, pathProblem } from "./tar-header.ts";
import { CONVERSATION_ROOTS, type ConversationRoot } from "./conversation-scan.ts";
import { decodePath, encodePath } from "./path-text.ts";
import type { ConversationRecord, RecordedFile } from "./conversation-record.ts";

export interface RestoreConversationOptions {
  /** Unpacks a part's archive, of about so many plain bytes, below a folder. Called for each of `record.parts`, in order. */
  readonly unpack: (part: string, folder: string, rule: ExtractRule, bytes: number) => Promise<void>;
  /** Called once all files are whole; they go to their places when this is done, and none does where it fails. */
  readonly beforePlacing?: () => Promise<unknown>;
  /** Where conversations are; none: where those of the known harnesses are. */
  readonly roots?: readonly ConversationRoot[] | undefined;
  readonly signal?: AbortSignal;
}

/**
 * Unpacks the parts into a temporary folder inside the home, takes from each only what the record says it holds, checks
 * every byte against the record, then renames the files into their places, with the present time (harnesses sweep old
 * transcripts). Other conversations that the home holds stay as they are.
 * @throws HangarError `checkpoint_invalid` before anything in its place was touched.
 */
export async function restoreConversations(
  home: string,
  record: ConversationRecord,
  options: RestoreConversationOptions,
): Promise<{ paths: Buffer[] }> {
  for (const file of record.files) checkPath(file, options.roots ?? CONVERSATION_ROOTS);
  // One that a kill cut off left its folder behind.
  for (const name of readdirSync(home))
    if (name.startsWith(STAGE)) rmSync(`${home}/${name}`, { recursive: true, force: true });
  const stage = mkdtempSync(`${home}/${STAGE}`);
  try {
    for (const part of record.parts) await unpack(stage, record, part, options);
    for (const file of record.files) await checkFile(stage, file);
    for (const file of record.files) foldersAbove(home, decodePath(file.path), () => {});
    await options.beforePlacing?.();
    dropDerived(home);
    return { paths: record.files.map((file) => place(home, stage, file)) };
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
}

const STAGE = ".hangar-restore-";

/** Nothing outside the conversation folders is written, whatever a record says. */
function checkPath(file: RecordedFile, roots: readonly ConversationRoot[]): void {
  const path = decodePath(file.path);
  const text = path.toString("latin1");
  const name = text.slice(text.lastIndexOf("/") + 1);
  const isIn = ({ folder, only }: ConversationRoot): boolean =>
    text.startsWith(`${folder}/`) && (file.kind !== "file" || only === undefined || only(name));
  if (pathProblem(path) || !roots.some(isIn)) throw invalid("its record names a file that is no conversation", path);
  let end = 0;
  for (const segment of file.segments) {
    if (segment.offset !== end) throw invalid("its record has a gap", path);
    end += segment.size;
  }
  if (end !== file.size || (file.kind === "symlink") !== (file.link !== null))
    throw invalid("its record contradicts itself", path);
}

async function unpack(
  stage: string,
  record: ConversationRecord,
  part: string,
  options: RestoreConversationOptions,
): Promise<void> {
  const live = new Map<string, Map<number, number>>();
  let bytes = 0;
  for (const file of record.files) {
    const segments = file.segments.filter((segment) => segment.part === part);
    if (segments.length > 0) live.set(file.path, new Map(segments.map(({ offset, size }) => [offset, size])));
    for (const { size } of segments) bytes += size;
  }
  await options.unpack(part, stage, { of: "conversations", live }, bytes);
}

async function checkFile(stage: string, file: RecordedFile): Promise<void> {
  const path = decodePath(file.path);
  const at = Buffer.concat([Buffer.from(`${stage}/`), path]);
  const stat = lstatSync(at, { throwIfNoEntry: false });
  if (stat === undefined) throw invalid("a conversation is missing", path);
  if (file.kind === "symlink") {
    if (!stat.isSymbolicLink() || encodePath(readlinkSync(at, { encoding: "buffer" })) !== file.link)
      throw invalid("a link is not the recorded one", path);
    return;
  }
  if (!stat.isFile()) throw invalid("a conversation is no file", path);
  const fd = openSync(at, fs.O_RDONLY | fs.O_NOFOLLOW);
  try {
    if (fstatSync(fd).size !== file.size) throw invalid("a conversation has another length than was recorded", path);
    const pieces = await bulk("pieces", { fd, size: file.size, known: [] }, { bytes: file.size });
    if (pieces.length !== file.pieces.length || pieces.some((piece, i) => piece !== file.pieces[i]))
      throw invalid("a conversation has other bytes than were recorded", path);
  } finally {
    closeSync(fd);
  }
}

function place(home: string, stage: string, file: RecordedFile): Buffer {
  const path = decodePath(file.path);
  const from = Buffer.concat([Buffer.from(`${stage}/`), path]);
  const to = Buffer.concat([Buffer.from(`${home}/`), path]);
  foldersAbove(home, path, (at) => {
    rmSync(at, { force: true });
    mkdirSync(at, { mode: 0o700 });
  });
  if (file.kind === "file") {
    const now = Date.now() / 1000;
    utimesSync(from, now, now);
    chmodSync(from, file.mode & 0o7777);
  }
  if (lstatSync(to, { throwIfNoEntry: false })?.isDirectory()) rmSync(to, { recursive: true, force: true });
  renameSync(from, to);
  return path;
}

/** The folders above a path that are to be made; one that is a link is used where it stays inside the home. */
function foldersAbove(home: string, path: Buffer, make: (at: Buffer) => void): void {
  const real = realpathSync.native(home);
  const pieces = path.toString("latin1").split("/").slice(0, -1);
  for (let i = 1; i <= pieces.length; i++) {
    const at = Buffer.concat([Buffer.from(`${home}/`), Buffer.from(pieces.slice(0, i).join("/"), "latin1")]);
    const there = lstatSync(at, { throwIfNoEntry: false });
    if (there?.isSymbolicLink()) {
      if (!isIn(at, real))
        throw new HangarError(
          "checkpoint_invalid",
          `${at.toString()} leads out of the home: remove that link and try again`,
        );
    } else if (!there?.isDirectory()) make(at);
  }
}

function isIn(link: Buffer, folder: string): boolean {
  try {
    return realpathSync.native(link).startsWith(`${folder}/`);
  } catch {
    return false;
  }
}

/** Codex shows its interface from an index of its own, which would be newer than the transcripts. It is made again. */
function dropDerived(home: string): void {
  let names: string[] = [];
  try {
    names = readdirSync(`${home}/.codex`);
  } catch {
    return;
  }
  for (const name of names)
    if (/^thread_history_\d+\.sqlite/.test(name)) rmSync(`${home}/.codex/${name}`, { force: true });
}
