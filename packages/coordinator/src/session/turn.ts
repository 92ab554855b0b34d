/** Turns: from the queue to the sandbox, and their end. */
import { HangarError } from "@hangar/shared";
import type { AgentCommand, TurnResult, Usage } from "@hangar/shared";
import { handoffAccount } from "./handoff.ts";
import { iso, move } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Change, Deps } from "./ports.ts";
import { hideCredentials } from "./redaction.ts";
import type { SessionRecord, TurnRecord } from "./record.ts";
import { update } from "./update.ts";

export const turnCommandId = (turn: string): string => `cmd-turn-${turn.slice(4)}`;
export const turnOfCommand = (command: string): string | null =>
  /^cmd-turn-[0-9a-f]{12}$/.test(command) ? `trn-${command.slice(9)}` : null;

/** Gives the first waiting turn to an idle sandbox. Of two replicas, one does. */
export async function dispatch(deps: Deps, id: string): Promise<SessionRecord> {
  return update(deps, id, async (record) => {
    if (record.state !== "IDLE" || record.wanted !== "up" || record.ending !== null) return null;
    const [next] = await deps.sessions.queue(id);
    if (next === undefined) return null;
    const turn = await deps.sessions.turn(id, next);
    if (!turn) return { guard: {}, change: { dequeue: [next] } };
    const now = deps.clock();
    const running = await prepare(deps, record, turn, now);
    return move(record, "ACTIVE", now, null, {
      turns: [running],
      dequeue: [next],
      set: { running_turn: next, notes: [], handoff_due: false, last_active_at: iso(now) },
      dueBy: now,
    });
  });
}

async function prepare(deps: Deps, record: SessionRecord, turn: TurnRecord, now: number): Promise<TurnRecord> {
  // Read only where an account is due: a session may have many turns.
  const isDue = record.handoff_due || record.harness_session === null;
  const earlier = isDue ? (await deps.sessions.turns(record.id)).filter((other) => other.started_at !== null) : [];
  const handoff = earlier.length > 0;
  // A turn that its sandbox would not begin has what it was to be told already.
  const before = turn.preamble === null || handoff ? [] : [turn.preamble];
  const parts = [
    ...(handoff ? [handoffAccount(record, earlier, record.harness_session !== null)] : []),
    ...before,
    ...notesText(record.notes),
  ];
  return {
    ...turn,
    state: "running",
    run_id: record.sandbox_id,
    harness: record.harness,
    harness_session: record.harness_session,
    started_at: iso(now),
    handoff,
    preamble: parts.length > 0 ? parts.join("\n\n") : null,
  };
}

const notesText = (notes: readonly string[]): string[] =>
  notes.length === 0 ? [] : [`[Hangar] Before you go on:\n${notes.map((note) => `- ${note}`).join("\n")}`];

/** Gives the running turn's command, which does nothing where it was given before. */
export async function giveTurn(deps: Deps, record: SessionRecord): Promise<void> {
  if (record.state !== "ACTIVE" || record.running_turn === null || record.sandbox_id === null) return;
  const turn = await deps.sessions.turn(record.id, record.running_turn);
  if (turn?.state !== "running") return;
  await deps.commands.push(record.sandbox_id, turnCommandId(turn.id), commandOf(record, turn));
}

const commandOf = (record: SessionRecord, turn: TurnRecord): AgentCommand => ({
  kind: "turn",
  turn: turn.id,
  harness: turn.harness,
  model: record.model,
  message: turn.message,
  preamble: turn.preamble,
  handoff: turn.handoff,
  harness_session: turn.harness_session,
  fork: record.fork_due && !turn.handoff,
  timeout_seconds: turn.timeout_seconds,
});

/** The harness ended: the turn has its result; the session goes on when it has settled. */
export function finished(record: SessionRecord, turn: TurnRecord, at: number, result: TurnResult): Change {
  return {
    turns: [
      {
        ...turn,
        state: result.state,
        finished_at: iso(at),
        exit_code: result.exit_code,
        summary: result.summary,
        error: result.error,
        harness_session: result.harness_session ?? turn.harness_session,
        conversation_lost: result.conversation_lost,
        handoff: turn.handoff || result.handoff,
        usage: result.usage,
      },
    ],
    set: {
      ...conversationAfter(record, turn, result),
      last_summary: result.summary ?? record.last_summary,
      usage: add(record.usage, result.usage),
      ...(result.state === "interrupted" && { notes: [...record.notes, interruptedNote(turn)].slice(-20) }),
    },
  };
}

/**
 * What the next turn goes on with. A conversation that was lost is never asked for again: the next prompt tells what went
 * before. A turn of the harness that the session has left meanwhile says nothing of the present one's.
 */
function conversationAfter(record: SessionRecord, turn: TurnRecord, result: TurnResult): Partial<SessionRecord> {
  if (turn.harness !== record.harness) return {};
  // The parent's conversation stays what is copied until there is a copy.
  const forked = record.fork_due && result.harness_session !== null && result.harness_session !== turn.harness_session;
  const fork_due = record.fork_due && !forked && !result.conversation_lost && !turn.handoff;
  if (result.conversation_lost) return { harness_session: result.harness_session, handoff_due: true, fork_due };
  return { harness_session: result.harness_session ?? record.harness_session, fork_due };
}

