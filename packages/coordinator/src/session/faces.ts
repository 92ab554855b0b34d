/** The two faces of this folder: what users call (REST, MCP, CLI) and what the daemon's link and HTTP call. */
import type {
  AgentCommand,
  AgentEvent,
  BeginAnswer,
  BeginCheckpoint,
  BootSpec,
  Checkpoint,
  CheckResult,
  CheckSession,
  CheckpointOutcome,
  CommitAnswer,
  CommitCheckpoint,
  DownloadAnswer,
  DownloadRequest,
  ExecRequest,
  ExecResult,
  ExportAnswer,
  ExportRequest,
  ForkSession,
  FromAgent,
  GitCredentialAnswer,
  GitCredentialRequest,
  ImportAnswer,
  ImportRequest,
  KeepSession,
  NewSession,
  OpenSession,
  RenewUploads,
  RestoreSession,
  SandboxInfo,
  SendMessage,
  Session,
  SessionEvent,
  SessionListItem,
  SessionState,
  Successor,
  SuspendSession,
  ToAgent,
  Turn,
} from "@hangar/shared";

/**
 * The user's side. `owner` is the token's owner; `ref` a session's id or name. Inputs are parsed already.
 * Throws HangarError: `session_not_found`, `session_archived`, `wrong_state` and what each names.
 */
export interface Sessions {
  /** `name_taken`, `environment_not_found`, `invalid_request`. The session starts at once; a message is its first turn. */
  create(owner: string, input: NewSession): Promise<Session>;
  list(owner: string, options: { all: boolean }): Promise<SessionListItem[]>;
  get(owner: string, ref: string): Promise<Session>;
  /** Joins an open that is under way. Answers at once; `events` tell the rest. */
  open(owner: string, ref: string, input: OpenSession): Promise<Session>;
  send(owner: string, ref: string, input: SendMessage): Promise<{ session: Session; turn: Turn }>;
  suspend(owner: string, ref: string, input: SuspendSession): Promise<Session>;
  keep(owner: string, ref: string, input: KeepSession): Promise<Session>;
  archive(owner: string, ref: string): Promise<Session>;
  /** Work that is not in a checkpoint goes too. `wrong_state` while a turn runs, without `force`. */
  remove(owner: string, ref: string, options: { force: boolean }): Promise<void>;
  /** Waits for the outcome. `wrong_state` without a sandbox that is up. */
  checkpointNow(owner: string, ref: string): Promise<{ outcome: CheckpointOutcome; checkpoint: Checkpoint | null }>;
  /** Waits for it. `invalid_request` where there is none; `wrong_state` without a sandbox that is up. */
  check(owner: string, ref: string, input: CheckSession, signal?: AbortSignal): Promise<CheckResult>;
  checkpoints(owner: string, ref: string): Promise<Checkpoint[]>;
  /** `checkpoint_not_found`. */
  restore(owner: string, ref: string, input: RestoreSession): Promise<Session>;
  /** Sessions of their own, each from one checkpoint, which start at once. `checkpoint_not_found`, `name_taken`, `wrong_state`. */
  fork(owner: string, ref: string, input: ForkSession): Promise<Session[]>;
  /** `turn_not_found`. A queued turn is cancelled at once, a running one when its daemon says so; of an ended one: no error. */
  cancelTurn(owner: string, ref: string, turn: string): Promise<Turn>;
  /** From after `from` (a stream id, `0` or `$`), until the signal fires or the session is removed. */
  events(owner: string, ref: string, from: string, signal: AbortSignal): AsyncIterable<SessionEvent>;
  sandboxes(owner: string): Promise<SandboxInfo[]>;
  /** `ref` may be a sandbox's id too. `sandbox_not_found`, `timeout`. */
  exec(owner: string, ref: string, input: ExecRequest, signal?: AbortSignal): Promise<ExecResult>;
  /** Tells the daemon to dial `url`; returns when it has. `ref` may be a sandbox's id too. */
  openTerminal(
    owner: string,
    ref: string,
    input: { what: "shell" | "harness"; cols: number; rows: number; url: string },
    signal?: AbortSignal,
  ): Promise<void>;
  /** What another installation goes on from. A session that is up is checkpointed first. `wrong_state`, `checkpoint_failed`. */
  export(owner: string, ref: string, request: ExportRequest): Promise<ExportAnswer>;
  /** Registers an exported session and says where its objects go; it is there once it is committed. `name_taken`. */
  beginImport(owner: string, input: ImportRequest): Promise<ImportAnswer>;
  /** Every object is there: checked, then published. Idempotent. `digest_mismatch`, `checkpoint_invalid`. */
  commitImport(owner: string, id: string, input: ImportRequest): Promise<Session>;
  /** Leaves nothing of an import that is not committed. */
  cancelImport(owner: string, id: string): Promise<void>;
  /** Something used the sandbox: it stays awake for a while. */
  touch(owner: string, ref: string): Promise<void>;
  /** For `status`: how many sessions are in each state. */
  countByState(): Promise<Record<SessionState, number>>;
}

