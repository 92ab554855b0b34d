/** `hangar-agent snapshot` and `restore`: checkpoints between folders, by the daemon's own engine. One JSON report on stdout. */
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import {
  CheckpointReason,
  CommitMarker,
  ConversationFolder,
  HangarError,
  newCheckpointId,
  type Part,
  SessionId,
} from "@hangar/shared";
import { CONVERSATION_ROOTS, type ConversationRoot } from "./checkpoint/conversation.ts";
import { parentFrom, readChannels, readDocument } from "./checkpoint/decode.ts";
import {
  createCheckpoint,
  createMemory,
  DEFAULT_LIMITS,
  META_FILE,
  parseMeta,
  restoreCheckpoint,
} from "./checkpoint/engine.ts";
import type { Meta, ParentState, SnapshotReport, Workspace } from "./checkpoint/engine.ts";
import { openMeta, Spool } from "./checkpoint/spool.ts";

const SNAPSHOT_USAGE =
  "hangar-agent snapshot --repo DIR --home DIR --out DIR [--harness H] [--parent DIR] [--if-changed] [--recipient age1…] [--identity FILE] [--keep-ignored PATHSPEC] [--max-untracked-mb N] [--base-branch B] [--conversations FOLDER]";
const RESTORE_USAGE =
  "hangar-agent restore --from DIR --repo DIR --home DIR [--identity FILE] [--conversations FOLDER] [--force]";

/**
 * `--out` gets the whole checkpoint: parts that the parent holds already are hard links to its files. With `--if-changed`
 * nothing is written when nothing changed. `--identity` opens a sealed parent.
 */
export const snapshot = (argv: readonly string[]): Promise<number> => plainly(takeSnapshot, argv);

/** Exits with 0 only when what is there now is what the checkpoint says. */
export const restore = (argv: readonly string[]): Promise<number> => plainly(putBack, argv);

/** What the system refuses is the user's to know, in one line; anything else is a defect and shows where. */
async function plainly(
  command: (argv: readonly string[]) => Promise<number>,
  argv: readonly string[],
): Promise<number> {
  try {
    return await command(argv);
  } catch (error) {
    const { code, syscall, path, dest } = error as NodeJS.ErrnoException & { dest?: string };
    if (error instanceof HangarError || code === undefined || syscall === undefined) throw error;
    throw new HangarError(
      "internal",
      `${dest ?? path ?? syscall} ${REFUSALS[code] ?? `cannot be used (${syscall}: ${code})`}`,
      {
        cause: error,
      },
    );
  }
}

const FULL = "lies on a full disk: free some space and try again";
const REFUSALS: Readonly<Record<string, string>> = {
  ENOENT: "is not there: name one that is",
  ENOTDIR: "leads through a file: name a folder",
  EISDIR: "is a folder: name a file",
  EACCES: "may not be used: look at its permissions",
  EPERM: "may not be used: look at its permissions",
  EROFS: "lies on a disk that is read-only: name another place",
  ENOSPC: FULL,
  EDQUOT: FULL,
};

async function takeSnapshot(argv: readonly string[]): Promise<number> {
  const values = parse(argv, SNAPSHOT_USAGE, {
    repo: { type: "string" },
    home: { type: "string" },
    out: { type: "string" },
    harness: { type: "string", default: "claude" },
    parent: { type: "string" },
    "if-changed": { type: "boolean", default: false },
    recipient: { type: "string", multiple: true },
    identity: { type: "string", multiple: true },
    "keep-ignored": { type: "string", multiple: true },
    "max-untracked-mb": { type: "string" },
    "base-branch": { type: "string" },
    session: { type: "string" },
    reason: { type: "string", default: "manual" },
    conversations: { type: "string", multiple: true },
  } as const);
  const out = real(resolve(need(values.out, "--out", SNAPSHOT_USAGE)));
  const there = statSync(out, { throwIfNoEntry: false });
  if (there && (!there.isDirectory() || readdirSync(out).length > 0))
    throw usage(`${out} is ${there.isDirectory() ? "not empty" : "a file"}: name a new folder`, SNAPSHOT_USAGE);
  for (const recipient of values.recipient ?? [])
    if (!/^age1[02-9ac-hj-np-z]{58}$/.test(recipient))
      throw usage(`${recipient} is no age recipient (age1…)`, SNAPSHOT_USAGE);
  const reason = CheckpointReason.safeParse(values.reason);
  if (!reason.success) throw usage(`--reason is one of ${CheckpointReason.options.join(", ")}`, SNAPSHOT_USAGE);
  const session = sessionOf(values.session);
  const places = placesOf(values.repo, values.home, SNAPSHOT_USAGE);
  if (!existsSync(places.home)) throw usage(`--home ${places.home} is not there: name one that is`, SNAPSHOT_USAGE);
  if (out === places.repo || out.startsWith(`${places.repo}/`))
    throw usage(`--out ${out} lies in the repo: name a folder outside of it`, SNAPSHOT_USAGE);
  return await withScratch(out, async (scratch) => {
    const ws: Workspace = {
      ...workspaceOf(places, values.harness ?? "claude", scratch),
      keepIgnored: values["keep-ignored"] ?? [],
      conversationRoots: rootsOf(values.conversations, SNAPSHOT_USAGE),
      baseBranch: values["base-branch"] ?? null,
    };
    const parent =
      values.parent === undefined ? null : await readParent(resolve(values.parent), values.identity, scratch);
    const other = parent?.state.meta.session ?? null;
    if (session !== null && other !== null && other !== session)
      throw usage(`--parent ${parent?.folder} is of session ${other}: name one of ${session}, or none`, SNAPSHOT_USAGE);
    const made = join(scratch, "made");
    const result = await createCheckpoint(ws, {
      checkpoint: newCheckpointId(Date.now()),
      session: session ?? parent?.state.meta.session ?? null,
      generation: 0,
      reason: reason.data,
      parent: parent?.state ?? null,
      ifChanged: values["if-changed"] ?? false,
      recipients: values.recipient ?? null,
      limits: limitsOf(values["max-untracked-mb"]),
      harnessSession: parent?.state.meta.harness_session ?? null,
      turn: null,
      quiesced: false,
      prove: true,
      standalone: true,
      out: made,
    });
    if (result.outcome === "unchanged") {
      print({ ...unchangedReport(result, parent?.state.meta) });
      return 0;
    }
    const fresh = new Set(result.made.objects.map(({ file }) => file));
    const kept = new Set(result.made.parts.map(({ file }) => file));
    const older = (parent?.state.meta.parts ?? []).filter(({ file }) => kept.has(file) && !fresh.has(file));
    const objects = [
      ...older.map((part) => ({ file: part.file, path: objectIn(parent?.folder ?? "", part) })),
      ...result.made.objects,
      // The meta last: a folder without it is no checkpoint.
      { file: result.made.metaObject.file, path: join(made, result.made.metaObject.file) },
    ];
    fill(out, objects);
    print(result.made.report);
    return 0;
  });
}

