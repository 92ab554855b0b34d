/** When an idle session suspends by itself (spec §5.4). Pure. */
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
  const automatic = { push: false, force: false, auto: true } as const;

  const expires = record.expires_at === null ? null : Date.parse(record.expires_at);
  if (expires !== null && record.seen_at >= expires) {
    const why = `Suspended at its time limit of ${minutes(record.ttl_minutes)}`;
    return startSuspend(record, now, { ...automatic, reason: "destroy", why });
  }
  if (record.idle_minutes > 0 && quiet >= idleLimit(record, checkpoints, settings)) {
    const why = `Suspended after ${minutes(record.idle_minutes)} without activity`;
    return startSuspend(record, now, { ...automatic, reason: "suspend", why });
  }
  return expires === null ? null : warning(record, now, expires);
}

/** Files that no checkpoint holds would be gone with the sandbox: it is kept longer for somebody to see to them. */
function idleLimit(
  record: SessionRecord,
  checkpoints: readonly CheckpointRecord[],
  settings: Pick<Settings, "left_out_hold_hours" | "use_keeps_awake_seconds">,
): number {
  const leftOut = (checkpoints.at(-1)?.left_out.length ?? 0) > 0;
  return Math.max(record.idle_minutes, leftOut ? settings.left_out_hold_hours * 60 : 0) * MINUTE;
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
