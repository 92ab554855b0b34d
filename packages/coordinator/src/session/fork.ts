/**
 * Forks: sessions of their own that go on from one checkpoint of another. Nothing is copied when one is made: its first
 * sandbox restores the parent's objects with the parent's key, and takes a checkpoint at once that is whole, in its own folder
 * and sealed to its own key. From then on it needs nothing of its parent, which is not touched but for a note of who waits.
 */
import { defaultBranch, Environment, HangarError, newSessionId, newTurnId } from "@hangar/shared";
import type { CheckResult, ForkedFrom, ForkSession, HarnessDefinition } from "@hangar/shared";
import { checkAsOf } from "./check.ts";
import { checkpointNow } from "./checkpoint.ts";
import { canFork, declaredFor } from "./declared.ts";
import { isUp } from "./machine.ts";
import { firstChange, firstStart, makeIdentity, refuseIdLike, undo } from "./new.ts";
import { refuseArchived } from "./open.ts";
import type { Deps } from "./ports.ts";
import { EMPTY_RECORD } from "./record.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";
import { newTurn } from "./send.ts";
import { update } from "./update.ts";

/** Whose objects and key its next start reads; none: its own. */
export const borrowing = (record: Pick<SessionRecord, "forked_from" | "baseline_due">): ForkedFrom | null =>
  record.baseline_due ? record.forked_from : null;

/** @throws HangarError `checkpoint_not_found`, `name_taken`, `wrong_state`: there is nothing to begin from yet. */
export async function fork(deps: Deps, parent: SessionRecord, input: ForkSession): Promise<SessionRecord[]> {
  refuseArchived(parent);
  if (borrowing(parent)) {
    throw new HangarError("wrong_state", `"${parent.name}" has no checkpoint of its own yet: fork it in a moment`);
  }
  const { checkpoint, isNewest } = await from(deps, parent, input.checkpoint);
  const turns = await turnsUntil(deps, parent, checkpoint);
  const last_check = checkAsOf(parent, { checkpoint, isNewest, turns });
  const names = await freeNames(deps, parent, input);
  const forks: SessionRecord[] = [];
  try {
    for (const name of names) forks.push(await make(deps, parent, { name, checkpoint, turns, last_check, input }));
  } catch (error) {
    // All of them or none: what was made has not begun to work.
    for (const made of forks) await discard(deps, made);
    throw error;
  }
  return forks;
}

/** The named checkpoint, or what the session is now. */
async function from(
  deps: Deps,
  parent: SessionRecord,
  wanted: string | undefined,
): Promise<{ checkpoint: CheckpointRecord; isNewest: boolean }> {
  if (wanted === undefined && isUp(parent.state)) {
    const { outcome } = await checkpointNow(deps, parent);
    if (outcome.outcome === "failed") throw new HangarError("checkpoint_failed", `Not forked: ${outcome.error}`);
  }
  const checkpoints = await deps.sessions.checkpoints(parent.id);
  const found =
    wanted === undefined
      ? checkpoints.findLast(({ bad }) => bad === null)
      : checkpoints.find(({ id }) => id === wanted);
  if (found) return { checkpoint: found, isNewest: found.id === checkpoints.at(-1)?.id };
  if (wanted === undefined) {
    throw new HangarError("wrong_state", `"${parent.name}" has no checkpoint yet: fork it once it has started`);
  }
  throw new HangarError(
    "checkpoint_not_found",
    `"${parent.name}" has no checkpoint ${wanted}: see \`hangar session checkpoints ${parent.name}\``,
  );
}

/** What the fork remembers: turns that had ended when the checkpoint was taken. */
async function turnsUntil(deps: Deps, parent: SessionRecord, checkpoint: CheckpointRecord): Promise<TurnRecord[]> {
  const turns = await deps.sessions.turns(parent.id);
  return turns.filter(
    (turn) =>
      turn.id === checkpoint.turn_id ||
      (turn.finished_at !== null && turn.started_at !== null && turn.finished_at <= checkpoint.ts),
  );
}

async function freeNames(deps: Deps, parent: SessionRecord, input: ForkSession): Promise<string[]> {
  const stem = input.name ?? `${parent.name.slice(0, 50)}-fork`;
  const taken = new Set((await deps.sessions.list(parent.owner)).map(({ name }) => name));
  const names: string[] = [];
  for (let n = 1; names.length < input.count; n++) {
    const name = `${stem}-${n}`;
    if (!taken.has(name)) names.push(name);
  }
  for (const name of names) refuseIdLike(name);
  return names;
}

