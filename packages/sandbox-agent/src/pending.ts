/**
 * What the daemon keeps of checkpoints in its state folder: the parent of the next one, and one that is made but not yet
 * committed: `pending/<id>/` with its objects, `next.bin` and, written last, `record.json`.
 */
import { existsSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { BeginCheckpoint, CommitCheckpoint } from "@hangar/shared";
import { z } from "zod";
import { parseParent, serializeParent } from "./checkpoint/engine.ts";
import type { MadeCheckpoint, ParentState } from "./checkpoint/engine.ts";
import { readJson, replaceFile } from "./durable.ts";

export interface Pending {
  readonly begin: BeginCheckpoint;
  readonly commit: CommitCheckpoint;
  /** Where the objects lie: file name → absolute path. */
  readonly paths: Readonly<Record<string, string>>;
  /** Those that the store has taken, as far as this process knows. */
  readonly uploaded: Set<string>;
  readonly next: ParentState;
}

const Record = z.strictObject({
  begin: BeginCheckpoint,
  commit: CommitCheckpoint,
  paths: z.record(z.string(), z.string()),
});

/** The folder that the engine writes a new checkpoint's objects into. Absent. */
export function pendingFolder(state: string, checkpoint: string): string {
  return join(state, "pending", checkpoint, "objects");
}

export function savePending(state: string, made: MadeCheckpoint): Pending {
  const { meta, metaObject, objects } = made;
  const folder = join(state, "pending", meta.checkpoint);
  const pending: Pending = {
    begin: {
      checkpoint: meta.checkpoint,
      parent: meta.parent,
      reason: meta.reason,
      objects: [...objects.map(({ file, size, sha256 }) => ({ file, size, sha256 })), metaObject],
    },
    commit: commitRequest(made),
    paths: Object.fromEntries([
      ...objects.map(({ file, path }) => [file, path]),
      [metaObject.file, join(made.dir, metaObject.file)],
    ]),
    uploaded: new Set(),
    next: made.next,
  };
  replaceFile(join(folder, "next.bin"), serializeParent(made.next));
  const { begin, commit, paths } = pending;
  replaceFile(join(folder, "record.json"), JSON.stringify({ begin, commit, paths }));
  return pending;
}

/** The newest one that is whole; what else lies there is removed. */
export function loadPending(state: string): Pending | null {
  const folder = join(state, "pending");
  let found: Pending | null = null;
  for (const id of existsSync(folder) ? readdirSync(folder).sort().toReversed() : []) {
    found ??= loadOne(join(folder, id));
    if (found?.begin.checkpoint !== id) forgetPending(state, id);
  }
  return found;
}

function loadOne(folder: string): Pending | null {
  const record = readJson(join(folder, "record.json"), Record);
  const next = readParent(join(folder, "next.bin"));
  if (!record || !next || !Object.values(record.paths).every((path) => existsSync(path))) return null;
  return { ...record, next, uploaded: new Set() };
}

export function forgetPending(state: string, checkpoint: string): void {
  rmSync(join(state, "pending", checkpoint), { recursive: true, force: true });
}

export const loadParent = (state: string): ParentState | null => readParent(join(state, "parent.bin"));

/** Where it cannot be written, an old one must not stay: it would be taken for the newest. */
export function saveParent(state: string, parent: ParentState | null): void {
  const path = join(state, "parent.bin");
  rmSync(path, { force: true });
  try {
    if (parent) replaceFile(path, serializeParent(parent));
  } catch {
    // a full disk: known in memory, and after a restart the next checkpoint is whole
  }
}

function readParent(path: string): ParentState | null {
  try {
    return parseParent(readFileSync(path));
  } catch {
    return null;
  }
}

function commitRequest({ meta, metaObject, parts }: MadeCheckpoint): CommitCheckpoint {
  return {
    head: meta.head,
    base: meta.base,
    branch: meta.branch?.replace(/^refs\/heads\//, "").slice(0, 1024) ?? null,
    harness: meta.harness,
    harness_session: meta.harness_session,
    turn_id: meta.turn,
    fingerprint: meta.fingerprint,
    parts: [...parts],
    meta: metaObject,
    paired: meta.paired,
    proved: meta.proved,
    left_out: meta.left_out.slice(0, 1000),
    not_kept: meta.not_kept.slice(0, 1000),
    warnings: meta.warnings.slice(0, 200).map((warning) => warning.slice(0, 2000)),
  };
}
