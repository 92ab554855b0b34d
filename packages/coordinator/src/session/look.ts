/**
 * One look at one session: does what is due for it and says when to look next. Every step may be done by any replica, twice,
 * or be cut off in the middle: what it changes is guarded, what it starts is named by what it is for.
 */
import { HangarError, newNonce, START_WORDS } from "@hangar/shared";
import { goOnEnding } from "./end.ts";
import { dropHot, RESTORE_MS } from "./hot.ts";
import { idleMove } from "./idle.ts";
import { lose } from "./lost.ts";
import { isLive, MINUTE, start } from "./machine.ts";
import { makeSandbox } from "./open.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import type { SandboxStatus } from "../driver/driver.ts";
import { sweep } from "./rescue.ts";
import { failStart, startTimeout } from "./start-failed.ts";
import { startWaits } from "./start-waits.ts";
import { goOnSuspending, startSuspend } from "./suspend.ts";
import { dispatch, giveTurn, giveUpRefused, oneLine } from "./turn.ts";
import { update } from "./update.ts";
import { MADE_FOR_IT } from "../warm/claim.ts";

/**
 * `reachableSince`: since when this replica has been there to hear daemons, ms since 1970; silence before that says nothing.
 * Answers when to look next; none: when something happens.
 */
export async function look(deps: Deps, id: string, reachableSince: number): Promise<number | null> {
  let record = await deps.sessions.get(id);
  if (!record) return null;
  // A step that changes the state is followed by the next one at once; each leads closer to where nothing is due.
  for (let step = 0; step < 8; step++) {
    const after: SessionRecord | null = await takeStep(deps, record, reachableSince);
    if (after === null) return null;
    if (after.rev === record.rev) break;
    record = after;
  }
  const expiry = await sweep(deps, record);
  const next = nextLook(deps, record);
  return expiry === null || next === null ? (next ?? expiry) : Math.min(next, expiry);
}

/** None: the session is gone. */
async function takeStep(deps: Deps, record: SessionRecord, reachableSince: number): Promise<SessionRecord | null> {
  if (record.ending !== null) {
    const ended = await goOnEnding(deps, record);
    if (ended === null || !isLive(ended.state)) return ended;
  }
  switch (record.state) {
    case "STARTING":
      return goOnStarting(deps, record, reachableSince);
    case "IDLE":
      return (await lostNow(deps, record, reachableSince)) ?? goOnIdle(deps, record);
    case "ACTIVE": {
      const lost = await lostNow(deps, record, reachableSince);
      if (lost) return lost;
      if (record.ending === "archive" && deps.clock() >= record.freeze_not_before) return suspendToEnd(deps, record);
      await giveTurn(deps, record);
      return (await giveUpRefused(deps, record)) ?? record;
    }
    case "SUSPENDING": {
      // A result that is there counts, though the sandbox may be gone by now.
      const after = await goOnSuspending(deps, record);
      return after.rev === record.rev ? ((await lostNow(deps, record, reachableSince)) ?? after) : after;
    }
    case "ARCHIVED":
      return record;
    default:
      return goOnDown(deps, record);
  }
}

async function goOnStarting(deps: Deps, record: SessionRecord, reachableSince: number): Promise<SessionRecord> {
  const { start_timeout_minutes: minutes } = deps.settings;
  if (record.wanted === "down" && record.freeze?.force && record.sandbox_id !== null) {
    await deps.driver.stop(record.sandbox_id);
    return lose(deps, record, "The start was given up");
  }
  if (deps.clock() - record.state_since >= minutes * MINUTE) {
    const { code, message } = startTimeout(minutes, record);
    await failStart(deps, record, code, message);
    return (await deps.sessions.get(record.id)) ?? record;
  }
  const there = await statusIn(deps, record);
  const isClaimed = (record.warm ?? MADE_FOR_IT) !== MADE_FOR_IT;
  if ((there === null || isClaimed) && record.seen_at === 0 && !record.sandbox_made) {
    await makeSandbox(deps, record.id);
    return (await deps.sessions.get(record.id)) ?? record;
  }
  const isUnheard = there?.state === "running" && record.seen_at === 0;
  const start = isUnheard ? there.start : null;
  if (start !== null && "failed" in start) await failStart(deps, record, start.code, start.failed);
  else if (start !== null) await startWaits(deps, record, start.waits);
  // What was waited for before is over: its daemon comes up.
  else if (isUnheard && record.status !== null) await startWaits(deps, record, START_WORDS.starting);
  if (start !== null) return (await deps.sessions.get(record.id)) ?? record;
  return (await lostNow(deps, record, reachableSince)) ?? record;
}