async function make(
  deps: Deps,
  parent: SessionRecord,
  of: {
    name: string;
    checkpoint: CheckpointRecord;
    turns: readonly TurnRecord[];
    last_check: CheckResult | null;
    input: ForkSession;
  },
): Promise<SessionRecord> {
  const { name, checkpoint, turns, last_check, input } = of;
  const now = deps.clock();
  const id = newSessionId();
  const environment = await environmentFor(deps, parent, name);
  const harness = input.harness ?? parent.harness;
  const conversation = harness === checkpoint.harness ? checkpoint.harness_session : null;
  const isNative = conversation !== null && canFork(harness, await declared(deps, parent));
  const record: SessionRecord = {
    ...parent,
    ...EMPTY_RECORD,
    id,
    name,
    title: name,
    environment,
    harness,
    model: harness === parent.harness ? parent.model : null,
    branch: defaultBranch(name),
    harness_session: isNative ? conversation : null,
    fork_due: isNative,
    handoff_due: !isNative && turns.length > 0,
    forked_from: { session: parent.id, name: parent.name, checkpoint: checkpoint.id },
    baseline_due: true,
    notes: [`This session is a fork of "${parent.name}": it works on its own, on the branch ${defaultBranch(name)}.`],
    ...firstStart(id, parent.ttl_minutes, now),
    job_id: null,
    recipient: await makeIdentity(deps, id),
    last_summary: turns.at(-1)?.summary ?? null,
    last_check,
  };
  const { message } = input;
  const turn = message === undefined ? null : newTurn({ record, message, id: newTurnId(), now });
  await wait(deps, parent.id, { session: id, checkpoint: checkpoint.id });
  try {
    return await deps.sessions.create(record, firstChange(now, turn, turns));
  } catch (error) {
    await waitsNoMore(deps, parent.id, id);
    await undo(deps, record);
    throw error;
  }
}

async function declared(deps: Deps, parent: SessionRecord): Promise<HarnessDefinition[]> {
  const environment = await deps.environments.get(parent.owner, parent.environment);
  return environment === null ? [] : declaredFor(environment, deps.settings);
}

/** One that was made on the spot for the parent goes with it: the fork gets a copy. */
async function environmentFor(deps: Deps, parent: SessionRecord, name: string): Promise<string> {
  if (!parent.own_environment) return parent.environment;
  const known = await deps.environments.get(parent.owner, parent.environment);
  if (!known) {
    throw new HangarError("environment_not_found", `The environment "${parent.environment}" is gone: apply it again`);
  }
  const { created_at: _c, updated_at: _u, sessions: _s, ...document } = known;
  return (await deps.environments.put(parent.owner, Environment.parse({ ...document, name }), "absent")).name;
}

/** What it begins from stays, however many checkpoints the parent takes meanwhile. */
async function wait(deps: Deps, parent: string, one: { session: string; checkpoint: string }): Promise<void> {
  await update(deps, parent, async (record) => {
    if (!(await deps.sessions.checkpoints(parent)).some(({ id }) => id === one.checkpoint)) {
      throw new HangarError("checkpoint_not_found", `${one.checkpoint} was just dropped: fork again`);
    }
    const forks_waiting = [...record.forks_waiting, one];
    return { guard: { rev: record.rev }, change: { set: { forks_waiting }, quiet: true } };
  });
}

/** The fork has a checkpoint of its own, or is gone. Of a parent that is gone: nothing. */
export async function waitsNoMore(deps: Deps, parent: string, session: string): Promise<void> {
  if (!(await deps.sessions.get(parent))) return;
  await update(deps, parent, (record) => {
    const forks_waiting = record.forks_waiting.filter((one) => one.session !== session);
    if (forks_waiting.length === record.forks_waiting.length) return null;
    return { guard: { rev: record.rev }, change: { set: { forks_waiting }, quiet: true } };
  });
}

/** The rest is done where sessions are removed. */
const discard = (deps: Deps, made: SessionRecord): Promise<SessionRecord> =>
  update(deps, made.id, (record) => ({
    guard: { rev: record.rev },
    change: { set: { ending: "remove", wanted: "down", nonce: "" }, dueBy: deps.clock() },
  }));