async function putBack(argv: readonly string[]): Promise<number> {
  const values = parse(argv, RESTORE_USAGE, {
    from: { type: "string" },
    repo: { type: "string" },
    home: { type: "string" },
    harness: { type: "string" },
    identity: { type: "string", multiple: true },
    conversations: { type: "string", multiple: true },
    force: { type: "boolean", default: false },
  } as const);
  const from = resolve(need(values.from, "--from", RESTORE_USAGE));
  const places = placesOf(values.repo, values.home, RESTORE_USAGE);
  const meta = readMeta(from);
  return await withScratch(places.repo, async (scratch) => {
    const ws = workspaceOf(places, values.harness ?? "claude", scratch);
    const conversationRoots = rootsOf(values.conversations, RESTORE_USAGE);
    const restored = await restoreCheckpoint(
      { ...ws, conversationRoots },
      {
        meta,
        source: (part) => ({ path: objectIn(from, part) }),
        identities: identitiesOf(values.identity),
        force: values.force ?? false,
      },
    );
    print(restored.report);
    if (restored.report.verified) return 0;
    const { differs } = restored.report;
    console.error(
      `hangar-agent: the restored workspace differs from the checkpoint: ${differs.slice(0, 3).join("; ")}`,
    );
    return 1;
  });
}

interface Places {
  readonly repo: string;
  readonly home: string;
}

function placesOf(repo: string | undefined, home: string | undefined, text: string): Places {
  const places = {
    repo: real(resolve(need(repo, "--repo", text))),
    home: real(resolve(need(home, "--home", text))),
  };
  if (statSync(places.home, { throwIfNoEntry: false })?.isDirectory() === false)
    throw usage(`--home ${places.home} is a file: name a folder`, text);
  return places;
}

function workspaceOf(places: Places, harness: string, scratch: string): Workspace {
  return {
    ...places,
    harness,
    keepIgnored: [],
    scratch,
    memory: createMemory(),
  };
}

/** Folders of declared harnesses, beside those that Hangar knows (docs/harnesses.md). */
function rootsOf(folders: readonly string[] | undefined, text: string): readonly ConversationRoot[] {
  const declared = (folders ?? []).map((given) => {
    const folder = ConversationFolder.safeParse(given);
    if (!folder.success)
      throw usage(`--conversations ${given}: give ${folder.error.issues[0]?.message ?? "a folder"}`, text);
    return { harness: "declared", folder: folder.data };
  });
  return [...CONVERSATION_ROOTS, ...declared];
}

/** Without links on the way, so that what git and harnesses noted of the place is comparable. */
function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(real(parent), basename(path));
  }
}

async function readParent(
  folder: string,
  identity: readonly string[] | undefined,
  scratch: string,
): Promise<{ folder: string; state: ParentState }> {
  const identities = identitiesOf(identity);
  const meta = parseMeta(await openMeta(readMeta(folder), identities));
  const inner = mkdtempSync(join(scratch, "parent-"));
  const spool = new Spool({ meta, source: (part) => ({ path: objectIn(folder, part) }), folder: inner, identities });
  // What a new checkpoint takes over unchanged is not read again.
  await spool.fetch(meta.parts.map((part) => part.name));
  const document = await readDocument(spool);
  return { folder, state: await parentFrom(spool, meta, document, await readChannels(spool, document)) };
}