/** A cluster that is away for a start's look says nothing of it, but that. */
async function statusIn(deps: Deps, record: SessionRecord): Promise<SandboxStatus | null> {
  if (record.sandbox_id === null) return null;
  try {
    return await deps.driver.status(record.sandbox_id);
  } catch (error) {
    if (error instanceof HangarError && error.retryable) await startWaits(deps, record, error.message);
    throw error;
  }
}

async function goOnIdle(deps: Deps, record: SessionRecord): Promise<SessionRecord> {
  const now = deps.clock();
  // Restored from, or not: it is of no more use, and holds secrets.
  if ((record.hot ?? null) !== null) return dropHot(deps, record);
  if (record.wanted === "up" && record.ending === null) {
    const dispatched = await dispatch(deps, record.id);
    if (dispatched.state !== "IDLE") return dispatched;
    return update(deps, record.id, async (present) =>
      present.state === "IDLE"
        ? idleMove(present, now, await deps.sessions.checkpoints(record.id), deps.settings)
        : null,
    );
  }
  return now < record.freeze_not_before ? record : suspendToEnd(deps, record);
}

/** What was asked for, and failed or could not be done before. */
function suspendToEnd(deps: Deps, record: SessionRecord): Promise<SessionRecord> {
  return update(deps, record.id, (present) => {
    const asked = present.wanted === "down" || present.ending !== null;
    if (!asked || present.state !== record.state) return null;
    const { push = false, force = false, accept_loss = false } = present.freeze ?? {};
    const how = { push, force, accept_loss: accept_loss || present.ending !== null };
    return startSuspend(present, deps.clock(), { reason: "suspend", ...how, auto: false, why: null });
  });
}

/** What a session without a sandbox still has to do: be rid of the last one, start again where that is wanted. */
async function goOnDown(deps: Deps, record: SessionRecord): Promise<SessionRecord> {
  if (record.sandbox_id !== null) {
    await deps.driver.destroy(record.sandbox_id);
    await deps.commands.drop(record.sandbox_id);
    const result = await deps.sessions.change(record.id, { rev: record.rev }, { set: { sandbox_id: null } });
    return result.ok ? result.record : ((await deps.sessions.get(record.id)) ?? record);
  }
  if (record.leftover_sandbox !== null) {
    const left = await deps.driver.status(record.leftover_sandbox);
    if (left?.state === "running") await deps.driver.stop(record.leftover_sandbox);
  }
  const now = deps.clock();
  if (record.state === "FAILED") return record;
  if (record.wanted === "up") {
    if (now < record.start_not_before) return record;
    return update(deps, record.id, (present) =>
      present.state === "SUSPENDED" && present.wanted === "up" && present.ending === null
        ? start(present, now, newNonce())
        : null,
    );
  }
  const days = deps.settings.session_retention_days ?? 0;
  if (days > 0 && now - record.state_since >= days * 1440 * MINUTE) {
    const result = await deps.sessions.change(
      record.id,
      { rev: record.rev, from: ["SUSPENDED"] },
      { set: { ending: "archive", status: `Not opened for ${days} days` }, dueBy: now },
    );
    if (result.ok) return result.record;
  }
  return record;
}

