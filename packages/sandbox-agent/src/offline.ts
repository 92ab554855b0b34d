/** `hangar-agent snapshot` and `restore`: checkpoints between folders, by the daemon's own engine. One JSON report on stdout. */
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
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { CheckpointReason, ConversationFolder, HangarError, newCheckpointId } from "@hangar/shared";
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
    const { code, syscall, path } = error as NodeJS.ErrnoException;
    if (error instanceof HangarError || code === undefined || syscall === undefined) throw error;
    throw new HangarError("internal", `${syscall} ${path ?? ""}: ${code}`, { cause: error });
  }
}

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
  const out = resolve(need(values.out, "--out", SNAPSHOT_USAGE));
  if (existsSync(out) && readdirSync(out).length > 0)
    throw usage(`${out} is not empty: name a new folder`, SNAPSHOT_USAGE);
  for (const recipient of values.recipient ?? [])
    if (!/^age1[02-9ac-hj-np-z]{58}$/.test(recipient))
      throw usage(`${recipient} is no age recipient (age1…)`, SNAPSHOT_USAGE);
  const reason = CheckpointReason.safeParse(values.reason);
  if (!reason.success) throw usage(`--reason is one of ${CheckpointReason.options.join(", ")}`, SNAPSHOT_USAGE);
  return await withScratch(out, async (scratch) => {
    const ws: Workspace = {
      ...workspaceOf(values.repo, values.home, values.harness ?? "claude", scratch, SNAPSHOT_USAGE),
      keepIgnored: values["keep-ignored"] ?? [],
      conversationRoots: rootsOf(values.conversations, SNAPSHOT_USAGE),
      baseBranch: values["base-branch"] ?? null,
    };
    const parent =
      values.parent === undefined ? null : await readParent(resolve(values.parent), values.identity, scratch);
    const made = join(scratch, "made");
    const result = await createCheckpoint(ws, {
      checkpoint: newCheckpointId(Date.now()),
      session: values.session ?? parent?.state.meta.session ?? null,
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
    mkdirSync(out, { recursive: true });
    const fresh = new Set(result.made.objects.map(({ file }) => file));
    for (const { file } of result.made.parts)
      if (!fresh.has(file) && parent) share(join(parent.folder, file), join(out, file));
    for (const { path, file } of result.made.objects) share(path, join(out, file));
    // The meta last: a folder without it is no checkpoint.
    share(join(made, result.made.metaObject.file), join(out, result.made.metaObject.file));
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
  const repo = resolve(need(values.repo, "--repo", RESTORE_USAGE));
  return await withScratch(repo, async (scratch) => {
    const ws = workspaceOf(values.repo, values.home, values.harness ?? "claude", scratch, RESTORE_USAGE);
    const conversationRoots = rootsOf(values.conversations, RESTORE_USAGE);
    const restored = await restoreCheckpoint(
      { ...ws, conversationRoots },
      {
        meta: readMeta(from),
        source: (part) => ({ path: join(from, part.file) }),
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

function workspaceOf(
  repo: string | undefined,
  home: string | undefined,
  harness: string,
  scratch: string,
  text: string,
): Workspace {
  return {
    repo: real(resolve(need(repo, "--repo", text))),
    home: real(resolve(need(home, "--home", text))),
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
  const spool = new Spool({ meta, source: (part) => ({ path: join(folder, part.file) }), folder: inner, identities });
  const document = await readDocument(spool);
  return { folder, state: await parentFrom(spool, meta, document, await readChannels(spool, document)) };
}

function readMeta(folder: string): Buffer {
  for (const file of [META_FILE, `${META_FILE}.age`])
    if (existsSync(join(folder, file))) return readFileSync(join(folder, file));
  throw new HangarError("checkpoint_not_found", `${folder} holds no checkpoint (no ${META_FILE})`);
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

function limitsOf(megabytes: string | undefined): typeof DEFAULT_LIMITS {
  if (megabytes === undefined) return DEFAULT_LIMITS;
  if (!/^[0-9]+(?:\.[0-9]+)?$/.test(megabytes)) throw usage("--max-untracked-mb is a number of MB", SNAPSHOT_USAGE);
  return { ...DEFAULT_LIMITS, maxUntrackedBytes: Math.round(Number(megabytes) * 1024 * 1024) };
}

/** A folder for temporary files on the same disk as `near`, else in the system's place. */
async function withScratch<T>(near: string, work: (scratch: string) => Promise<T>): Promise<T> {
  let scratch: string;
  try {
    mkdirSync(dirname(near), { recursive: true });
    scratch = mkdtempSync(join(dirname(near), ".hangar-scratch-"));
  } catch {
    scratch = mkdtempSync(join(tmpdir(), "hangar-scratch-"));
  }
  try {
    return await work(scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
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
