/**
 * Rebuilds from the store what Redis does not know: sessions whose data was deleted, and acknowledged checkpoints that a
 * Redis set back to an earlier moment has forgotten. Idempotent; changes nothing that Redis does know.
 */
import { HangarError } from "@hangar/shared";
import { MARKER_FILE } from "../store/store.ts";
import { publication } from "./commit.ts";
import { WITHOUT_SANDBOX } from "./machine.ts";
import { checkpointOf, openKept, readMarker } from "./marker.ts";
import type { KeptRecord } from "./marker.ts";
import { EMPTY_RECORD } from "./record.ts";
import type { Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";
import { update } from "./update.ts";

const MARKER = new RegExp(`^sessions/(ses-[0-9a-f]{8})/(ckp-[0-9a-f]{17})/${MARKER_FILE.replace(".", "\\.")}$`);

export async function recover(deps: Deps): Promise<{ sessions: number; checkpoints: number }> {
  const found = new Map<string, string[]>();
  for await (const key of deps.store.list("sessions/")) {
    const [, session, checkpoint] = MARKER.exec(key) ?? [];
    if (session && checkpoint) found.set(session, [...(found.get(session) ?? []), checkpoint]);
  }
  const sum = { sessions: 0, checkpoints: 0 };
  for (const [session, ids] of found) {
    try {
      const record = await deps.sessions.get(session);
      if (record === null) sum.sessions += await rebuild(deps, session, ids);
      else sum.checkpoints += await addForgotten(deps, record, ids);
    } catch (error) {
      if (error instanceof HangarError && error.retryable) throw error;
      deps.log.error({ session, error }, "a session in the store could not be rebuilt");
    }
  }
  if (sum.sessions + sum.checkpoints > 0) deps.log.warn(sum, "Redis was filled from the store");
  return sum;
}

async function rebuild(deps: Deps, session: string, ids: readonly string[]): Promise<number> {
  const valid = await readAll(deps, session, ids);
  const newest = valid.at(-1);
  if (!newest) return 0;
  const { kept } = newest;
  await putEnvironment(deps, kept);
  const sandboxes = (await deps.driver.list()).filter((sandbox) => sandbox.session === session);
  for (const { id, state } of sandboxes) if (state === "running") await deps.driver.stop(id);
  const last = sandboxes.sort((a, b) => a.generation - b.generation).at(-1);
  const leftover = last && (await deps.driver.canAdopt(last.id)) ? last.id : null;
  const record: SessionRecord = {
    ...kept.session,
    ...EMPTY_RECORD,
    ...WITHOUT_SANDBOX,
    harness_session: newest.checkpoint.harness_session ?? kept.session.harness_session,
    last_summary: kept.session.last_summary,
    last_check: kept.session.last_check ?? null,
    usage: kept.session.usage,
    handoff_due: kept.session.handoff_due,
    notes: kept.session.notes,
    forked_from: kept.session.forked_from ?? null,
    fork_due: kept.session.fork_due ?? false,
    state: "SUSPENDED",
    status: `Rebuilt from its checkpoint of ${newest.checkpoint.ts} after Redis lost its data`,
    state_since: deps.clock(),
    wanted: "down",
    generation: Math.max(newest.checkpoint.generation, kept.session.generation, last?.generation ?? 0),
    leftover_sandbox: leftover,
    name: await freeName(deps, kept.session),
  };
  await deps.sessions.create(record, {
    turns: kept.turns.map(cutShort),
    checkpoints: valid.map(({ checkpoint }) => checkpoint),
    events: [{ type: "state", state: "SUSPENDED", status: record.status }],
  });
  deps.log.warn({ session, name: record.name, checkpoints: valid.length, leftover }, "a session was rebuilt");
  return 1;
}

const cutShort = (turn: TurnRecord): TurnRecord =>
  turn.state === "running" || turn.state === "queued"
    ? { ...turn, state: "interrupted", error: "Redis lost its data while the turn ran or waited; send it again" }
    : turn;

/** Checkpoints later than the last that Redis knows; earlier ones that it does not know are pruned ones. */
async function addForgotten(deps: Deps, record: SessionRecord, ids: readonly string[]): Promise<number> {
  if (record.ending !== null || record.state === "ARCHIVED") return 0;
  const known = await deps.sessions.checkpoints(record.id);
  const last =
    known
      .map(({ id }) => id)
      .sort()
      .at(-1) ?? "";
  const begun = new Set((await deps.sessions.begins(record.id)).map(({ checkpoint }) => checkpoint));
  const later = ids.filter((id) => id > last && !begun.has(id));
  const valid = await readAll(deps, record.id, later);
  for (const { checkpoint } of valid) {
    await update(deps, record.id, (present) => ({
      guard: { rev: present.rev },
      change: {
        ...publication(checkpoint),
        set: { restore_from: null, generation: Math.max(present.generation, checkpoint.generation) },
      },
    }));
    deps.log.warn({ session: record.id, checkpoint: checkpoint.id }, "a forgotten checkpoint was added");
  }
  return valid.length;
}

interface Found {
  readonly checkpoint: CheckpointRecord;
  readonly kept: KeptRecord;
}

/** In the order in which they were committed. Markers that are not valid are none. */
async function readAll(deps: Deps, session: string, ids: readonly string[]): Promise<Found[]> {
  const found: Found[] = [];
  for (const id of ids) {
    try {
      const marker = await readMarker(deps, session, id);
      if (!marker) continue;
      const kept = await openKept(deps.vault, marker);
      found.push({ checkpoint: checkpointOf(marker, kept), kept });
    } catch (error) {
      if (error instanceof HangarError && error.retryable) throw error;
      deps.log.warn({ session, checkpoint: id, error }, "a marker in the store is not valid and was passed over");
    }
  }
  const order = ({ checkpoint: { generation, ts, id } }: Found): string =>
    `${String(generation).padStart(10, "0")} ${ts} ${id}`;
  return found.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

async function putEnvironment(deps: Deps, { session, environment }: KeptRecord): Promise<void> {
  if (!environment || (await deps.environments.get(session.owner, environment.name))) return;
  await deps.environments.put(session.owner, environment, "absent").catch((error: unknown) => {
    if (!(error instanceof HangarError && error.code === "name_taken")) throw error;
  });
}

async function freeName(deps: Deps, { owner, name, id }: SessionRecord): Promise<string> {
  const taken = await deps.sessions.find(owner, name);
  return taken === null || taken.id === id ? name : `${name.slice(0, 50)}-${id.slice(4)}`;
}