/** The checkpoint after the turn is there, or is not: the turn is over for its session. */
export function settled(
  record: SessionRecord,
  turn: TurnRecord,
  now: number,
  outcome: { checkpoint: string | null; error: string | null },
): Move {
  const state = turn.state === "running" ? "interrupted" : turn.state;
  const more: Change = {
    turns: [{ ...turn, state, finished_at: turn.finished_at ?? iso(now), checkpoint_id: outcome.checkpoint }],
    set: { running_turn: null, last_active_at: iso(now) },
    events: [{ type: "turn_ended", turn: turn.id, state }],
    dueBy: now,
  };
  if (record.state !== "ACTIVE") return { guard: {}, change: more };
  // What ended it, a restart in place say, is still worth reading.
  const said = state === "interrupted" ? record.status : null;
  const status = outcome.error === null ? said : `The turn's checkpoint failed: ${oneLine(outcome.error)}`;
  return move(record, "IDLE", now, status, more);
}

/** Its sandbox would not run it. */
export function refused(record: SessionRecord, turn: TurnRecord, now: number, error: string): Move {
  return move(record, "IDLE", now, null, {
    turns: [{ ...turn, state: "failed", finished_at: iso(now), error: oneLine(error) }],
    set: { running_turn: null, refused_turn: null },
    events: [{ type: "turn_ended", turn: turn.id, state: "failed" }],
    dueBy: now,
  });
}

/** A turn that was kept for the next sandbox, and this one does not end: it has failed after all. */
export async function giveUpRefused(deps: Deps, record: SessionRecord): Promise<SessionRecord | null> {
  const { running_turn: id, refused_turn: waits } = record;
  if (id === null || waits !== id || deps.clock() - record.state_since < deps.settings.lease_seconds * 3000)
    return null;
  const turn = await deps.sessions.turn(record.id, id);
  if (turn?.state !== "running") return null;
  return update(deps, record.id, (present) =>
    present.state === "ACTIVE" && present.refused_turn === id
      ? refused(present, turn, deps.clock(), "The sandbox takes no turns: suspend the session and send it again")
      : null,
  );
}

/** For a turn whose sandbox is gone. A turn that had its result keeps it; one that never began is first in the queue again. */
export async function endRunning(deps: Deps, record: SessionRecord, why: string): Promise<Change> {
  const turn = record.running_turn === null ? null : await deps.sessions.turn(record.id, record.running_turn);
  if (!turn) return { set: { running_turn: null } };
  if (record.refused_turn === turn.id && turn.state === "running") {
    const rest = await deps.sessions.queue(record.id);
    return {
      turns: [{ ...turn, state: "queued", run_id: null, started_at: null }],
      dequeue: rest,
      enqueue: [turn.id, ...rest],
      set: { running_turn: null, refused_turn: null },
    };
  }
  const cut = turn.state === "running";
  const state = cut ? "interrupted" : turn.state;
  return {
    turns: [
      {
        ...turn,
        state,
        finished_at: turn.finished_at ?? iso(deps.clock()),
        error: cut ? `${why} The turn is not run again by itself: send it again where it should be.` : turn.error,
      },
    ],
    set: { running_turn: null, ...(cut && { notes: [...record.notes, interruptedNote(turn)].slice(-20) }) },
    events: [{ type: "turn_ended", turn: turn.id, state }],
  };
}

const interruptedNote = (turn: TurnRecord): string =>
  `The turn before this one was cut short and not run again; check what of it was done. Its message began: ${JSON.stringify(turn.message.slice(0, 200))}`;

/** A queued turn is cancelled here and now; a running one by its daemon. */
export async function cancelTurn(deps: Deps, id: string, turnId: string): Promise<TurnRecord> {
  const record = await update(deps, id, async (record) => {
    const turn = await deps.sessions.turn(id, turnId);
    if (!turn) throw new HangarError("turn_not_found", `The session has no turn ${turnId.slice(0, 40)}`);
    if (turn.state !== "queued") return null;
    const cancelled: TurnRecord = { ...turn, state: "cancelled", finished_at: iso(deps.clock()) };
    return {
      guard: { rev: record.rev },
      change: {
        turns: [cancelled],
        dequeue: [turnId],
        events: [{ type: "turn_ended", turn: turnId, state: "cancelled" }],
      },
    };
  });
  if (record.running_turn === turnId && record.sandbox_id !== null) {
    const command: AgentCommand = { kind: "cancel_turn", turn: turnId };
    await deps.commands.push(record.sandbox_id, `cmd-cancel-${turnId.slice(4)}`, command);
  }
  const turn = await deps.sessions.turn(id, turnId);
  if (!turn) throw new HangarError("turn_not_found", `The session has no turn ${turnId.slice(0, 40)}`);
  return turn;
}

function add(sum: Usage | null, more: Usage | null): Usage | null {
  if (!sum || !more) return sum ?? more;
  return {
    input_tokens: sum.input_tokens + more.input_tokens,
    output_tokens: sum.output_tokens + more.output_tokens,
    cache_read_tokens: sum.cache_read_tokens + more.cache_read_tokens,
    cache_write_tokens: sum.cache_write_tokens + more.cache_write_tokens,
    cost_usd: sum.cost_usd === null && more.cost_usd === null ? null : (sum.cost_usd ?? 0) + (more.cost_usd ?? 0),
  };
}

/** What a sandbox said, fit for a status line. */
export const oneLine = (text: string): string => hideCredentials(text).replace(/\s+/g, " ").trim().slice(0, 500);
