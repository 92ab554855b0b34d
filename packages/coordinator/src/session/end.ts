/**
 * The two ends of a session. Archive: the work is dropped, the record with its last summary stays. Remove: nothing stays.
 * What is asked for is on the record first, so that any replica finishes what one began.
 */
import { HangarError } from "@hangar/shared";
import { identityKey, MARKER_FILE, sessionPrefix } from "../store/store.ts";
import { waitsNoMore } from "./fork.ts";
import { isLive, move } from "./machine.ts";
import { refuseArchived } from "./open.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord, TurnRecord } from "./record.ts";
import { update } from "./update.ts";
import { iso } from "./machine.ts";

/** A live session is suspended first. Of an archived one: no error. */
export async function archive(deps: Deps, id: string): Promise<SessionRecord> {
  return update(deps, id, (record) => {
    if (record.state === "ARCHIVED" || record.ending === "archive") return null;
    refuseArchived(record);
    refuseWaited(record, "archive it in a moment");
    return { guard: {}, change: { set: { ending: "archive", wanted: "down" }, dueBy: deps.clock() } };
  });
}

/** Returns when it is gone, or throws; then it goes on by itself. */
export async function remove(deps: Deps, id: string, { force }: { force: boolean }): Promise<void> {
  const record = await update(deps, id, (record) => {
    if (record.running_turn !== null && !force) {
      throw new HangarError(
        "wrong_state",
        `A turn is running in "${record.name}": wait for it, cancel it, or remove with --force`,
      );
    }
    if (!force) refuseWaited(record, "wait a moment, or remove with --force");
    // Without its nonce the sandbox is stale at once: nothing of it is committed any more.
    return {
      guard: { rev: record.rev },
      change: { set: { ending: "remove", wanted: "down", nonce: "" }, dueBy: deps.clock() },
    };
  });
  await finishRemove(deps, record);
}

/** Its forks begin from its checkpoints until they have their own. */
function refuseWaited({ name, forks_waiting }: SessionRecord, what: string): void {
  const count = forks_waiting.length;
  if (count === 0) return;
  const forks = count === 1 ? "A fork" : `${count} forks`;
  throw new HangarError("wrong_state", `${forks} of "${name}" still need its checkpoint: ${what}`);
}

/** One step further; none when the session is gone. */
export async function goOnEnding(deps: Deps, record: SessionRecord): Promise<SessionRecord | null> {
  if (record.importing_until > deps.clock()) return record;
  if (record.ending === "remove") {
    await finishRemove(deps, record);
    return null;
  }
  if (isLive(record.state)) return record;
  const archived = record.state === "ARCHIVED" ? record : await markArchived(deps, record.id);
  if (archived.state !== "ARCHIVED") return archived;
  await destroySandboxes(deps, archived);
  await deleteObjects(deps, archived.id);
  return update(deps, record.id, (present) => ({
    guard: { rev: present.rev },
    change: {
      set: { ending: null, leftover_sandbox: null, sandbox_id: null, kept_objects: [], restore_from: null },
      due: null,
    },
  }));
}

async function markArchived(deps: Deps, id: string): Promise<SessionRecord> {
  return update(deps, id, async (record) => {
    if (record.state !== "SUSPENDED" && record.state !== "FAILED") return null;
    const queue = await deps.sessions.queue(id);
    const turns = (await Promise.all(queue.map((turn) => deps.sessions.turn(id, turn)))).filter(
      (turn) => turn !== null,
    );
    const now = deps.clock();
    // Off the record in the same step: nobody sees an archived session that can be gone back to. Their objects go next.
    const checkpoints = await deps.sessions.checkpoints(id);
    return move(record, "ARCHIVED", now, record.status, {
      dropCheckpoints: checkpoints.map((checkpoint) => checkpoint.id),
      turns: turns.map((turn): TurnRecord => ({ ...turn, state: "cancelled", finished_at: iso(now) })),
      dequeue: queue,
      events: turns.map((turn) => ({ type: "turn_ended" as const, turn: turn.id, state: "cancelled" as const })),
      dueBy: now,
    });
  });
}

async function finishRemove(deps: Deps, record: SessionRecord): Promise<void> {
  await destroySandboxes(deps, record);
  await deleteObjects(deps, record.id);
  if (record.forked_from) await waitsNoMore(deps, record.forked_from.session, record.id);
  await deps.sessions.remove(record.id);
  if (record.own_environment) {
    await deps.environments.remove(record.owner, record.environment).catch((error: unknown) => {
      // Another session may use it by now; then it stays.
      if (!(error instanceof HangarError && error.code.startsWith("environment_"))) throw error;
    });
  }
}

/** The present one and whatever earlier ones left. */
async function destroySandboxes(deps: Deps, record: SessionRecord): Promise<void> {
  const left = (await deps.driver.list()).filter(({ session }) => session === record.id).map(({ id }) => id);
  if (record.hot) await deps.driver.snapshots?.remove(record.hot.snapshot);
  const all = new Set([...left, record.sandbox_id, record.leftover_sandbox].filter((id) => id !== null));
  await Promise.all(
    [...all].map(async (id) => {
      await deps.driver.destroy(id);
      await deps.commands.drop(id);
    }),
  );
}

/** Markers first: without one, a checkpoint is none; the key last. */
async function deleteObjects(deps: Deps, id: string): Promise<void> {
  const keys: string[] = [];
  for await (const key of deps.store.list(sessionPrefix(id))) keys.push(key);
  const isMarker = (key: string): boolean => key.endsWith(`/${MARKER_FILE}`);
  for (const key of keys.filter(isMarker)) await deps.store.delete(key);
  for (const key of keys) if (!isMarker(key) && key !== identityKey(id)) await deps.store.delete(key);
  await deps.store.delete(identityKey(id));
}