/** The record after its sandbox was found lost, or as it is while the sandbox is ended by others; none: it is there, or may be. */
async function lostNow(deps: Deps, record: SessionRecord, reachableSince: number): Promise<SessionRecord | null> {
  if (record.sandbox_id === null) return null;
  const there = await deps.driver.status(record.sandbox_id);
  if (there?.state === "ending") return ending(deps, record, there);
  if (there?.state !== "running") {
    const detail = there?.detail ? ` (${there.detail})` : "";
    return lose(deps, record, `The sandbox ended by itself${detail}`);
  }
  if (there.restarts.count > (record.restarts ?? 0)) return restarted(deps, record, there.restarts);
  if (record.seen_at === 0) return unanswered(deps, record);
  // Longer than the lease, after which the daemon itself has stopped its turn and kept what was there.
  const silent = deps.clock() - Math.max(record.seen_at, reachableSince);
  if (silent < deps.settings.lease_seconds * 3000) return null;
  await deps.driver.stop(record.sandbox_id);
  return lose(deps, record, `The sandbox was not heard of for ${Math.round(silent / 1000)} s`);
}

/** A warm sandbox was there when it was claimed: where it does not take the session soon, another start is tried. */
async function unanswered(deps: Deps, record: SessionRecord): Promise<SessionRecord | null> {
  const isWarm = (record.warm ?? MADE_FOR_IT) !== MADE_FOR_IT;
  const isRestoring = record.hot?.tried === record.generation;
  if ((!isWarm && !isRestoring) || record.sandbox_id === null) return null;
  const patience = isWarm ? deps.settings.lease_seconds * 1000 : RESTORE_MS;
  if (deps.clock() - record.state_since < patience) return null;
  await deps.driver.stop(record.sandbox_id);
  return lose(deps, record, isWarm ? "The warm sandbox did not take the session" : "The snapshot was not restored");
}

/** Its daemon takes a last checkpoint of what is there; whatever waits, waits for the next sandbox. */
async function ending(deps: Deps, record: SessionRecord, { detail }: SandboxStatus): Promise<SessionRecord> {
  const status = `The sandbox is being ended${detail === null ? "" : ` (${oneLine(detail)})`}: a last checkpoint is taken`;
  if (record.status === status || record.state === "STARTING" || record.state === "SUSPENDING") return record;
  const events = [{ type: "state" as const, state: record.state, status }];
  const guard = { rev: record.rev, from: [record.state] };
  const result = await deps.sessions.change(record.id, guard, { set: { status }, events });
  return result.ok ? result.record : ((await deps.sessions.get(record.id)) ?? record);
}

/** In place, so nothing on disk is lost; but every process is. The session goes on. */
async function restarted(
  deps: Deps,
  record: SessionRecord,
  { count, why }: SandboxStatus["restarts"],
): Promise<SessionRecord> {
  const line = `The sandbox was started again in place (${oneLine(why)}); its files are as they were`;
  const isUp = record.state !== "STARTING";
  const note = `The machine was restarted (${oneLine(why)}): the workspace is as it was at that moment, but no process survived.`;
  const result = await deps.sessions.change(
    record.id,
    { rev: record.rev },
    {
      set: { restarts: count, status: line, ...(isUp && { notes: [...record.notes, note].slice(-20) }) },
      events: [{ type: "notice", text: line }],
    },
  );
  return result.ok ? result.record : ((await deps.sessions.get(record.id)) ?? record);
}

function nextLook(deps: Deps, record: SessionRecord): number | null {
  const now = deps.clock();
  const pass = (deps.settings.idle_pass_seconds ?? 60) * 1000;
  if (record.ending !== null) return Math.max(now + Math.min(pass, 5000), record.importing_until);
  switch (record.state) {
    case "STARTING":
      return now + Math.min(pass, 5000);
    case "SUSPENDING":
      return now + Math.min(pass, 2000);
    case "IDLE":
    case "ACTIVE":
      return now + pass;
    case "SUSPENDED": {
      if (record.wanted === "up") return Math.max(now + 100, record.start_not_before);
      const days = deps.settings.session_retention_days ?? 0;
      return days > 0 ? record.state_since + days * 1440 * MINUTE : null;
    }
    default:
      return null;
  }
}
