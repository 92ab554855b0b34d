/** When an idle session suspends by itself (spec §5.4). Pure. */
import { atRisk, heldStatus, heldUntil, isHolding } from "./held.ts";
import { awakeBy, iso, MINUTE } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Settings } from "./ports.ts";
import type { CheckpointRecord, SessionRecord } from "./record.ts";
import { startSuspend } from "./suspend.ts";

/** Never while something keeps it awake or its daemon is not there to be asked. None: nothing is due. */
export function idleMove(
  record: SessionRecord,
  now: number,
  checkpoints: readonly CheckpointRecord[],
  settings: Pick<Settings, "left_out_hold_hours" | "use_keeps_awake_seconds">,
): Move | null {
  if (!record.connected || awakeBy(record, now, settings).length > 0 || now < record.freeze_not_before) return null;
  // What the daemon said last, for a report from before the limit does not know what began since.
  const quiet = Math.min(record.seen_at, now) - Date.parse(record.last_active_at);
  const automatic = { push: false, force: false, accept_loss: true, auto: true } as const;

  const expires = record.expires_at === null ? null : Date.parse(record.expires_at);
  if (expires !== null && record.seen_at >= expires) {
    const why = `Suspended at its time limit of ${minutes(record.ttl_minutes)}`;
    return startSuspend(record, now, { ...automatic, reason: "destroy", why });
  }
  const soon = expires === null ? null : warning(record, now, expires);
  if (soon !== null || record.idle_minutes === 0 || quiet < record.idle_minutes * MINUTE) return soon;
  const until = heldUntil(record, settings);
  const files = atRisk(record, checkpoints);
  if (files.length > 0 && Math.min(record.seen_at, now) < until)
    return held(record, heldStatus(record.name, files, until));
  const why = `Suspended after ${minutes(record.idle_minutes)} without activity`;
  // The checkpoint that the suspend takes may be the first to leave something out: then the hold begins.
  const accept_loss = files.length > 0 || !isHolding(settings);
  return startSuspend(record, now, { ...automatic, accept_loss, reason: "suspend", why });
}

/** Files that no checkpoint holds would be gone with the sandbox: it is kept longer for somebody to see to them. */
function held(record: SessionRecord, status: string): Move | null {
  if (record.status === status) return null;
  return {
    guard: { from: ["IDLE"], rev: record.rev },
    change: { set: { status }, events: [{ type: "state", state: "IDLE", status }] },
  };
}

const WARN_AHEAD = 10 * MINUTE;

/** Said once, a while before the limit. */
function warning(record: SessionRecord, now: number, expires: number): Move | null {
  const ahead = Math.min(WARN_AHEAD, (record.ttl_minutes * MINUTE) / 2);
  const status = `Reaches its time limit at ${iso(expires)} and is then checkpointed and suspended, unless it is used`;
  if (now < expires - ahead || record.status === status) return null;
  return {
    guard: { from: ["IDLE"], rev: record.rev },
    change: { set: { status }, events: [{ type: "state", state: "IDLE", status }] },
  };
}

const minutes = (n: number): string => `${n} ${n === 1 ? "minute" : "minutes"}`;
