/** A session's states and the moves between them: the only table. Pure. */
import { HangarError, keptAwakeBy, sandboxIdOf } from "@hangar/shared";
import type { Activity, SessionState } from "@hangar/shared";
import type { Change, Guard, Settings } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

/**
 * From each state to which. IDLE and ACTIVE go to SUSPENDED or FAILED when their sandbox is lost: SUSPENDED where a
 * committed checkpoint or a folder that can be taken over is left.
 */
export const TRANSITIONS: Readonly<Record<SessionState, readonly SessionState[]>> = {
  STARTING: ["IDLE", "SUSPENDED", "FAILED"],
  IDLE: ["ACTIVE", "SUSPENDING", "SUSPENDED", "FAILED"],
  ACTIVE: ["IDLE", "SUSPENDING", "SUSPENDED", "FAILED"],
  SUSPENDING: ["IDLE", "SUSPENDED", "FAILED"],
  SUSPENDED: ["STARTING", "ARCHIVED"],
  FAILED: ["STARTING", "ARCHIVED"],
  ARCHIVED: [],
};

const STATES = Object.keys(TRANSITIONS) as SessionState[];
export const allowedFrom = (to: SessionState): SessionState[] =>
  STATES.filter((from) => TRANSITIONS[from].includes(to));

/** States that have a sandbox, or are about to. */
export const LIVE: readonly SessionState[] = ["STARTING", "IDLE", "ACTIVE", "SUSPENDING"];
export const isLive = (state: SessionState): boolean => LIVE.includes(state);
/** States in which a sandbox takes commands. */
export const isUp = (state: SessionState): boolean => state === "IDLE" || state === "ACTIVE";

export interface Move {
  readonly guard: Guard;
  readonly change: Change;
}

/** The move to a state, with its event. Only from the record as it was read: a record changed since refuses it. */
export function move(
  record: SessionRecord,
  to: SessionState,
  now: number,
  status: string | null,
  more: Change = {},
): Move {
  if (!TRANSITIONS[record.state].includes(to)) {
    throw new HangarError("wrong_state", `The session "${record.name}" is ${record.state} and cannot become ${to}`);
  }
  return {
    guard: { from: allowedFrom(to), rev: record.rev },
    change: {
      ...more,
      set: { ...more.set, state: to, status, state_since: now },
      events: [...(more.events ?? []), { type: "state", state: to, status }],
    },
  };
}

/** A start: one generation higher, with a nonce of its own, so that whatever ran before is stale from here on. */
export function start(record: SessionRecord, now: number, nonce: string, more: Change = {}): Move {
  const generation = record.generation + 1;
  return move(record, "STARTING", now, null, {
    dueBy: now,
    ...more,
    set: {
      generation,
      nonce,
      sandbox_id: sandboxIdOf(record.id, generation),
      phase: "starting",
      wanted: "up",
      seq: 0,
      seen_at: 0,
      connected: false,
      replica: null,
      activity: null,
      freeze: null,
      freeze_failures: 0,
      freeze_not_before: 0,
      adopting: null,
      sandbox_made: false,
      warm: null,
      refused_turn: null,
      restarts: 0,
      sandbox_started_at: iso(now),
      last_active_at: iso(now),
      expires_at: expiry(record.ttl_minutes, now),
      ...more.set,
    },
  });
}

/** What a record holds once no sandbox belongs to it. */
export const WITHOUT_SANDBOX = {
  nonce: "",
  sandbox_id: null,
  phase: null,
  connected: false,
  replica: null,
  activity: null,
  expires_at: null,
  sandbox_started_at: null,
  adopting: null,
} as const satisfies Partial<SessionRecord>;

export const iso = (ms: number): string => new Date(ms).toISOString();
export const MINUTE = 60_000;
export const expiry = (ttlMinutes: number, now: number): string | null =>
  ttlMinutes > 0 ? iso(now + ttlMinutes * MINUTE) : null;

export const NO_ACTIVITY: Activity = { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: null };

/** What keeps it awake: what its daemon reports, and uses through Hangar that the daemon has not reported yet. */
export function awakeBy(
  record: SessionRecord,
  now: number,
  settings: Pick<Settings, "use_keeps_awake_seconds"> = {},
): string[] {
  if (!isLive(record.state)) return [];
  const activity = record.activity ?? NO_ACTIVITY;
  // A sandbox's clock may be wrong, and what it says may be untrue: no use lies in the future.
  const reported = Math.min(activity.last_used_at === null ? 0 : Date.parse(activity.last_used_at), now);
  const used = Math.max(reported, record.used_at);
  return keptAwakeBy(
    {
      ...activity,
      turn_running: activity.turn_running || record.state === "ACTIVE",
      last_used_at: used > 0 ? iso(used) : null,
    },
    now,
    (settings.use_keeps_awake_seconds ?? 90) * 1000,
  );
}
