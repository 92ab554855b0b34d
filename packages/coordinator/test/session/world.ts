/**
 * One Redis, one store, one vault, one driver; any number of replicas on them. The driver and the daemons are stood in for;
 * Redis, store and vault are the real ones.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AGENT_ENV, HangarError, newCheckpointId } from "@hangar/shared";
import type { AgentCommand, AgentEvent, BootSpec, CheckpointReason, CommitCheckpoint, Part } from "@hangar/shared";
import { NO_RESTARTS } from "../../src/driver/driver.ts";
import type {
  Driver,
  SandboxSpec,
  SandboxStatus,
  Snapshots,
  WarmDriver,
  WarmSpec,
  WarmStatus,
} from "../../src/driver/driver.ts";
import { connectRedis } from "../../src/redis/connect.ts";
import type { RedisAdapters } from "../../src/redis/connect.ts";
import type { AgentIdentity, AgentSide, Loops, Sessions } from "../../src/session/sessions.ts";
import { makeRedaction } from "../../src/session/redaction.ts";
import { makeAgentSide, makeLoops, makeSessions } from "../../src/session/sessions.ts";
import type { Deps, Settings } from "../../src/session/ports.ts";
import { checkpointKey } from "../../src/store/store.ts";
import { openVolumeStore } from "../../src/store/volume.ts";
import { openVault } from "../../src/vault/file-vault.ts";
import type { Vault } from "../../src/vault/vault.ts";
import type { TestRedis } from "../redis/server.ts";
import { startRedis } from "../redis/server.ts";

export const OWNER = "admin";

class FakeDriver implements Driver {
  readonly name = "fake";
  readonly isolation = "none: a stand-in";
  keepsFolders = true;
  /** What sandboxes are made of, beside their environments. */
  image = "";
  /** Those that wait, by their ids. */
  readonly waiting = new Map<string, WarmSpec & { state: "running" | "left" }>();
  readonly warm: WarmDriver = {
    create: async (spec) => void this.waiting.set(spec.id, { ...spec, state: "running" }),
    list: async () => [...this.waiting.keys()].map((id) => this.waitingOf(id)!),
    status: async (id) => this.waitingOf(id),
    claim: async (id, as) => {
      if (this.sandboxes.get(as.id)) return true;
      const waiting = this.waiting.get(id);
      if (waiting?.state !== "running") return false;
      this.waiting.delete(id);
      this.sandboxes.set(as.id, { ...waiting, ...as, adopt: null, snapshot: null });
      return true;
    },
    destroy: async (id) => void this.waiting.delete(id),
  };
  /** What the machine says of a sandbox beyond its state. */
  readonly said = new Map<string, Partial<SandboxStatus>>();
  readonly sandboxes = new Map<string, SandboxSpec & { state: "running" | "left" }>();
  readonly destroyed: string[] = [];
  readonly created: string[] = [];
  /** Called in `create` before anything is made. */
  beforeCreate: (spec: SandboxSpec) => Promise<void> = () => Promise.resolve();
  beforeDestroy: (id: string) => Promise<void> = () => Promise.resolve();
  private readonly callbacks: ((id: string) => void)[] = [];

  workspace(): string {
    return "/workspace";
  }
  canAdopt(id: string): Promise<boolean> {
    return Promise.resolve(this.sandboxes.get(id)?.state === "left");
  }
  async create(spec: SandboxSpec): Promise<{ adopted: boolean }> {
    await this.beforeCreate(spec);
    if (this.sandboxes.get(spec.id)?.state === "running") return { adopted: false };
    this.created.push(spec.id);
    const adopted = spec.adopt !== null && this.sandboxes.delete(spec.adopt);
    this.sandboxes.set(spec.id, { ...spec, state: "running" });
    return { adopted };
  }
  list(): Promise<SandboxStatus[]> {
    return Promise.resolve([...this.sandboxes.keys()].map((id) => this.statusOf(id)!));
  }
  status(id: string): Promise<SandboxStatus | null> {
    return Promise.resolve(this.statusOf(id));
  }
  async destroy(id: string): Promise<void> {
    await this.beforeDestroy(id);
    if (this.sandboxes.delete(id)) this.destroyed.push(id);
  }
  stop(id: string): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox) sandbox.state = "left";
    return Promise.resolve();
  }
  onChange(callback: (id: string) => void): void {
    this.callbacks.push(callback);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }

  /** The daemon's processes are gone at once; its folder stays unless `folder` is false. */
  crash(id: string, folder = true): void {
    if (folder) this.sandboxes.get(id)!.state = "left";
    else this.sandboxes.delete(id);
    for (const callback of this.callbacks) callback(id);
  }
  /** What `take` answers; none: memory cannot be kept here. */
  memory: Awaited<ReturnType<Snapshots["take"]>> | null = null;
  readonly removed: string[] = [];
  get snapshots(): Snapshots | null {
    return this.memory === null
      ? null
      : { take: async () => this.memory ?? "pending", remove: async (name) => void this.removed.push(name) };
  }
  madeOf(): string {
    return this.image;
  }
  private waitingOf(id: string): WarmStatus | null {
    const waiting = this.waiting.get(id);
    if (!waiting) return null;
    return { id, state: waiting.state, detail: null, start: null, restarts: NO_RESTARTS, ...this.said.get(id) };
  }
  private statusOf(id: string): SandboxStatus | null {
    const sandbox = this.sandboxes.get(id);
    if (!sandbox) return null;
    const { session, generation, state } = sandbox;
    return { id, session, generation, state, detail: null, start: null, restarts: NO_RESTARTS, ...this.said.get(id) };
  }
}

