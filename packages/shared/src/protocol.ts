/**
 * What the daemon in a sandbox (`hangar-agent`) and the coordinator say to each other.
 *
 * One outbound WebSocket, `GET /agent/link`, with `Authorization: Bearer <agent token>`: JSON text frames, `FromAgent` up and
 * `ToAgent` down. Commands are delivered at least once and are idempotent by id; events carry a sequence number per sandbox,
 * are spooled until acknowledged, and a repeated one is dropped by the coordinator. Everything a sandbox says is hostile
 * until parsed. Bulk bytes go by signed URL, never over the link.
 *
 * Beside it, plain HTTP with the same token: see `AgentHttp` at the end.
 */
import { z } from "zod";
import { Activity } from "./activity.ts";
import { Checkpoint, CheckpointReason, LeftOut, ObjectId, Part, PartFile, Sha256 } from "./checkpoint.ts";
import { BranchName, RepoUrl, SecretMode, SecretPath } from "./environment.ts";
import { HarnessDefinition } from "./harness-definition.ts";
import { HarnessName, VariableName } from "./environment-names.ts";
import { CheckpointId, CommandId, SandboxId, SessionId, TurnId } from "./ids.ts";
import { StartPhase, Usage } from "./session.ts";

export const PROTOCOL_VERSION = 1;
/** Largest frame on the link, bytes. */
export const MAX_FRAME = 4 * 1024 * 1024;

// ---- events: daemon → coordinator, into the session's event log -------------------------------------------------

/** One thing a harness said or did during a turn, in the terms common to all harnesses. */
export const TurnOutput = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("text"), text: z.string() }),
  z.strictObject({ kind: z.literal("tool_call"), name: z.string(), input: z.string() }),
  z.strictObject({ kind: z.literal("tool_result"), name: z.string(), output: z.string(), is_error: z.boolean() }),
  z.strictObject({ kind: z.literal("retry"), attempt: z.number().int(), status: z.number().int().nullable() }),
  z.strictObject({ kind: z.literal("stderr"), text: z.string() }),
]);
export type TurnOutput = z.infer<typeof TurnOutput>;

export const TurnResult = z.strictObject({
  state: z.enum(["done", "failed", "interrupted", "cancelled"]),
  exit_code: z.number().int().nullable(),
  summary: z.string().nullable(),
  error: z.string().nullable(),
  harness_session: z.string().nullable(),
  conversation_lost: z.boolean(),
  handoff: z.boolean(),
  usage: Usage.nullable(),
});
export type TurnResult = z.infer<typeof TurnResult>;

export const AgentEvent = z.discriminatedUnion("type", [
  /** Start-up progress. `ready` ends it: the workspace is there and, where there was a checkpoint, restored. */
  z.strictObject({
    type: z.literal("phase"),
    phase: StartPhase,
    detail: z.string().nullable(),
    /** Both in the words that people read: put in by the coordinator, for those who follow the session. */
    text: z.string().optional(),
  }),
  /** Says how the workspace came about, just before `phase: ready`. */
  z.strictObject({
    type: z.literal("restored"),
    /** `fresh`: a new clone; `checkpoint`: from one; `adopted`: the folder of a sandbox that ended uncleanly. */
    source: z.enum(["fresh", "checkpoint", "adopted"]),
    checkpoint: CheckpointId.nullable(),
    verified: z.boolean(),
    /** What is not as it was, for people and for the agent's next prompt. */
    missing: z.array(z.string()),
    /** Checkpoints tried before and found bad, newest first. */
    bad: z.array(z.strictObject({ checkpoint: CheckpointId, why: z.string() })),
    warnings: z.array(z.string()),
    seconds: z.record(z.string(), z.number()),
  }),
  /** The start cannot succeed; the session becomes FAILED with this line. */
  z.strictObject({ type: z.literal("start_failed"), code: z.string(), error: z.string() }),
  z.strictObject({ type: z.literal("turn_started"), turn: TurnId, at: z.iso.datetime() }),
  z.strictObject({ type: z.literal("turn_output"), turn: TurnId, output: TurnOutput }),
  /** The harness ended. A checkpoint follows; `turn_settled` ends the turn for its session. */
  z.strictObject({ type: z.literal("turn_finished"), turn: TurnId, at: z.iso.datetime(), result: TurnResult }),
  z.strictObject({
    type: z.literal("turn_settled"),
    turn: TurnId,
    /** None when nothing changed or none could be committed (then `error`). */
    checkpoint: CheckpointId.nullable(),
    error: z.string().nullable(),
  }),
  z.strictObject({ type: z.literal("checkpoint_failed"), reason: CheckpointReason, error: z.string() }),
  z.strictObject({ type: z.literal("notice"), text: z.string() }),
]);
export type AgentEvent = z.infer<typeof AgentEvent>;

