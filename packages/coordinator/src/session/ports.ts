/**
 * What the use cases of this folder need from outside. Adapters live in `redis/`, `store/`, `driver/` and `vault/`.
 *
 * Every call may be repeated. A call that fails because its server cannot be reached throws HangarError
 * `redis_unavailable` or `store_unavailable` and may or may not have happened.
 */
import type {
  HarnessDefinition,
  AgentCommand,
  Environment,
  EnvironmentRecord,
  GitCredentialAnswer,
  GitCredentialRequest,
  SecretInfo,
  SessionEvent,
  SessionState,
  WarmState,
} from "@hangar/shared";
import type { Driver } from "../driver/driver.ts";
import type { Store } from "../store/store.ts";
import type { Vault } from "../vault/vault.ts";
import type { Redaction } from "./redaction.ts";
import type { BeginRecord, CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";

export type { Driver, Store, Vault };

/** Milliseconds since 1970. Tests give one that they move. */
export type Clock = () => number;

/** One line and its fields; pino fits. Nothing secret goes in. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** By the names of `config.ts`, which fits as it is with `agent_urls` added; what is left out here has its default. */
export interface Settings {
  readonly session_keep_checkpoints: number;
  readonly session_checkpoint_minutes: number;
  readonly session_max_untracked_mb: number;
  readonly session_max_part_mb: number;
  /** Of sessions and environments that do not say. */
  readonly idle_minutes: number;
  readonly ttl_minutes: number;
  /** A session whose newest checkpoint left files out is not suspended for idleness for this long; 0: at once. */
  readonly left_out_hold_hours: number;
  readonly start_timeout_minutes: number;
  readonly heartbeat_seconds: number;
  readonly lease_seconds: number;
  /** Base URLs of the replicas as sandboxes reach them, at least one. */
  readonly agent_urls: readonly string[];
  readonly git_credentials: "host" | "off";
  /** Declared for every environment; none: none. */
  readonly harnesses?: readonly HarnessDefinition[];
  /** A live session is looked at no less often than this; default 60. */
  readonly idle_pass_seconds?: number;
  /** How long one use of a sandbox keeps it awake; default 90. */
  readonly use_keeps_awake_seconds?: number;
  /** How long a signed URL holds; default 60. */
  readonly signed_url_minutes?: number;
  /** How often a warm sandbox fetches what is new at its remote; default 180. */
  readonly warm_fetch_seconds?: number;
  /** A suspended session's checkpoints are dropped after this long; 0, the default: never. */
  readonly session_retention_days?: number;
  /** How long a claim on due work holds before another replica takes over; default 30. */
  readonly claim_seconds?: number;
  /** Events kept of a session, about; default 10000. */
  readonly session_keep_events?: number;
}

/** What must hold for a change to be made. Checked and applied in one step, so of two racing replicas one loses. */
export interface Guard {
  /** Allowed states; none: any. */
  readonly from?: readonly SessionState[];
  readonly generation?: number;
  readonly nonce?: string;
  /** The event's number: it and lower ones are refused as `duplicate` once stored. */
  readonly seq?: number;
  /** The record's revision as read: nothing else changed it since. */
  readonly rev?: number;
}

/** A change of one session, with everything that must happen with it or not at all. */
export interface Change {
  readonly set?: Partial<SessionRecord>;
  /** Turns to write, whole. One that is new goes to the end of the session's turns. */
  readonly turns?: readonly TurnRecord[];
  /** Turns that join the queue's end, and ones that leave the queue. */
  readonly enqueue?: readonly string[];
  readonly dequeue?: readonly string[];
  /** Written whole; one that is new goes to the end. */
  readonly checkpoints?: readonly CheckpointRecord[];
  readonly dropCheckpoints?: readonly string[];
  readonly begin?: BeginRecord;
  readonly endBegin?: string;
  readonly events?: readonly SessionEvent["event"][];
  /** A repeated send with that key finds that turn. */
  readonly idempotency?: { readonly key: string; readonly turn: string };
  /** When the session is looked at next, ms since 1970; `null`: not before something happens. Left out: unchanged. */
  readonly due?: number | null;
  /** Not later than that; never postpones. */
  readonly dueBy?: number;
  /** Leaves `rev` and `updated_at` as they are: heartbeats and output, which race with nothing. */
  readonly quiet?: boolean;
}

export type ChangeResult =
  | { readonly ok: true; readonly record: SessionRecord }
  | {
      readonly ok: false;
      readonly why: "missing" | "state" | "generation" | "nonce" | "duplicate" | "rev" | "idempotent";
      /** `idempotent`: the turn that the key's first use made. */
      readonly turn?: string;
    };

export interface SessionRepository {
  /** `name_taken` when the owner has a session of that name. Idempotent by the record's id. */
  create(record: SessionRecord, change: Change): Promise<SessionRecord>;
  get(id: string): Promise<SessionRecord | null>;
  /** By id, or by name among the owner's. */
  find(owner: string, ref: string): Promise<SessionRecord | null>;
  /** Newest activity first. */
  list(owner: string): Promise<SessionRecord[]>;
  /** Ids of every session of every owner. */
  ids(): Promise<string[]>;
  change(id: string, guard: Guard, change: Change): Promise<ChangeResult>;
  /** In the order they were sent; with `newest`, only that many of the last. */
  turns(id: string, newest?: number): Promise<TurnRecord[]>;
  turn(id: string, turn: string): Promise<TurnRecord | null>;
  /** Waiting turns, first come first. */
  queue(id: string): Promise<string[]>;
  /** Oldest commit first. */
  checkpoints(id: string): Promise<CheckpointRecord[]>;
  counts(id: string): Promise<{ turns: number; queued: number; checkpoints: number }>;
  begin(id: string, checkpoint: string): Promise<BeginRecord | null>;
  begins(id: string): Promise<BeginRecord[]>;
  /** Everything of the session, its name, events and due work with it. Of one that is not there: no error. */
  remove(id: string): Promise<void>;
  /** Whether this data was filled from the store since it began; false: it is new, or was deleted. */
  isFilled(): Promise<boolean>;
  setFilled(): Promise<void>;
}

/** What is to be looked at, sessions say, by time. A claim hides one from other replicas until it ends or is settled. */
export interface DueWork {
  /** Up to `limit` that are due, hidden from others until `until`. */
  claim(now: number, until: number, limit: number): Promise<string[]>;
  /** The claim's work is done: next time at `next`, or `null` for none. Does nothing when something asked for a look since. */
  settle(session: string, claimedUntil: number, next: number | null): Promise<void>;
  /** Look at it no later than `at`. */
  nudge(session: string, at: number): Promise<void>;
  /** When the earliest is due; none when nothing is. */
  next(): Promise<number | null>;
  /** Waits until somebody nudged, or `ms` have passed, or the signal fires. May return early. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
}

export interface EventLog {
  /** After the stream id `from` (`0`: the start, `$`: what comes after now), then what comes, until the signal fires or it is removed. */
  follow(session: string, from: string, signal: AbortSignal): AsyncIterable<SessionEvent>;
  /** What is there after `from`, at most `count`. */
  read(session: string, from: string, count: number): Promise<SessionEvent[]>;
}

export type CommandResult =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly code: string; readonly error: string };