/** Who calls, from a verified agent token. */
export interface AgentIdentity {
  readonly session: string;
  readonly sandbox: string;
  readonly generation: number;
  readonly nonce: string;
}

type Heartbeat = Omit<Extract<FromAgent, { type: "heartbeat" }>, "type">;
type Hello = Omit<Extract<FromAgent, { type: "hello" }>, "type">;
export type Welcome = Extract<ToAgent, { type: "welcome" }>;

/** The daemon's side. Every call throws `stale_generation` once a newer sandbox owns the session, or none does. */
export interface AgentSide {
  /** `unauthorized` for a token that Hangar did not make, `stale_generation` for one that ended. */
  authenticate(token: string): Promise<AgentIdentity>;
  /** `missing_secret`, `environment_not_found`: the start fails and the session says so. */
  boot(agent: AgentIdentity): Promise<BootSpec>;
  /** As what a daemon goes on that woke in a restored snapshot with this token. `unauthorized`, `stale_generation`. */
  successor(token: string): Promise<Successor>;
  begin(agent: AgentIdentity, input: BeginCheckpoint): Promise<BeginAnswer>;
  renew(agent: AgentIdentity, checkpoint: string, input: RenewUploads): Promise<BeginAnswer>;
  /** The answer is the acknowledgement. `digest_mismatch`, `checkpoint_invalid`. */
  commit(agent: AgentIdentity, checkpoint: string, input: CommitCheckpoint): Promise<CommitAnswer>;
  downloads(agent: AgentIdentity, input: DownloadRequest): Promise<DownloadAnswer>;
  /** `forbidden` for another remote than the session's; `not_found` when nothing is known for it. */
  gitCredential(agent: AgentIdentity, input: GitCredentialRequest): Promise<GitCredentialAnswer>;
  /** The link is up: the frame to answer `hello` with. */
  connected(agent: AgentIdentity, hello: Hello, replica: string): Promise<Welcome>;
  /** When it returns, the event is stored and may be acknowledged; a repeated one is dropped. */
  event(agent: AgentIdentity, seq: number, event: AgentEvent): Promise<void>;
  heartbeat(agent: AgentIdentity, heartbeat: Heartbeat): Promise<void>;
  result(agent: AgentIdentity, command: string, value: unknown): Promise<void>;
  failure(agent: AgentIdentity, command: string, code: string, error: string): Promise<void>;
  /** Never throws for a stale one. */
  disconnected(agent: AgentIdentity, replica: string): Promise<void>;
  /**
   * Commands to send down the link until the signal fires. Ends by throwing `stale_generation` when a newer sandbox owns
   * the session: send `superseded` then and close.
   */
  commands(agent: AgentIdentity, signal: AbortSignal): AsyncIterable<{ id: string; command: AgentCommand }>;
}

/** The loops: claim due sessions, reconcile with the driver, sweep. One per replica; they share the work. */
export interface Loops {
  /** Rebuilds from the store what Redis does not know, then runs until `stop`. */
  start(): Promise<void>;
  /** Ends the loops when their present step is done. Sandboxes stay. */
  stop(): Promise<void>;
  /** Does everything that is due now and returns; what the loop does all the time. For tests and shutdown. */
  runDue(): Promise<number>;
}