// ---- commands: coordinator → daemon ------------------------------------------------------------------------------

export const AgentCommand = z.discriminatedUnion("kind", [
  /** Run one agent turn. Result: `{}` when started or queued behind nothing; the rest comes as events. */
  z.strictObject({
    kind: z.literal("turn"),
    turn: TurnId,
    harness: HarnessName,
    model: z.string().nullable(),
    message: z.string(),
    /** Put before the message: what is not as the agent remembers, or a handoff. None: nothing to say. */
    preamble: z.string().nullable(),
    handoff: z.boolean(),
    /** None: the first turn of a conversation. */
    harness_session: z.string().nullable(),
    /** Goes on with a copy of that conversation, under an id of its own. */
    fork: z.boolean(),
    timeout_seconds: z.number().int().positive().nullable(),
  }),
  z.strictObject({ kind: z.literal("cancel_turn"), turn: TurnId }),
  /** Result: `CheckpointOutcome`. */
  z.strictObject({ kind: z.literal("checkpoint"), reason: CheckpointReason, if_changed: z.boolean() }),
  /**
   * Refuse new work; stop the turn, terminals and leftover processes; take a checkpoint of what is there now. On success
   * the daemon stays frozen until it is destroyed or told `thaw`; on failure it thaws itself. Result: `CheckpointOutcome`.
   */
  z.strictObject({
    kind: z.literal("freeze"),
    reason: z.enum(["suspend", "destroy"]),
    push: z.boolean(),
    /** What runs is stopped and kept, for a snapshot of its memory. */
    keep_processes: z.boolean().optional(),
  }),
  z.strictObject({ kind: z.literal("thaw") }),
  /** Result: `ExecResult`. Output beyond `max_bytes` per stream is cut. */
  z.strictObject({
    kind: z.literal("exec"),
    argv: z.array(z.string()).min(1),
    cwd: z.string().nullable(),
    timeout_seconds: z.number().int().positive(),
    max_bytes: z.number().int().positive(),
  }),
  /** Dial `url` (a second WebSocket, same token) and run a terminal on it. Result: `{}` once connected. */
  z.strictObject({
    kind: z.literal("terminal"),
    url: z.string(),
    /** `shell`: a login shell in tmux; `harness`: the harness's interactive resume in tmux. */
    what: z.enum(["shell", "harness"]),
    /** What the session is with now, which `harness` resumes. A conversation that was begun by hand here is gone on with. */
    harness: HarnessName,
    harness_session: z.string().nullable(),
    model: z.string().nullable(),
    cols: z.number().int().min(1).max(1000),
    rows: z.number().int().min(1).max(1000),
  }),
]);
export type AgentCommand = z.infer<typeof AgentCommand>;

export const CheckpointOutcome = z.discriminatedUnion("outcome", [
  z.strictObject({ outcome: z.literal("committed"), checkpoint: CheckpointId }),
  /** What is there now equals this committed checkpoint: none was needed. */
  z.strictObject({ outcome: z.literal("unchanged"), checkpoint: CheckpointId }),
  z.strictObject({ outcome: z.literal("failed"), code: z.string(), error: z.string() }),
]);
export type CheckpointOutcome = z.infer<typeof CheckpointOutcome>;

export const ExecResult = z.strictObject({
  exit_code: z.number().int(),
  /** Base64 of the raw bytes. */
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.boolean(),
  timed_out: z.boolean(),
});
export type ExecResult = z.infer<typeof ExecResult>;

/**
 * Text frames on a terminal's WebSocket, through the coordinator as they are. Binary frames are the terminal's bytes, both ways.
 * `resize`: from the user's end. `exit`: from the daemon when the program ended or was detached; it then closes with 1000.
 */
export const TerminalControl = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("resize"),
    cols: z.number().int().min(1).max(1000),
    rows: z.number().int().min(1).max(1000),
  }),
  z.strictObject({ type: z.literal("exit"), code: z.number().int() }),
]);
export type TerminalControl = z.infer<typeof TerminalControl>;

// ---- frames --------------------------------------------------------------------------------------------------------

export const FromAgent = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("hello"),
    protocol: z.number().int(),
    sandbox: SandboxId,
    /** The last command it has finished with; what comes after is sent again. */
    last_command: z.string().nullable(),
  }),
  z.strictObject({ type: z.literal("event"), seq: z.number().int().positive(), event: AgentEvent }),
  z.strictObject({
    type: z.literal("heartbeat"),
    at: z.iso.datetime(),
    phase: StartPhase,
    frozen: z.boolean(),
    activity: Activity,
  }),
  z.strictObject({ type: z.literal("result"), command: CommandId, ok: z.literal(true), value: z.unknown() }),
  z.strictObject({
    type: z.literal("failure"),
    command: CommandId,
    code: z.string(),
    error: z.string().max(8000),
  }),
]);
export type FromAgent = z.infer<typeof FromAgent>;