export interface PendingCommand {
  readonly id: string;
  readonly command: AgentCommand;
}

/** Commands wait per sandbox until they have a result. At least once; idempotent by id. */
export interface AgentCommands {
  /** A second push of an id does nothing, also after its result. */
  push(sandbox: string, id: string, command: AgentCommand): Promise<void>;
  /** Every command without a result, oldest first, then new ones, until the signal fires. Each once per call. */
  follow(sandbox: string, signal: AbortSignal): AsyncIterable<PendingCommand>;
  /** Stores a result and takes the command off. The first result of an id stays. */
  settle(sandbox: string, id: string, result: CommandResult): Promise<void>;
  result(sandbox: string, id: string): Promise<CommandResult | null>;
  /** Waits for a result. Throws the signal's reason when it fires first. */
  wait(sandbox: string, id: string, signal: AbortSignal): Promise<CommandResult>;
  /** Takes a command off without a result, so that nobody runs it any more. */
  withdraw(sandbox: string, id: string): Promise<void>;
  /** Everything of a sandbox that is gone. */
  drop(sandbox: string): Promise<void>;
}

export interface EnvironmentRepository {
  get(owner: string, name: string): Promise<EnvironmentRecord | null>;
  list(owner: string): Promise<EnvironmentRecord[]>;
  /** Writes over one of that name. `absent`: only where there is none, else `name_taken`. */
  put(owner: string, environment: Environment, how?: "absent"): Promise<EnvironmentRecord>;
  /** `environment_in_use` while sessions that are not archived name it; `environment_not_found`. */
  remove(owner: string, name: string): Promise<void>;
}

