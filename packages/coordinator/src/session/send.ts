/** Queues a message; opens the session where it is not up. */
import { HangarError, newNonce, newTurnId } from "@hangar/shared";
import type { SendMessage } from "@hangar/shared";
import { isLive, iso, start } from "./machine.ts";
import type { Change, Deps } from "./ports.ts";
import { hideCredentials } from "./redaction.ts";
import type { SessionRecord, TurnRecord } from "./record.ts";
import { refuseArchived } from "./open.ts";

const ATTEMPTS = 50;

export async function send(
  deps: Deps,
  id: string,
  input: SendMessage,
): Promise<{ record: SessionRecord; turn: TurnRecord }> {
  const turnId = newTurnId();
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const record = await deps.sessions.get(id);
    if (!record) throw new HangarError("session_not_found", "The session is gone");
    refuseArchived(record);
    const now = deps.clock();
    const turn = newTurn({ record, message: input.message, id: turnId, now, ...optional(input) });
    const queued: Change = {
      set: { wanted: "up", last_active_at: iso(now), start_failures: 0, start_not_before: 0 },
      turns: [turn],
      enqueue: [turn.id],
      events: [{ type: "turn_queued", turn: turn.id, message: hideCredentials(turn.message) }],
      ...(input.idempotency_key !== undefined && { idempotency: { key: input.idempotency_key, turn: turn.id } }),
      dueBy: now,
    };
    const { guard, change } = isLive(record.state)
      ? { guard: {}, change: queued }
      : start(record, now, newNonce(), queued);
    const result = await deps.sessions.change(id, { rev: record.rev, ...guard }, change);
    if (result.ok) return { record: result.record, turn };
    if (result.why === "idempotent" && result.turn !== undefined) {
      const first = await deps.sessions.turn(id, result.turn);
      if (first) return { record, turn: first };
    }
  }
  throw new HangarError("internal", "The session is changed by too many at once; try again");
}

const optional = (input: SendMessage) => ({
  ...(input.idempotency_key !== undefined && { idempotencyKey: input.idempotency_key }),
  ...(input.timeout_seconds !== undefined && { timeoutSeconds: input.timeout_seconds }),
});

export function newTurn(of: {
  record: Pick<SessionRecord, "harness" | "harness_session">;
  message: string;
  id: string;
  now: number;
  idempotencyKey?: string;
  timeoutSeconds?: number;
}): TurnRecord {
  return {
    id: of.id,
    message: of.message,
    state: "queued",
    run_id: null,
    idempotency_key: of.idempotencyKey ?? null,
    harness: of.record.harness,
    harness_session: of.record.harness_session,
    queued_at: iso(of.now),
    started_at: null,
    finished_at: null,
    exit_code: null,
    summary: null,
    error: null,
    conversation_lost: false,
    handoff: false,
    usage: null,
    checkpoint_id: null,
    timeout_seconds: of.timeoutSeconds ?? null,
    preamble: null,
  };
}
