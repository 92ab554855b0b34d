/**
 * Commits a checkpoint: every object is looked at in the store, the marker is written, then it is published under the
 * sandbox's generation and nonce. What is acknowledged has a marker. Idempotent by id.
 */
import { HangarError } from "@hangar/shared";
import type { CommitAnswer, CommitCheckpoint, Part } from "@hangar/shared";
import { checkpointKey, markerKey } from "../store/store.ts";
import { present, stale } from "./agent-token.ts";
import { notBegun } from "./begin.ts";
import { borrowing, waitsNoMore } from "./fork.ts";
import { toCheckpoint } from "./lookup.ts";
import { iso, LIVE } from "./machine.ts";
import { makeMarker, readMarker } from "./marker.ts";
import type { KeptRecord } from "./marker.ts";
import type { Change, Deps } from "./ports.ts";
import { prune } from "./prune.ts";
import type { BeginRecord, CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";
import type { AgentIdentity } from "./faces.ts";

export async function commit(
  deps: Deps,
  agent: AgentIdentity,
  id: string,
  input: CommitCheckpoint,
): Promise<CommitAnswer> {
  const record = await present(deps, agent);
  const committed = await deps.sessions.checkpoints(agent.session);
  const before = committed.find((checkpoint) => checkpoint.id === id);
  if (before) return repeated(before, input);
  const begun = await deps.sessions.begin(agent.session, id);
  if (begun?.generation !== agent.generation || begun.nonce !== agent.nonce) throw notBegun(id);

  checkAgainstBegin(begun, input);
  checkReferences(committed, input.parts);
  await checkObjects(
    deps,
    agent.session,
    begun.objects.map((object) => ({ ...object, checkpoint: id })),
  );
  const checkpoint = toRecord(deps.clock(), begun, input);
  await writeMarker(deps, record, checkpoint);
  const published = await deps.sessions.change(
    agent.session,
    { from: LIVE, generation: agent.generation, nonce: agent.nonce },
    publication(checkpoint, record),
  );
  if (!published.ok) throw await stale(deps, agent);
  const parent = borrowing(record);
  // Where this fails, the parent keeps a checkpoint for longer than it has to.
  if (parent) await waitsNoMore(deps, parent.session, record.id).catch(() => undefined);
  // Acknowledged from here on, whatever becomes of the old ones.
  await prune(deps, agent.session).catch((error: unknown) =>
    deps.log.warn({ session: agent.session, error }, "old checkpoints were not pruned; the next commit tries again"),
  );
  return { checkpoint: toCheckpoint(checkpoint) };
}

export const publication = (checkpoint: CheckpointRecord, record?: SessionRecord): Change => ({
  checkpoints: [checkpoint],
  endBegin: checkpoint.id,
  // From here on the newest checkpoint is the one to go on from.
  set: { restore_from: null, baseline_due: false, ...(record && conversationOf(checkpoint, record)) },
  events: [
    {
      type: "checkpoint",
      checkpoint: checkpoint.id,
      reason: checkpoint.reason,
      new_bytes: checkpoint.new_bytes,
    },
  ],
});

/** A conversation that was begun in a terminal is first heard of by the checkpoint that holds it. */
const conversationOf = (checkpoint: CheckpointRecord, record: SessionRecord): Partial<SessionRecord> =>
  record.harness_session === null &&
  record.running_turn === null &&
  checkpoint.harness_session !== null &&
  checkpoint.harness === record.harness
    ? { harness_session: checkpoint.harness_session }
    : {};

function repeated(before: CheckpointRecord, input: CommitCheckpoint): CommitAnswer {
  if (before.meta_sha256 === input.meta.sha256) return { checkpoint: toCheckpoint(before) };
  throw new HangarError("object_exists", `The checkpoint ${before.id} is committed with other content`);
}

/** What is committed is what was begun: every object is a part or the meta, and the other way round. */
function checkAgainstBegin(begun: BeginRecord, input: CommitCheckpoint): void {
  const begunObjects = new Map(begun.objects.map((object) => [object.file, object]));
  const own = [...input.parts.filter(({ from }) => from === undefined || from === begun.checkpoint), input.meta];
  const files = new Set<string>();
  for (const { file, size, sha256 } of own) {
    const object = begunObjects.get(file);
    if (object?.size !== size || object.sha256 !== sha256 || files.has(file)) {
      throw new HangarError("checkpoint_invalid", `${file} is not what was announced when the checkpoint was begun`);
    }
    files.add(file);
  }
  const unused = begun.objects.find(({ file }) => !files.has(file));
  if (unused) throw new HangarError("checkpoint_invalid", `${unused.file} was begun and is no part of the checkpoint`);
}

/** A part of an earlier checkpoint counts where a committed checkpoint of this session has that very object. */
function checkReferences(committed: readonly CheckpointRecord[], parts: readonly Part[]): void {
  const objects = new Map<string, Part>();
  for (const { id, parts } of committed) {
    for (const part of parts) objects.set(`${part.from ?? id}/${part.file}`, part);
  }
  for (const part of parts) {
    if (part.from === undefined) continue;
    const object = objects.get(`${part.from}/${part.file}`);
    if (object?.size !== part.size || object.sha256 !== part.sha256) {
      throw new HangarError("checkpoint_invalid", `${part.from}/${part.file} is in no committed checkpoint`);
    }
  }
}

const AT_ONCE = 8;

/** Each object is in the store with the size and the digest that were announced. `checkpoint_invalid`, `digest_mismatch`. */
export async function checkObjects(
  deps: Pick<Deps, "store">,
  session: string,
  objects: readonly { checkpoint: string; file: string; size: number; sha256: string }[],
): Promise<void> {
  for (let i = 0; i < objects.length; i += AT_ONCE) {
    await Promise.all(
      objects.slice(i, i + AT_ONCE).map(async ({ checkpoint, file, size, sha256 }) => {
        const found = await deps.store.head(checkpointKey(session, checkpoint, file));
        if (!found) throw new HangarError("checkpoint_invalid", `${file} is not in the store: upload it first`);
        if (found.size !== size || found.sha256 !== sha256) {
          throw new HangarError("digest_mismatch", `${file} in the store is not what was announced`);
        }
      }),
    );
  }
}

function toRecord(now: number, begun: BeginRecord, input: CommitCheckpoint): CheckpointRecord {
  const { meta, parts, ...said } = input;
  const sum = (sizes: number[]): number => sizes.reduce((a, b) => a + b, 0);
  return {
    ...said,
    id: begun.checkpoint,
    ts: iso(now),
    reason: begun.reason,
    generation: begun.generation,
    parent: begun.parent,
    parts,
    bytes: sum(parts.map(({ size }) => size)) + meta.size,
    new_bytes: sum(begun.objects.map(({ size }) => size)),
    meta_file: meta.file,
    meta_sha256: meta.sha256,
    meta_size: meta.size,
    bad: null,
  };
}

/** Create-only: a marker that is there is this commit's own from a try before, or the commit is refused. */
export async function writeMarker(deps: Deps, record: SessionRecord, checkpoint: CheckpointRecord): Promise<void> {
  const of = { session: record.id, nonce: record.nonce, checkpoint };
  const marker = await makeMarker(deps.vault, { ...of, kept: await kept(deps, record, checkpoint) });
  try {
    await deps.store.create(markerKey(record.id, checkpoint.id), marker);
  } catch (error) {
    if (!(error instanceof HangarError && error.code === "object_exists")) throw error;
    const there = await readMarker(deps, record.id, checkpoint.id);
    if (there?.nonce !== record.nonce || there.meta.sha256 !== checkpoint.meta_sha256) throw error;
  }
}

const KEPT_TURNS = 50;
const KEPT_TEXT = 2000;

/** Bounded, so that the marker stays small whatever the session has seen. */
export async function kept(deps: Deps, record: SessionRecord, checkpoint: CheckpointRecord): Promise<KeptRecord> {
  const environment = await deps.environments.get(record.owner, record.environment);
  const { created_at: _c, updated_at: _u, sessions: _s, ...document } = environment ?? {};
  const { parts: _, ...rest } = checkpoint;
  return {
    session: { ...record, activity: null, freeze: null },
    turns: (await deps.sessions.turns(record.id, KEPT_TURNS)).map(shortened),
    checkpoint: {
      ...rest,
      left_out: rest.left_out.slice(0, 100),
      not_kept: rest.not_kept.slice(0, 100),
      warnings: rest.warnings.slice(0, 50),
    },
    environment: environment && (document as KeptRecord["environment"]),
  };
}

const shortened = (turn: TurnRecord): TurnRecord => ({
  ...turn,
  message: turn.message.slice(0, KEPT_TEXT),
  summary: turn.summary?.slice(0, KEPT_TEXT) ?? null,
  preamble: null,
});
