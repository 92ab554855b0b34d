/**
 * Suspends: freeze the sandbox, which takes a checkpoint of what is there now; destroy it only when that is committed, or
 * when force was given; else go back to IDLE and say why. Each step may be repeated by any replica.
 */
import { CheckpointOutcome, HangarError } from "@hangar/shared";
import type { LeftOut, SuspendSession } from "@hangar/shared";
import { atRisk, heldStatus, heldUntil, isHolding, named, refusedFor } from "./held.ts";
import { isHot, takeSnapshot } from "./hot.ts";
import { iso, MINUTE, move, WITHOUT_SANDBOX } from "./machine.ts";
import type { Move } from "./machine.ts";
import { refuseArchived } from "./open.ts";
import type { Change, CommandResult, Deps } from "./ports.ts";
import type { Freeze, HotSnapshot, SessionRecord } from "./record.ts";
import { endRunning, oneLine } from "./turn.ts";
import { update } from "./update.ts";

/** How long a forced suspend waits for a checkpoint before it goes on without one, ms. */
const FORCE_WAIT = 30_000;

export async function suspend(deps: Deps, id: string, input: SuspendSession): Promise<SessionRecord> {
  const { push, force } = input;
  const accept_loss = input.accept_loss || force || !isHolding(deps.settings);
  return update(deps, id, async (record) => {
    refuseArchived(record);
    const now = deps.clock();
    switch (record.state) {
      case "SUSPENDED":
        return record.wanted === "down" ? null : { guard: {}, change: { set: { wanted: "down" } } };
      case "FAILED":
        throw new HangarError("wrong_state", `The session "${record.name}" has failed and has no sandbox: open it`);
      case "STARTING":
        // Nothing is there to keep yet: it suspends once it is up, or is given up by force.
        return {
          guard: {},
          change: {
            set: {
              wanted: "down",
              freeze: {
                attempt: 0,
                reason: "suspend",
                push,
                force,
                accept_loss,
                auto: false,
                restore: null,
                why: null,
              },
            },
            dueBy: now,
          },
        };
      case "SUSPENDING": {
        const freeze = record.freeze && {
          ...record.freeze,
          force: record.freeze.force || force,
          accept_loss: record.freeze.accept_loss || accept_loss,
        };
        return { guard: {}, change: { set: { wanted: "down", freeze }, dueBy: now } };
      }
      default: {
        const files = accept_loss ? [] : atRisk(record, await deps.sessions.checkpoints(record.id));
        if (files.length > 0) throw new HangarError("would_lose", `Not suspended: ${refusedFor(record.name, files)}`);
        return startSuspend(record, now, { reason: "suspend", push, force, accept_loss, auto: false, why: null });
      }
    }
  });
}

/** IDLE or ACTIVE → SUSPENDING. */
export function startSuspend(
  record: SessionRecord,
  now: number,
  how: Omit<Freeze, "attempt" | "restore"> & Partial<Pick<Freeze, "restore">>,
): Move {
  const attempt = (record.freeze?.attempt ?? 0) + 1;
  return move(record, "SUSPENDING", now, how.why, {
    set: { freeze: { restore: null, ...how, attempt }, wanted: "down" },
    dueBy: now,
  });
}

const freezeId = ({ id, generation, freeze }: SessionRecord): string =>
  `cmd-freeze-${id}-g${generation}-${freeze?.attempt ?? 0}`;
const thawId = ({ id, generation, freeze }: SessionRecord): string =>
  `cmd-thaw-${id}-g${generation}-${freeze?.attempt ?? 0}`;

/** One look at a session that is SUSPENDING. `reachable`: its daemon answers or may still. */
export async function goOnSuspending(deps: Deps, record: SessionRecord): Promise<SessionRecord> {
  const { sandbox_id: sandbox, freeze } = record;
  if (sandbox === null || freeze === null) return record;
  const id = freezeId(record);
  const keep_processes = isHot(deps, await deps.environments.get(record.owner, record.environment));
  await deps.commands.push(sandbox, id, {
    kind: "freeze",
    reason: freeze.reason,
    push: freeze.push,
    ...(keep_processes && { keep_processes }),
  });
  const result = await deps.commands.result(sandbox, id);
  const waited = deps.clock() - record.state_since;
  const limit = freeze.force ? FORCE_WAIT : deps.settings.start_timeout_minutes * MINUTE;
  if (result === null && waited < limit && !(freeze.force && !record.connected)) return record;

  const failure = result === null ? "its checkpoint took too long" : await failureOf(deps, record, result);
  if (failure === null) {
    const files = atRisk(record, await deps.sessions.checkpoints(record.id));
    if (files.length === 0) {
      const hot = await takeSnapshot(deps, record);
      return hot === "wait" ? record : finish(deps, record, freeze.why, hot);
    }
    if (!freeze.accept_loss) return holdBack(deps, record, files);
    return finish(deps, record, [freeze.why, `left out and gone: ${named(files)}`].filter(Boolean).join("; "));
  }
  if (freeze.force) {
    const loss = `Suspended by force without a last checkpoint (${failure}): work since ${await lastKept(deps, record)} is lost`;
    return finish(deps, record, loss);
  }
  await deps.commands.withdraw(sandbox, id);
  return giveUp(deps, record, failure);
}