export interface Replica {
  readonly deps: Deps;
  readonly redis: RedisAdapters;
  readonly sessions: Sessions;
  readonly agents: AgentSide;
  readonly loops: Loops;
}

export class World {
  readonly redis: TestRedis;
  readonly driver = new FakeDriver();
  readonly logged: { level: string; fields: object; message: string }[] = [];
  now = Date.parse("2026-12-01T10:00:00Z");
  settings: Settings = {
    session_keep_checkpoints: 5,
    session_checkpoint_minutes: 10,
    session_max_untracked_mb: 50,
    session_max_part_mb: 100,
    idle_minutes: 30,
    ttl_minutes: 1440,
    left_out_hold_hours: 24,
    start_timeout_minutes: 15,
    heartbeat_seconds: 10,
    lease_seconds: 60,
    agent_urls: ["http://127.0.0.1:4747"],
    git_credentials: "host",
  };
  private readonly dir: string;
  private readonly vault: Vault;
  private readonly replicas: Replica[] = [];

  private constructor(redis: TestRedis, dir: string, vault: Vault) {
    this.redis = redis;
    this.dir = dir;
    this.vault = vault;
  }

  static async open(): Promise<World> {
    const dir = await mkdtemp(join(tmpdir(), "hangar-world-"));
    const { vault } = await openVault(join(dir, "vault", "identity.txt"));
    return new World(await startRedis(), dir, vault);
  }

  async replica(overrides: Partial<Deps> = {}): Promise<Replica> {
    const redis = await connectRedis({ url: this.redis.url, clock: () => this.now });
    const store = await openVolumeStore({
      root: join(this.dir, "store"),
      baseUrl: "http://127.0.0.1:4747",
      signer: this.vault,
      now: () => this.now,
    });
    const log = (level: string) => (fields: object, message: string) =>
      void this.logged.push({ level, fields, message });
    const deps: Deps = {
      ...redis,
      store,
      driver: this.driver,
      vault: this.vault,
      redaction: makeRedaction({ ...redis, vault: this.vault }),
      credentials: null,
      settings: this.settings,
      clock: () => this.now,
      log: { info: log("info"), warn: log("warn"), error: log("error") },
      ...overrides,
    };
    const replica = {
      deps,
      redis,
      sessions: makeSessions(deps),
      agents: makeAgentSide(deps),
      loops: makeLoops(deps),
    };
    this.replicas.push(replica);
    await redis.sessions.setFilled();
    return replica;
  }

  pass(minutes: number): void {
    this.now += minutes * 60_000;
  }

