/**
 * The REST API under `/api`, with `Authorization: Bearer <token>`. `{id}` is a session's id or its name.
 *
 *   POST   /api/sessions                       NewSession → 201 Session
 *   GET    /api/sessions                       → { sessions: SessionListItem[] }   newest activity first; ?all=1 with archived
 *   GET    /api/sessions/{id}                  → Session
 *   PATCH  /api/sessions/{id}                  KeepSession → Session
 *   DELETE /api/sessions/{id}[?force=1]        → 204
 *   POST   /api/sessions/{id}/open             OpenSession → 202 Session
 *   POST   /api/sessions/{id}/send             SendMessage → 202 { session: Session, turn: Turn }
 *   POST   /api/sessions/{id}/suspend          SuspendSession → 202 Session
 *   POST   /api/sessions/{id}/archive          → 202 Session
 *   POST   /api/sessions/{id}/check            CheckSession → CheckResult   runs the check and keeps what it said
 *   POST   /api/sessions/{id}/checkpoint       → { outcome: CheckpointOutcome, checkpoint: Checkpoint | null }
 *   GET    /api/sessions/{id}/checkpoints      → { checkpoints: Checkpoint[] }
 *   POST   /api/sessions/{id}/restore          RestoreSession → 202 Session
 *   POST   /api/sessions/{id}/fork             ForkSession → 201 { sessions: Session[] }
 *   POST   /api/sessions/{id}/turns/{turn}/cancel → 202 Turn
 *   GET    /api/sessions/{id}/events           SSE of SessionEvent; Last-Event-ID resumes; ?from=0 from the start, ?from=<ms since 1970>, ?from=$ (default) new ones
 *   POST   /api/sessions/{id}/export           ExportRequest → ExportAnswer
 *   POST   /api/imports                        ImportRequest → 201 ImportAnswer
 *   POST   /api/imports/{id}                   ImportRequest → Session   its objects are there   DELETE → 204
 *   GET    /api/environments  GET|PUT|DELETE /api/environments/{name}      Environment
 *   GET    /api/secrets  PUT /api/secrets/{name}[?environment=] SecretPut  DELETE /api/secrets/{name}[?environment=]
 *   POST   /api/vault/reseal                   → Resealed
 *   GET    /api/sandboxes                      → { sandboxes: SandboxInfo[] }
 *   POST   /api/sandboxes/{id or session}/exec ExecRequest → ExecResult
 *   WS     /api/sandboxes/{id or session}/terminal?what=shell&cols=80&rows=24    binary frames both ways; text frames: {"resize":[cols,rows]}
 *   GET    /api/status                         → Status
 *   GET    /healthz                            → 200 "ok" | 503  (no token)
 */
import { z } from "zod";
import { AgentEvent } from "./protocol.ts";
import { BranchName, Environment, RepoUrl, SecretMode, SecretPath } from "./environment.ts";
import { HarnessName, VariableName } from "./environment-names.ts";
import { CheckpointId, SandboxId, SessionId, Slug, TurnId } from "./ids.ts";
import { CheckResult, SessionState, StartPhase, TurnState } from "./session.ts";

/** Longest message of a turn, characters. */
export const MAX_MESSAGE = 1_000_000;
export const Message = z.string().min(1, "give a message").max(MAX_MESSAGE);

export const NewSession = z.strictObject({
  name: Slug,
  title: z.string().min(1).max(200).optional(),
  /** An environment's name; or, without one, a repo and harness for an environment made on the spot with the session's name. */
  environment: Slug.optional(),
  repo: RepoUrl.optional(),
  base_branch: BranchName.optional(),
  branch: BranchName.optional(),
  harness: HarnessName.optional(),
  model: z.string().min(1).max(200).optional(),
  /** For an environment made on the spot: the names of its secrets. */
  secrets: z.array(VariableName).max(200).optional(),
  idle_minutes: z.number().min(0).max(525_600).optional(),
  message: Message.optional(),
  job_id: z.string().max(200).optional(),
});
export type NewSession = z.infer<typeof NewSession>;

export const OpenSession = z.strictObject({
  harness: HarnessName.optional(),
  model: z.string().min(1).max(200).optional(),
});
export type OpenSession = z.infer<typeof OpenSession>;

export const SendMessage = z.strictObject({
  message: Message,
  /** A repeated send with the same key answers with the turn that the first made. */
  idempotency_key: z.string().min(1).max(200).optional(),
  timeout_seconds: z.number().int().min(1).max(86_400).optional(),
});
export type SendMessage = z.infer<typeof SendMessage>;

export const SuspendSession = z.strictObject({
  push: z.boolean().default(false),
  /** Destroy the sandbox even when no checkpoint can be committed; the answer's status names the loss. */
  force: z.boolean().default(false),
  /** Also when the checkpoint leaves files out (`held`): they are gone with the sandbox. */
  accept_loss: z.boolean().default(false),
});
export type SuspendSession = z.infer<typeof SuspendSession>;

export const KeepSession = z.strictObject({
  idle_minutes: z.number().min(0).max(525_600).optional(),
  ttl_minutes: z.number().min(0).max(525_600).optional(),
  title: z.string().min(1).max(200).optional(),
});
export type KeepSession = z.infer<typeof KeepSession>;

/** Sessions of their own that go on from one checkpoint of another, which stays as it is. */
export const ForkSession = z.strictObject({
  count: z.number().int().min(1).max(20).default(1),
  /** None: the newest; a session that is up is checkpointed first. */
  checkpoint: CheckpointId.optional(),
  /** The first message to each of them. */
  message: Message.optional(),
  /** What their names begin with, before `-1`, `-2` …; none: the session's name and `-fork`. */
  name: Slug.optional(),
  harness: HarnessName.optional(),
});
export type ForkSession = z.infer<typeof ForkSession>;