export const ToAgent = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("welcome"),
    heartbeat_seconds: z.number().positive(),
    /** Cut off for longer than this, the daemon stops its turn and takes a local checkpoint. */
    lease_seconds: z.number().positive(),
    /** The last event sequence number that the coordinator has stored for this sandbox. */
    acked: z.number().int().nonnegative(),
  }),
  z.strictObject({ type: z.literal("ack"), seq: z.number().int().nonnegative() }),
  z.strictObject({ type: z.literal("command"), id: CommandId, command: AgentCommand }),
  /** A newer generation exists: stop everything, touch nothing, exit. */
  z.strictObject({ type: z.literal("superseded"), generation: z.number().int() }),
]);
export type ToAgent = z.infer<typeof ToAgent>;

// ---- HTTP of the daemon (`AgentHttp`) ------------------------------------------------------------------------------

/** A URL for one object and one method. Send exactly these headers; it is refused after `expires_at`. */
export const SignedUrl = z.strictObject({
  method: z.enum(["PUT", "GET"]),
  url: z.string(),
  headers: z.record(z.string(), z.string()),
  expires_at: z.iso.datetime(),
});
export type SignedUrl = z.infer<typeof SignedUrl>;

/** A committed checkpoint to restore from: its marker was checked by the coordinator when this was answered. */
export const RestoreCandidate = z.strictObject({
  checkpoint: CheckpointId,
  meta: z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 }),
  parts: z.array(Part),
});
export type RestoreCandidate = z.infer<typeof RestoreCandidate>;

/** `GET /agent/boot`: everything a start needs. Secrets come here, fresh, and nowhere else. */
export const BootSpec = z.strictObject({
  session: SessionId,
  sandbox: SandboxId,
  generation: z.number().int().positive(),
  repo: RepoUrl.nullable(),
  base_branch: BranchName.nullable(),
  branch: BranchName,
  /** Where the repo is checked out, absolute, the same in every sandbox of a session. */
  cwd: z.string(),
  harness: HarnessName,
  model: z.string().nullable(),
  harness_session: z.string().nullable(),
  /** What the environment and the server declare, the environment's first. */
  harnesses: z.array(HarnessDefinition),
  setup: z.string().nullable(),
  variables: z.record(VariableName, z.string()),
  secrets: z.record(VariableName, z.string()),
  secret_files: z.array(z.strictObject({ name: VariableName, path: SecretPath, mode: SecretMode, value: z.string() })),
  keep_ignored: z.array(z.string()),
  /** Newest first. Empty: a fresh session. */
  candidates: z.array(RestoreCandidate),
  /** The session's age identity (`AGE-SECRET-KEY-1…`), only where there is something to restore. */
  identity: z.string().nullable(),
  /** age recipients that every part is sealed to: the session's and the vault's. */
  recipients: z.array(z.string()).min(1),
  /** A leftover folder was put in place: use it when it is sound, instead of a restore. */
  adopt: z.boolean(),
  /** The next checkpoint refers to no part of an earlier one, and is taken as soon as the workspace is ready. */
  baseline: z.boolean(),
  /** A fork's first start: the branch that the parent worked on, which is `branch` here. None: nothing to rename. */
  renamed_branch: BranchName.nullable(),
  /** A git credential helper answers at POST /agent/git-credential. */
  git_credentials: z.boolean(),
  settings: z.strictObject({
    checkpoint_minutes: z.number().nonnegative(),
    max_untracked_bytes: z.number().int().nonnegative(),
    max_part_bytes: z.number().int().nonnegative(),
  }),
});
export type BootSpec = z.infer<typeof BootSpec>;

/**
 * `POST /agent/successor`, with the token of a sandbox that owns its session no more: the sandbox that this daemon goes on as,
 * where it woke in a restored snapshot of its memory. `stale_generation` where it did not.
 */
export const Successor = z.strictObject({ sandbox: SandboxId, token: z.string().min(1) });
export type Successor = z.infer<typeof Successor>;

/** `POST /agent/checkpoints`: register a checkpoint and get a PUT URL for each new object. Idempotent by id. */
export const BeginCheckpoint = z.strictObject({
  checkpoint: CheckpointId,
  parent: CheckpointId.nullable(),
  reason: CheckpointReason,
  /** The objects to be sent, meta included: sealed size and digest. Referenced parts are not among them. */
  objects: z.array(z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 })).max(4096),
});
export type BeginCheckpoint = z.infer<typeof BeginCheckpoint>;
export const BeginAnswer = z.strictObject({ uploads: z.record(PartFile, SignedUrl) });
export type BeginAnswer = z.infer<typeof BeginAnswer>;