  async close(): Promise<void> {
    await Promise.all(this.replicas.map(({ redis }) => redis.close()));
    await this.redis.stop();
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** Speaks for a sandbox's daemon, by hand. */
export class Daemon {
  readonly agent: AgentIdentity;
  readonly spec: SandboxSpec;
  private readonly world: World;
  private replica: Replica;
  private seq = 0;
  boot!: BootSpec;

  private constructor(world: World, replica: Replica, spec: SandboxSpec, agent: AgentIdentity) {
    this.world = world;
    this.replica = replica;
    this.spec = spec;
    this.agent = agent;
  }

  static async dial(world: World, replica: Replica, sandbox: string): Promise<Daemon> {
    const spec = world.driver.sandboxes.get(sandbox);
    if (!spec) throw new Error(`there is no sandbox ${sandbox}`);
    const agent = await replica.agents.authenticate(spec.env[AGENT_ENV.token]!);
    const daemon = new Daemon(world, replica, spec, agent);
    await replica.agents.connected(agent, { protocol: 1, sandbox, last_command: null }, "one");
    return daemon;
  }

  /** Dials, boots and says `ready`. */
  static async ready(world: World, replica: Replica, sandbox: string): Promise<Daemon> {
    const daemon = await Daemon.dial(world, replica, sandbox);
    daemon.boot = await replica.agents.boot(daemon.agent);
    const [candidate] = daemon.boot.candidates;
    await daemon.say({
      type: "restored",
      source: daemon.boot.adopt ? "adopted" : candidate ? "checkpoint" : "fresh",
      checkpoint: daemon.boot.adopt ? null : (candidate?.checkpoint ?? null),
      verified: true,
      missing: [],
      bad: [],
      warnings: [],
      seconds: {},
    });
    await daemon.say({ type: "phase", phase: "ready", detail: null });
    await daemon.heartbeat();
    return daemon;
  }

  through(replica: Replica): this {
    this.replica = replica;
    return this;
  }

  async say(event: AgentEvent): Promise<void> {
    this.seq++;
    await this.replica.agents.event(this.agent, this.seq, event);
  }
  sayAs(seq: number, event: AgentEvent): Promise<void> {
    return this.replica.agents.event(this.agent, seq, event);
  }

  heartbeat(
    activity: Partial<{ terminals_open: number; tmux_clients: number; last_used_at: string }> = {},
  ): Promise<void> {
    return this.replica.agents.heartbeat(this.agent, {
      at: new Date(this.world.now).toISOString(),
      phase: "ready",
      frozen: false,
      activity: { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: null, ...activity },
    });
  }

  /** The next command that has no result yet. */
  async command<K extends AgentCommand["kind"]>(
    kind: K,
  ): Promise<{ id: string; command: Extract<AgentCommand, { kind: K }> }> {
    const done = new AbortController();
    for await (const { id, command } of this.replica.agents.commands(this.agent, done.signal)) {
      if (command.kind !== kind) continue;
      done.abort();
      return { id, command: command as Extract<AgentCommand, { kind: K }> };
    }
    throw new Error(`no command ${kind} came`);
  }
  answer(id: string, value: unknown): Promise<void> {
    return this.replica.agents.result(this.agent, id, value);
  }

  /** A checkpoint whose parts hold random bytes; `refer` names parts of earlier ones. Answers its id. */
  async checkpoint(
    reason: CheckpointReason,
    options: { refer?: readonly Part[]; id?: string; leftOut?: string[] } = {},
  ): Promise<string> {
    const id = options.id ?? newCheckpointId((this.world.now += 1));
    const { objects, commit } = await this.upload(id, reason, options);
    if (objects.length === 0) throw new Error("nothing to upload");
    await this.replica.agents.commit(this.agent, id, commit);
    return id;
  }

  /** Begins and uploads, and leaves the commit to the caller. */
  async upload(id: string, reason: CheckpointReason, options: { refer?: readonly Part[]; leftOut?: string[] } = {}) {
    const meta = object("meta.json.age");
    const agent = object("agent.tar.age");
    const objects = [meta, agent];
    await this.replica.agents.begin(this.agent, {
      checkpoint: id,
      parent: null,
      reason,
      objects: objects.map(({ file, size, sha256 }) => ({ file, size, sha256 })),
    });
    for (const { file, bytes } of objects) {
      await this.replica.deps.store.create(checkpointKey(this.agent.session, id, file), bytes);
    }
    const { bytes: _, ...metaInfo } = meta;
    const commit: CommitCheckpoint = {
      head: "a".repeat(40),
      base: "a".repeat(40),
      branch: "hangar/session/x",
      harness: "script",
      harness_session: "conversation-1",
      turn_id: null,
      fingerprint: sha256(agent.bytes),
      parts: [...(options.refer ?? []), { name: "agent", file: agent.file, size: agent.size, sha256: agent.sha256 }],
      meta: metaInfo,
      paired: true,
      proved: true,
      left_out: (options.leftOut ?? []).map((path) => ({ path, size: 1 })),
      not_kept: [],
      warnings: [],
    };
    return { objects, commit };
  }

  /** Runs the turn that waits, to its end. */
  async turn(result: Partial<{ summary: string; harness_session: string | null; conversation_lost: boolean }> = {}) {
    const { id, command } = await this.command("turn");
    await this.answer(id, {});
    await this.say({ type: "turn_started", turn: command.turn, at: new Date(this.world.now).toISOString() });
    await this.say({
      type: "turn_finished",
      turn: command.turn,
      at: new Date(this.world.now).toISOString(),
      result: {
        state: "done",
        exit_code: 0,
        summary: "did it",
        error: null,
        harness_session: "conversation-1",
        conversation_lost: false,
        handoff: false,
        usage: { input_tokens: 1, output_tokens: 2, cache_read_tokens: 3, cache_write_tokens: 4, cost_usd: 0.5 },
        ...result,
      },
    });
    const checkpoint = await this.checkpoint("turn");
    await this.say({ type: "turn_settled", turn: command.turn, checkpoint, error: null });
    return command;
  }

  /** Answers the freeze that waits with a checkpoint of its own. */
  async freeze(options: { leftOut?: string[] } = {}): Promise<string> {
    const { id } = await this.command("freeze");
    const checkpoint = await this.checkpoint("suspend", options);
    await this.answer(id, { outcome: "committed", checkpoint });
    return checkpoint;
  }
}

function object(file: string) {
  const bytes = randomBytes(32);
  return { file, bytes, size: bytes.length, sha256: sha256(bytes) };
}
const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** A session that is up, with its daemon. */
export async function sessionUp(
  world: World,
  replica: Replica,
  name = "fix",
  input: object = {},
): Promise<{ id: string; daemon: Daemon }> {
  const session = await replica.sessions.create(OWNER, { name, repo: "/srv/repo.git", ...input });
  await replica.loops.runDue();
  const daemon = await Daemon.ready(world, replica, session.sandbox_id!);
  await replica.loops.runDue();
  return { id: session.id, daemon };
}

/** The code that a call fails with. */
export async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HangarError) return error.code;
    throw error;
  }
  throw new Error("it did not fail");
}