/** None: what is in the sandbox now is committed. Believed only where the session's record says so too. */
async function failureOf(deps: Deps, record: SessionRecord, result: CommandResult): Promise<string | null> {
  if (!result.ok) return oneLine(result.error);
  const outcome = CheckpointOutcome.safeParse(result.value);
  if (!outcome.success) return "the sandbox gave an answer that makes no sense";
  if (outcome.data.outcome === "failed") return oneLine(outcome.data.error);
  const { checkpoint } = outcome.data;
  const known = await deps.sessions.checkpoints(record.id);
  return known.some(({ id }) => id === checkpoint) ? null : `the checkpoint ${checkpoint} is not committed`;
}

async function lastKept(deps: Deps, record: SessionRecord): Promise<string> {
  const last = (await deps.sessions.checkpoints(record.id)).at(-1);
  return last ? `the checkpoint of ${last.ts}` : "the session began";
}

/** Destroys first, so that a replica that dies in between leaves the session SUSPENDING, and another goes on. */
async function finish(
  deps: Deps,
  record: SessionRecord,
  status: string | null,
  hot: HotSnapshot | null = null,
): Promise<SessionRecord> {
  const { sandbox_id: sandbox, generation, nonce } = record;
  if (sandbox !== null) await deps.driver.destroy(sandbox);
  const after = await update(deps, record.id, async (present) => {
    if (present.state !== "SUSPENDING" || present.generation !== generation || present.nonce !== nonce) return null;
    return suspended(deps, present, status, hot);
  });
  if (sandbox !== null) await deps.commands.drop(sandbox);
  return after;
}

async function suspended(
  deps: Deps,
  record: SessionRecord,
  status: string | null,
  hot: HotSnapshot | null,
): Promise<Move> {
  const now = deps.clock();
  const ended = record.running_turn === null ? {} : await endRunning(deps, record, "The session was suspended.");
  const next = record.wanted === "up" || record.ending !== null ? { dueBy: now } : { due: retention(deps, now) };
  const queued = ended.enqueue?.length ?? (await deps.sessions.counts(record.id)).queued;
  const waiting = queued > 0 && record.wanted === "down" ? `${queued} waiting: it runs at the next open` : null;
  return move(record, "SUSPENDED", now, [status, waiting].filter((line) => line !== null).join("; ") || null, {
    ...ended,
    ...next,
    set: {
      ...ended.set,
      ...WITHOUT_SANDBOX,
      hot,
      freeze: null,
      freeze_failures: 0,
      freeze_not_before: 0,
      restore_from: record.freeze?.restore ?? record.restore_from,
    },
  });
}

/** When a suspended session is looked at by itself. */
const retention = (deps: Deps, now: number): number | null => {
  const days = deps.settings.session_retention_days ?? 0;
  return days > 0 ? now + days * 1440 * MINUTE : null;
};

/** Back to IDLE: its checkpoint is committed, but leaves out what nobody has given up. Not tried again by itself. */
function holdBack(deps: Deps, record: SessionRecord, files: readonly LeftOut[]): Promise<SessionRecord> {
  const status = record.freeze?.auto
    ? heldStatus(record.name, files, heldUntil(record, deps.settings))
    : `Not suspended: ${refusedFor(record.name, files)}`;
  return backToIdle(deps, record, () => ({ status, set: { wanted: "up", freeze: null } }));
}

/** Back to IDLE: nothing is destroyed that is not kept. The next try waits longer each time. */
function giveUp(deps: Deps, record: SessionRecord, failure: string): Promise<SessionRecord> {
  return backToIdle(deps, record, (present) => {
    const failures = present.freeze_failures + 1;
    const notBefore = deps.clock() + Math.min(30_000 * 2 ** (failures - 1), 15 * MINUTE);
    return {
      status: `Not suspended, nothing lost: ${failure}. Tried again at ${iso(notBefore)}`,
      set: {
        freeze_failures: failures,
        freeze_not_before: notBefore,
        ...(present.freeze?.auto && { wanted: "up" }),
      },
    };
  });
}

async function backToIdle(
  deps: Deps,
  record: SessionRecord,
  to: (present: SessionRecord) => { status: string; set: Partial<SessionRecord> },
): Promise<SessionRecord> {
  const { sandbox_id: sandbox, generation, nonce } = record;
  if (sandbox !== null) await deps.commands.push(sandbox, thawId(record), { kind: "thaw" });
  return update(deps, record.id, async (present) => {
    if (present.state !== "SUSPENDING" || present.generation !== generation || present.nonce !== nonce) return null;
    const now = deps.clock();
    const { status, set } = to(present);
    const ended: Change =
      present.running_turn === null
        ? {}
        : // The same sandbox goes on, and is not given a turn twice.
          await endRunning(deps, { ...present, refused_turn: null }, "A suspend stopped the turn.");
    return move(present, "IDLE", now, status, { ...ended, set: { ...ended.set, ...set }, dueBy: now });
  });
}