/** `POST /agent/checkpoints/{id}/urls`: fresh URLs for uploads of an open begin. Answers `BeginAnswer`. */
export const RenewUploads = z.strictObject({ files: z.array(PartFile).max(4096) });
export type RenewUploads = z.infer<typeof RenewUploads>;

/** `POST /agent/downloads`: GET URLs for parts of this session's committed checkpoints. */
export const DownloadRequest = z.strictObject({
  objects: z.array(z.strictObject({ checkpoint: CheckpointId, file: PartFile })).max(8192),
});
export type DownloadRequest = z.infer<typeof DownloadRequest>;
export const DownloadAnswer = z.strictObject({
  /** Key: `<checkpoint>/<file>`. */
  downloads: z.record(z.string(), SignedUrl),
});
export type DownloadAnswer = z.infer<typeof DownloadAnswer>;

/**
 * `POST /agent/checkpoints/{id}/commit`: every object is there. The coordinator checks each object's size and digest,
 * writes the marker, publishes under generation and nonce, and only then answers. Idempotent by id. The answer is the
 * acknowledgement: from then on the checkpoint survives everything but the loss of the store.
 */
export const CommitCheckpoint = z.strictObject({
  head: ObjectId.nullable(),
  base: ObjectId.nullable(),
  branch: z.string().max(1024).nullable(),
  harness: HarnessName,
  harness_session: z.string().max(200).nullable(),
  turn_id: TurnId.nullable(),
  fingerprint: Sha256,
  /** New and referenced parts, in the order a restore reads them. Not the meta. */
  parts: z.array(Part).max(4096),
  meta: z.strictObject({ file: PartFile, size: z.number().int().nonnegative(), sha256: Sha256 }),
  paired: z.boolean(),
  proved: z.boolean(),
  left_out: z.array(LeftOut).max(1000),
  not_kept: z.array(LeftOut).max(1000),
  warnings: z.array(z.string().max(2000)).max(200),
});
export type CommitCheckpoint = z.infer<typeof CommitCheckpoint>;
export const CommitAnswer = z.strictObject({ checkpoint: Checkpoint });
export type CommitAnswer = z.infer<typeof CommitAnswer>;

/** `POST /agent/git-credential`: what `git credential` asks on stdin, answered for the session's own remote only. */
export const GitCredentialRequest = z.strictObject({
  protocol: z.string().max(20),
  host: z.string().max(300),
  path: z.string().max(2048).nullable(),
});
export type GitCredentialRequest = z.infer<typeof GitCredentialRequest>;
export const GitCredentialAnswer = z.strictObject({
  username: z.string(),
  password: z.string(),
  /** Seconds since 1970, where the credential says when it ends: git asks again after it. */
  password_expiry_utc: z.number().int().positive().optional(),
});
export type GitCredentialAnswer = z.infer<typeof GitCredentialAnswer>;

/**
 * How a driver starts `hangar-agent`, so that it takes little of what a sandbox has: a small nursery, and memory given back.
 * Measured on workload M of docs/benchmarks.md: a peak of 198 MB instead of 293, in the same time.
 */
export const AGENT_NODE_FLAGS: readonly string[] = ["--max-semi-space-size=4"];
/** For the daemon alone: it does not pass them on. */
export const AGENT_MALLOC: Readonly<Record<string, string>> = {
  MALLOC_ARENA_MAX: "2",
  MALLOC_MMAP_THRESHOLD_: "1048576",
  MALLOC_TRIM_THRESHOLD_: "1048576",
};

/** Environment variables that a driver starts `hangar-agent run` with. Everything else comes from the boot answer. */
export const AGENT_ENV = {
  /** Base URL of any replica, `http://host:port`. More than one: separated by spaces, tried in turn. */
  url: "HANGAR_AGENT_COORDINATOR_URL",
  token: "HANGAR_AGENT_TOKEN",
  sandbox: "HANGAR_AGENT_SANDBOX",
  /** The folder that holds the repo's folder: `/workspace`, or a stable folder per session without bubblewrap. */
  workspace: "HANGAR_AGENT_WORKSPACE",
  /** The daemon's own folder (spool, state, sockets), not visible to checkpoints. */
  state: "HANGAR_AGENT_STATE",
  /** How long it has to end after SIGTERM, seconds; 30 where it does not say. */
  grace: "HANGAR_AGENT_GRACE_SECONDS",
  /** A folder with the daemon's compiled code, made by `hangar-agent warm`; read-only in a sandbox. May be absent. */
  code: "HANGAR_AGENT_CODE",
} as const;