/** A sandbox that waits for a session; after its claim, until that session's start has heard of it. */
export interface WarmRecord {
  readonly id: string;
  /** Raised by every change. */
  readonly rev: number;
  readonly owner: string;
  readonly environment: string;
  /** Of all that it is made of: where the environment's is another one by now, it is to be replaced. */
  readonly fingerprint: string;
  readonly state: WarmState;
  /** What it does or waits for, or why it failed. */
  readonly detail: string | null;
  /** ms since 1970. */
  readonly created_at: number;
  readonly changed_at: number;
  /** A failed one stays on record until another is tried then, and an unbuilt one is asked for again, ms since 1970. */
  readonly retry_at: number;
  /** Its image is being built, or cannot be: it has no sandbox, and no others are made meanwhile. */
  readonly unbuilt: boolean;
  readonly claimed_by: string | null;
  /** The driver has made it that sandbox: its daemon may be told. */
  readonly handed: boolean;
}

export interface WarmRepository {
  add(record: WarmRecord): Promise<void>;
  get(id: string): Promise<WarmRecord | null>;
  /** Of every environment. `seen_at`: when its daemon was heard last, ms since 1970; 0: never. */
  list(): Promise<(WarmRecord & { readonly seen_at: number })[]>;
  /** Changes it, or with `null` removes it. False: something else changed it since it was read. */
  change(record: WarmRecord, set: Partial<WarmRecord> | null): Promise<boolean>;
  /** A ready one for that sandbox of a session, and for no other: in one step. Repeated for a sandbox, the same one. */
  claim(of: {
    owner: string;
    environment: string;
    fingerprint: string;
    sandbox: string;
    /** Its daemon is there: heard of since then, ms since 1970. */
    heardSince: number;
  }): Promise<WarmRecord | null>;
  heard(id: string, at: number): Promise<void>;
  /** Wakes when it is changed. */
  watch(id: string): Promise<{ changed(ms: number, signal: AbortSignal): Promise<void>; close(): void }>;
}

/** Values are sealed by the vault before they come here. */
export interface SecretRepository {
  put(owner: string, key: SecretKey, secret: StoredSecret): Promise<SecretInfo>;
  get(owner: string, key: SecretKey): Promise<StoredSecret | null>;
  list(owner: string): Promise<SecretInfo[]>;
  /** `secret_not_found`. */
  remove(owner: string, key: SecretKey): Promise<void>;
}

export interface SecretKey {
  readonly name: string;
  /** For sessions of that environment alone; none: for all. */
  readonly environment: string | null;
}

export interface StoredSecret {
  readonly sealed: Uint8Array;
  /** Where it is a file in the sandbox; none: a variable. */
  readonly file: string | null;
  readonly mode: string | null;
}

/** Asks this machine's git credential helpers. None: they know nothing. Never prompts. */
export interface HostCredentials {
  fill(request: GitCredentialRequest, repo: string): Promise<GitCredentialAnswer | null>;
}

/** Everything a use case may need; built once by `main.ts`. */
export interface Deps {
  readonly sessions: SessionRepository;
  readonly due: DueWork;
  /** Warm pools to be looked at, `owner/environment`. */
  readonly pools: DueWork;
  readonly warm: WarmRepository;
  readonly events: EventLog;
  readonly commands: AgentCommands;
  readonly environments: EnvironmentRepository;
  readonly secrets: SecretRepository;
  readonly store: Store;
  readonly driver: Driver;
  readonly vault: Vault;
  readonly redaction: Redaction;
  /** None: sandboxes are offered no credentials. */
  readonly credentials: HostCredentials | null;
  readonly settings: Settings;
  readonly clock: Clock;
  readonly log: Log;
}
