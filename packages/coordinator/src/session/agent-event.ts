/** What a sandbox's events do to its session. Each is stored once, by its number, together with what it changes. */
import type { AgentEvent } from "@hangar/shared";
import { HangarError, redactEvent, startText } from "@hangar/shared";
import { stale } from "./agent-token.ts";
import { disposition } from "./leftover.ts";
import { iso, move } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Change, Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord } from "./record.ts";
import type { AgentIdentity } from "./faces.ts";
import { startFailed } from "./start-failed.ts";
import { finished, oneLine, settled } from "./turn.ts";

const ATTEMPTS = 50;

/** When it returns, the event is stored. `stale_generation` when the sandbox does not own the session any more. */
export async function takeEvent(deps: Deps, agent: AgentIdentity, seq: number, event: AgentEvent): Promise<void> {
  const owner = { generation: agent.generation, nonce: agent.nonce, seq };
  if (isOutput(event)) {
    const shown = await redactOutput(deps, agent, event);
    const result = await deps.sessions.change(agent.session, owner, { events: [shown], quiet: true });
    if (!result.ok && result.why !== "duplicate") throw await stale(deps, agent);
    return;
  }
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const record = await deps.sessions.get(agent.session);
    if (record?.generation !== agent.generation || record.nonce !== agent.nonce) throw await stale(deps, agent);
    if (seq <= record.seq) return;
    const said = redactEvent(event, await deps.redaction.for(record));
    const { shown, move } = await effect(deps, record, said);
    const change = { ...move.change, events: [shown, ...(move.change.events ?? [])] };
    const result = await deps.sessions.change(agent.session, { rev: record.rev, ...move.guard, ...owner }, change);
    if (result.ok || result.why === "duplicate") return;
  }
  throw new HangarError("redis_unavailable", "The session is changed by too many at once; send the event again");
}

const isOutput = (event: AgentEvent): boolean => event.type === "turn_output" || event.type === "notice";

/** Output comes often, and only its session's environment is asked for. */
async function redactOutput(deps: Deps, agent: AgentIdentity, event: AgentEvent): Promise<AgentEvent> {
  const record = await deps.sessions.get(agent.session);
  return record ? redactEvent(event, await deps.redaction.for(record, false)) : event;
}

interface Effect {
  readonly shown: AgentEvent;
  readonly move: Move;
}

const only = (change: Change): Move => ({ guard: {}, change });

async function effect(deps: Deps, record: SessionRecord, event: AgentEvent): Promise<Effect> {
  const now = deps.clock();
  switch (event.type) {
    case "phase":
      return { shown: { ...event, text: startText(event.phase, event.detail) }, move: phase(record, event, now) };
    case "restored":
      return { shown: event, move: only(await restored(deps, record, event)) };
    case "start_failed": {
      if (record.state !== "STARTING") return { shown: event, move: only({}) };
      const error = event.error.trim().slice(0, 2000);
      return {
        shown: { ...event, error },
        move: startFailed(record, now, oneLine(error), await disposition(deps, record)),
      };
    }
    case "turn_finished": {
      const turn = await runningTurn(deps, record, event.turn);
      if (turn?.state !== "running") return { shown: event, move: only({}) };
      return { shown: event, move: only(finished(record, turn, now, event.result)) };
    }
    case "turn_settled": {
      const turn = await runningTurn(deps, record, event.turn);
      return { shown: event, move: turn ? settled(record, turn, now, event) : only({}) };
    }
    case "checkpoint_failed": {
      const status = `A checkpoint (${event.reason}) failed: ${oneLine(event.error)}`;
      return { shown: event, move: only(record.state === "IDLE" ? { set: { status } } : {}) };
    }
    default:
      return { shown: event, move: only({}) };
  }
}

function phase(record: SessionRecord, event: Extract<AgentEvent, { type: "phase" }>, now: number): Move {
  if (record.state !== "STARTING") return only({ set: { phase: event.phase } });
  const detail = event.detail === null ? null : oneLine(event.detail);
  if (event.phase !== "ready") return only({ set: { phase: event.phase, status: detail } });
  return move(record, "IDLE", now, restoredStatus(record), {
    set: {
      phase: "ready",
      start_failures: 0,
      start_not_before: 0,
      adopting: null,
      last_active_at: iso(now),
    },
    dueBy: now,
  });
}

function restoredStatus({ restored_from: from }: SessionRecord): string | null {
  if (from === null) return null;
  const what = from.missing.length > 0 ? `; not as it was: ${oneLine(from.missing.join("; "))}` : "";
  if (!from.verified) return `Restored from ${from.checkpoint}, which did not verify${what}`;
  return what === "" ? null : `Restored from ${from.checkpoint}${what}`;
}

/** How the workspace came about: what the user is shown and what the next prompt must say. */
async function restored(
  deps: Deps,
  record: SessionRecord,
  event: Extract<AgentEvent, { type: "restored" }>,
): Promise<Change> {
  const checkpoints = await deps.sessions.checkpoints(record.id);
  const from = checkpoints.find(({ id }) => id === event.checkpoint);
  const marked: CheckpointRecord[] = [];
  for (const { checkpoint, why } of event.bad) {
    const known = checkpoints.find(({ id }) => id === checkpoint);
    if (known) marked.push({ ...known, bad: oneLine(why) });
  }
  const fresh = event.source === "fresh";
  return {
    checkpoints: marked,
    set: {
      restored_from:
        event.source === "checkpoint" && event.checkpoint !== null
          ? { checkpoint: event.checkpoint, verified: event.verified, missing: event.missing.slice(0, 100) }
          : null,
      ...(record.adopting !== null && { leftover_sandbox: null }),
      // A fork's own first checkpoint may be older than the copy of the conversation.
      ...(event.source === "checkpoint" &&
        !record.fork_due &&
        from?.harness === record.harness && { harness_session: from.harness_session }),
      ...(fresh && { harness_session: null }),
      notes: [...record.notes, ...notes(record, event, checkpoints)].slice(-20),
    },
  };
}

/** What is not as the agent remembers it. Nothing to say when its newest checkpoint restored and verified. */
function notes(
  record: SessionRecord,
  event: Extract<AgentEvent, { type: "restored" }>,
  checkpoints: readonly CheckpointRecord[],
): string[] {
  const said = event.missing.map((line) => `Not as it was: ${oneLine(line)}`);
  if (event.source === "adopted" && record.hot?.tried === record.generation) {
    return [
      ...said,
      "The machine went on from a snapshot: programs run on, but every connection to elsewhere was cut.",
    ];
  }
  if (event.source === "adopted") {
    return [
      ...said,
      "The machine ended unexpectedly; the workspace is as it was at that moment, but no process survived.",
    ];
  }
  if (event.source === "fresh") {
    if (record.generation === 1) return said;
    return [...said, "Nothing of the earlier workspace could be restored: this is a fresh clone."];
  }
  const newest = checkpoints.at(-1);
  if (newest && newest.id !== event.checkpoint) {
    const used = checkpoints.find(({ id }) => id === event.checkpoint);
    said.push(
      `The workspace is that of an older checkpoint, of ${used?.ts ?? "an unknown time"}: what was done after it is not there.`,
    );
  }
  if (!event.verified)
    said.push("The restored workspace did not match its fingerprint: check it before you rely on it.");
  if (newest && newest.id === event.checkpoint && !newest.paired) {
    said.push("The workspace changed while it was saved: files and conversation may be moments apart.");
  }
  return said;
}

async function runningTurn(deps: Deps, record: SessionRecord, turn: string) {
  return record.running_turn === turn ? deps.sessions.turn(record.id, turn) : null;
}
