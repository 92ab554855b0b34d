/** What is kept of a session in Redis: what users see of it (`Session`, without the lists) and what only Hangar needs. */
import type { BeginCheckpoint, Checkpoint, Session, Turn } from "@hangar/shared";

export interface SessionRecord extends Omit<Session, "turns" | "checkpoints" | "kept_awake_by" | "held"> {
  /** Raised by every change. */
  readonly rev: number;
  /** Of the present sandbox; empty without one. */
  readonly nonce: string;
  /** Number of the last stored event of the present sandbox. */
  readonly seq: number;
  /** ms since 1970. */
  readonly state_since: number;
  /** What the session is to become when nothing hinders it: set by send and open, and by suspend. */
  readonly wanted: "up" | "down";
  /** Where the session goes after its sandbox is gone. */
  readonly ending: "archive" | "remove" | null;
  readonly running_turn: string | null;
  /** A turn that the sandbox would not begin, since it is ending: it waits for the next one. */
  readonly refused_turn: string | null;
  /** When its daemon was heard last, ms since 1970; 0: never. */
  readonly seen_at: number;
  readonly connected: boolean;
  /** The replica that holds the daemon's link, for people. */
  readonly replica: string | null;
  /** A use through REST, the CLI or MCP, ms since 1970; 0: never. */
  readonly used_at: number;
  readonly sandbox_started_at: string | null;
  /** The present or last suspend. */
  readonly freeze: Freeze | null;
  /** Failed suspends in a row, and when the next is tried, ms since 1970. */
  readonly freeze_failures: number;
  readonly freeze_not_before: number;
  /** The driver has made the present sandbox once: where it is gone it is lost, and not made again. */
  readonly sandbox_made: boolean;
  /** The memory of the sandbox that was suspended last, where it was kept; until a start has tried it. */
  readonly hot: HotSnapshot | null;
  /** The warm sandbox that its present one was; `none`: it is made for this start. Null: that is not decided yet. */
  readonly warm: string | null;
  /** How often its processes were started again in place, as far as that was told. */
  readonly restarts: number;
  /** Starts in a row that ended before `ready`, and when Hangar may try the next by itself. */
  readonly start_failures: number;
  readonly start_not_before: number;
  /** The checkpoint to go on from, where it is not the newest one; until a newer one is committed. */
  readonly restore_from: string | null;
  /** The sandbox whose folder the present one takes over. */
  readonly adopting: string | null;
  /** Objects of dropped checkpoints that kept ones still refer to, `<checkpoint>/<file>`. */
  readonly kept_objects: readonly string[];
  /** What the next turn's prompt says before the message. */
  readonly notes: readonly string[];
  /** The next turn's prompt begins with an account of the session. */
  readonly handoff_due: boolean;
  /** The session's age recipient; its identity lies sealed in the store. */
  readonly recipient: string;
  /** Its checkpoints are another's so far: the next one is whole by itself. */
  readonly baseline_due: boolean;
  /** Its next turn goes on with a copy of the conversation, under an id of its own. */
  readonly fork_due: boolean;
  /** Forks that have no checkpoint of their own yet: what they begin from is kept for them. */
  readonly forks_waiting: readonly { readonly session: string; readonly checkpoint: string }[];
  /** It is being imported, and removed when it is not committed by then, ms since 1970; 0: it is there. */
  readonly importing_until: number;
  /** The environment was made on the spot for this session and goes with it. */
  readonly own_environment: boolean;
}

/** A turn as it is kept: with what its command needs, so that another replica can give it again word for word. */
export interface TurnRecord extends Turn {
  readonly timeout_seconds: number | null;
  readonly preamble: string | null;
}

/** A committed checkpoint as it is kept: with the name of its meta object. */
export interface CheckpointRecord extends Checkpoint {
  readonly meta_file: string;
}

export interface HotSnapshot {
  /** As the driver names it. */
  readonly snapshot: string;
  /** Of the sandbox whose memory it is. */
  readonly sandbox: string;
  readonly generation: number;
  readonly nonce: string;
  /** Of what the sandbox was made: another one cannot be restored from it. */
  readonly fingerprint: string;
  /** The generation that it is tried for; none: not yet. */
  readonly tried: number | null;
}

export interface Freeze {
  readonly attempt: number;
  readonly reason: "suspend" | "destroy";
  readonly push: boolean;
  readonly force: boolean;
  /** Also when its checkpoint leaves files out. */
  readonly accept_loss: boolean;
  /** Hangar's own doing (idle, time limit): given up again when it fails and the session is used. */
  readonly auto: boolean;
  /** The checkpoint that the next sandbox goes on from, where it is not what this suspend keeps. */
  readonly restore: string | null;
  /** Why, for the status afterwards; none: nothing to say. */
  readonly why: string | null;
}

/** A checkpoint that was begun and is not committed. */
export interface BeginRecord extends BeginCheckpoint {
  readonly generation: number;
  readonly nonce: string;
  /** After it, what lies in the store without a marker is swept. ms since 1970. */
  readonly expires_at: number;
}

/** A record's fields that begin empty. */
export const EMPTY_RECORD = {
  rev: 0,
  seq: 0,
  wanted: "up",
  ending: null,
  status: null,
  harness_session: null,
  running_turn: null,
  refused_turn: null,
  seen_at: 0,
  connected: false,
  replica: null,
  used_at: 0,
  activity: null,
  sandbox_made: false,
  warm: null,
  hot: null,
  restarts: 0,
  freeze: null,
  freeze_failures: 0,
  freeze_not_before: 0,
  start_failures: 0,
  start_not_before: 0,
  restore_from: null,
  restored_from: null,
  adopting: null,
  leftover_sandbox: null,
  kept_objects: [],
  notes: [],
  handoff_due: false,
  baseline_due: false,
  forked_from: null,
  fork_due: false,
  forks_waiting: [],
  importing_until: 0,
  last_summary: null,
  last_check: null,
  usage: null,
} as const satisfies Partial<SessionRecord>;