/** Of a folder as `snapshot` makes it, or of one in a store, whose marker vouches for its meta. */
function readMeta(folder: string): Buffer {
  const file = [META_FILE, `${META_FILE}.age`].find((name) => existsSync(join(folder, name)));
  if (file === undefined)
    throw new HangarError(
      "checkpoint_not_found",
      `${folder} holds no checkpoint (no ${META_FILE}): name the folder that \`hangar-agent snapshot\` or Hangar's store has made`,
    );
  const meta = readFileSync(join(folder, file));
  const marker = join(folder, MARKER_FILE);
  if (!existsSync(marker)) return meta;
  const named = namedBy(readFileSync(marker, "utf8"));
  if (named?.file !== file || named.size !== meta.length || named.sha256 !== sha256(meta))
    throw new HangarError(
      "checkpoint_invalid",
      `The checkpoint is damaged or forged: ${MARKER_FILE} does not fit ${file}: use an older checkpoint`,
    );
  return meta;
}

const MARKER_FILE = "commit.json";

/** None: it is no marker. Its MAC is by the vault's key, which may not be here. */
function namedBy(marker: string): CommitMarker["meta"] | null {
  try {
    return CommitMarker.parse(JSON.parse(marker)).meta;
  } catch {
    return null;
  }
}

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** In a store, a part may lie in an older checkpoint's folder. */
function objectIn(folder: string, { file, from }: Part): string {
  const here = join(folder, file);
  return from === undefined || existsSync(here) ? here : join(dirname(folder), from, file);
}

/** The lines of age identity files. */
function identitiesOf(files: readonly string[] | undefined): string[] | null {
  if (files === undefined) return null;
  return files.flatMap((file) => {
    const keys = readFileSync(file, "utf8").match(/^AGE-SECRET-KEY-[A-Z0-9-]+$/gm);
    if (!keys) throw new HangarError("invalid_request", `${file} holds no age identity (AGE-SECRET-KEY-…)`);
    return keys;
  });
}

function sessionOf(given: string | undefined): string | null {
  if (given === undefined) return null;
  const session = SessionId.safeParse(given);
  if (!session.success) throw usage(`--session ${given} is no session's id (ses- and 8 hex digits)`, SNAPSHOT_USAGE);
  return session.data;
}

function limitsOf(megabytes: string | undefined): typeof DEFAULT_LIMITS {
  if (megabytes === undefined) return DEFAULT_LIMITS;
  if (!/^[0-9]+(?:\.[0-9]+)?$/.test(megabytes)) throw usage("--max-untracked-mb is a number of MB", SNAPSHOT_USAGE);
  return { ...DEFAULT_LIMITS, maxUntrackedBytes: Math.round(Number(megabytes) * 1024 * 1024) };
}

/** A folder for temporary files on the same disk as `near`, which need not be there; else in the system's place. */
async function withScratch<T>(near: string, work: (scratch: string) => Promise<T>): Promise<T> {
  let scratch: string;
  try {
    let above = dirname(near);
    while (!existsSync(above)) above = dirname(above);
    scratch = mkdtempSync(join(above, ".hangar-scratch-"));
  } catch {
    scratch = mkdtempSync(join(tmpdir(), "hangar-scratch-"));
  }
  try {
    return await work(scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** All of them, or none and no folder that was not there before. */
function fill(out: string, objects: readonly { readonly path: string; readonly file: string }[]): void {
  const made = mkdirSync(out, { recursive: true });
  try {
    for (const { path, file } of objects) share(path, join(out, file));
  } catch (error) {
    for (const { file } of objects) rmSync(join(out, file), { force: true });
    if (made !== undefined) rmSync(made, { recursive: true, force: true });
    throw error;
  }
}

function share(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw error;
    copyFileSync(from, to);
  }
}

const unchangedReport = (
  result: { checkpoint: string; fingerprint: string },
  meta: Meta | undefined,
): SnapshotReport => ({
  outcome: "unchanged",
  checkpoint: result.checkpoint,
  fingerprint: result.fingerprint,
  parts: meta?.parts ?? [],
  bytes: (meta?.parts ?? []).reduce((sum, part) => sum + part.size, 0),
  new_bytes: 0,
  left_out: meta?.left_out ?? [],
  not_kept: meta?.not_kept ?? [],
  warnings: meta?.warnings ?? [],
  paired: meta?.paired ?? true,
  proved: meta?.proved ?? true,
  seconds: {},
});

function print(report: object): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

type Options = NonNullable<Parameters<typeof parseArgs>[0]>["options"];
function parse<O extends NonNullable<Options>>(argv: readonly string[], text: string, options: O) {
  try {
    return parseArgs({ args: [...argv], options, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw usage((error as Error).message.split("\n")[0] ?? "wrong arguments", text);
  }
}

const usage = (why: string, text: string): HangarError => new HangarError("invalid_request", `${why}. Usage: ${text}`);

function need(value: string | undefined, name: string, text: string): string {
  if (value === undefined || value === "") throw usage(`${name} is needed`, text);
  return value;
}