/** Go back to an older checkpoint. What is there now is checkpointed first (reason `manual`). */
export const RestoreSession = z.strictObject({ checkpoint: CheckpointId });
export type RestoreSession = z.infer<typeof RestoreSession>;

/** What sealing anew after the vault's rotation did: how many of each, and where the older identities are kept now. */
export const Resealed = z.strictObject({
  identities: z.number().int().nonnegative(),
  markers: z.number().int().nonnegative(),
  secrets: z.number().int().nonnegative(),
  recipient: z.string(),
  /** A file beside the key file; none: there were no older identities. */
  retired: z.string().nullable(),
});
export type Resealed = z.infer<typeof Resealed>;

export const CheckSession = z.strictObject({
  /** A shell script; none: the environment's. */
  check: z.string().min(1).max(65_536).optional(),
  timeout_seconds: z.number().int().min(1).max(3600).default(600),
});
export type CheckSession = z.infer<typeof CheckSession>;

export const ExecRequest = z.strictObject({
  argv: z.array(z.string().max(131_072)).min(1).max(1000),
  cwd: z.string().max(4096).optional(),
  timeout_seconds: z.number().int().min(1).max(3600).default(600),
});
export type ExecRequest = z.input<typeof ExecRequest>;

export const SessionListItem = z.object({
  id: SessionId,
  name: Slug,
  title: z.string(),
  environment: Slug,
  harness: HarnessName,
  repo: RepoUrl.nullable(),
  branch: BranchName,
  state: SessionState,
  status: z.string().nullable(),
  phase: StartPhase.nullable(),
  turns: z.number().int(),
  queued: z.number().int(),
  checkpoints: z.number().int(),
  last_summary: z.string().nullable(),
  last_active_at: z.iso.datetime(),
});
export type SessionListItem = z.infer<typeof SessionListItem>;

export const SandboxInfo = z.strictObject({
  id: SandboxId,
  session: SessionId,
  session_name: Slug,
  driver: z.string(),
  connected: z.boolean(),
  state: SessionState,
  started_at: z.iso.datetime().nullable(),
  expires_at: z.iso.datetime().nullable(),
  kept_awake_by: z.array(z.string()),
});
export type SandboxInfo = z.infer<typeof SandboxInfo>;

export const EnvironmentRecord = Environment.extend({
  created_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
  sessions: z.number().int(),
});
export type EnvironmentRecord = z.infer<typeof EnvironmentRecord>;

export const SecretPut = z.strictObject({
  /** Exact, every line break included. */
  value: z
    .string()
    .min(1, "it is empty: remove the secret instead, or give a value")
    .max(1_000_000)
    .refine((value) => value.isWellFormed(), "it is not valid Unicode: encode it, such as in base64"),
  /** It is a file there, and no variable, where its environment does not say otherwise. */
  file: SecretPath.optional(),
  mode: SecretMode.optional(),
});
export type SecretPut = z.infer<typeof SecretPut>;
export const SecretInfo = z.strictObject({
  name: VariableName,
  /** It goes before the one of the same name without an environment. */
  environment: Slug.nullable(),
  file: z.string().nullable(),
  mode: z.string().nullable(),
  updated_at: z.iso.datetime(),
});
export type SecretInfo = z.infer<typeof SecretInfo>;

export const Status = z.strictObject({
  version: z.string(),
  url: z.string(),
  data_dir: z.string(),
  redis: z.string(),
  store: z.string(),
  driver: z.string(),
  isolation: z.string(),
  replica: z.string(),
  uptime_seconds: z.number(),
  sessions: z.record(SessionState, z.number().int()),
  warnings: z.array(z.string()),
});
export type Status = z.infer<typeof Status>;

/** One entry of a session's event log. `id` is the stream id, usable as Last-Event-ID. */
export const SessionEvent = z.object({
  id: z.string(),
  at: z.iso.datetime(),
  event: z.union([
    AgentEvent,
    z.discriminatedUnion("type", [
      z.strictObject({ type: z.literal("state"), state: SessionState, status: z.string().nullable() }),
      z.strictObject({ type: z.literal("turn_queued"), turn: TurnId, message: z.string() }),
      /** A turn's final record as the session keeps it: after it, `send --wait` ends. */
      z.strictObject({ type: z.literal("turn_ended"), turn: TurnId, state: TurnState }),
      z.strictObject({
        type: z.literal("checkpoint"),
        checkpoint: CheckpointId,
        reason: z.string(),
        new_bytes: z.number(),
      }),
      z.strictObject({ type: z.literal("checked"), result: CheckResult }),
      z.strictObject({ type: z.literal("kept"), idle_minutes: z.number() }),
    ]),
  ]),
});
export type SessionEvent = z.infer<typeof SessionEvent>;

/** RFC 9457, `application/problem+json`. */
export const Problem = z.object({
  type: z.string(),
  title: z.string(),
  status: z.number().int(),
  detail: z.string(),
  code: z.string(),
  requestId: z.string(),
});
export type Problem = z.infer<typeof Problem>;

/** What `hangar up` leaves for the CLI in `<data_dir>/hangar.json` (0600). */
export const ClientConfig = z.object({ url: z.string(), token: z.string(), pid: z.number().int().nullable() });
export type ClientConfig = z.infer<typeof ClientConfig>;
