/**
 * A whole coordinator in process, over a real redis-server, vault and volume store, whose sandboxes are scripted: each is a
 * client that speaks the daemon's protocol over real sockets and does what a test tells it.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  AGENT_ENV,
  type AgentCommand,
  type AgentEvent,
  BeginAnswer,
  BootSpec,
  type CheckpointReason,
  CommitAnswer,
  newCheckpointId,
  type Session,
  type SessionEvent,
  ToAgent,
} from "@hangar/shared";
import { WebSocket } from "ws";
import { createApp } from "../../src/app.ts";
import { hostCredentials } from "../../src/credentials/git-credential.ts";
import { NO_RESTARTS } from "../../src/driver/driver.ts";
import type { Driver, SandboxSpec } from "../../src/driver/driver.ts";
import { startRedisServer } from "../../src/embedded/redis-server.ts";
import { makeEnvironments } from "../../src/environment/environments.ts";
import { makeSecrets } from "../../src/environment/secrets.ts";
import { adminCheck } from "../../src/http/auth.ts";
import { linkRoute } from "../../src/http/link.ts";
import { closeServer, createServer, listen } from "../../src/http/server.ts";
import { terminalRoutes } from "../../src/http/terminals.ts";
import { serveUpgrades } from "../../src/http/upgrades.ts";
import { connectRedis } from "../../src/redis/connect.ts";
import type { Deps } from "../../src/session/ports.ts";
import { makeRedaction } from "../../src/session/redaction.ts";
import { makeAgentSide, makeLoops, makeSessions } from "../../src/session/sessions.ts";
import { volumeRoutes } from "../../src/store/volume-http.ts";
import { openVolumeStore } from "../../src/store/volume.ts";
import { openVault } from "../../src/vault/file-vault.ts";
import { poolStatus } from "../../src/warm/pool.ts";
import { makeWarmSide } from "../../src/warm/warm-side.ts";
import { keptLog, TOKEN } from "./support.ts";

export interface ScriptedHangar {
  readonly url: string;
  readonly dir: string;
  readonly sandboxes: ScriptedSandbox[];
  logged(): string;
  api<T>(method: string, path: string, body?: unknown): Promise<T>;
  status(method: string, path: string, init?: RequestInit): Promise<number>;
  until(name: string, is: (session: Session) => boolean): Promise<Session>;
  /** The session's events so far and those that come, until one is as asked. */
  events(name: string, last: (event: SessionEvent["event"]) => boolean): Promise<SessionEvent["event"][]>;
  /** The newest sandbox, once there are `count`. */
  sandbox(count: number): Promise<ScriptedSandbox>;
  terminal(ref: string): WebSocket;
  close(): Promise<void>;
}

export async function startScripted(): Promise<ScriptedHangar> {
  const dir = await mkdtemp(join(tmpdir(), "hangar-scripted-"));
  const { log, text } = keptLog();
  const redisServer = await startRedisServer({
    dataDir: dir,
    path: process.env["PATH"] ?? "",
    runtimeDir: tmpdir(),
    log: () => {},
  });
  const redis = await connectRedis({ url: `unix://${redisServer.socket}`, clock: Date.now });
  const { vault } = await openVault(join(dir, "key"));
  let serve: (request: Request) => Response | Promise<Response> = () => new Response(null, { status: 503 });
  const server = createServer((request) => serve(request));
  const url = `http://127.0.0.1:${await listen(server, "127.0.0.1", [0])}`;
  const store = await openVolumeStore({ root: join(dir, "store"), baseUrl: url, signer: vault });
  const sandboxes: ScriptedSandbox[] = [];
  const driver = scriptedDriver(sandboxes);
  const deps: Deps = {
    ...redis,
    store,
    driver,
    vault,
    redaction: makeRedaction({ ...redis, vault }),
    credentials: hostCredentials({ env: await gitHome(dir), timeoutMs: 20_000 }),
    settings: {
      session_keep_checkpoints: 5,
      session_checkpoint_minutes: 10,
      session_max_untracked_mb: 50,
      session_max_part_mb: 100,
      idle_minutes: 30,
      ttl_minutes: 1440,
      left_out_hold_hours: 0,
      start_timeout_minutes: 15,
      heartbeat_seconds: 1,
      lease_seconds: 30,
      agent_urls: [url],
      git_credentials: "host",
      idle_pass_seconds: 1,
    },
    clock: Date.now,
    log,
  };
  const sessions = makeSessions(deps);
  const agents = makeAgentSide(deps);
  const loops = makeLoops(deps);
  const stopping = new AbortController();
  const http = {
    sessions,
    agents,
    warm: makeWarmSide(deps),
    environments: makeEnvironments({
      repository: redis.environments,
      defaults: deps.settings,
      changed: async () => {},
      pool: (owner, environment) => poolStatus(deps, owner, environment),
    }),
    secrets: makeSecrets({ repository: redis.secrets, environments: redis.environments, vault }),
    vault: { reseal: () => Promise.reject(new Error("not asked here")) },
    mcp: { fetch: () => Promise.reject(new Error("not asked here")) },
    checkAdmin: adminCheck(TOKEN),
    checkHost: () => {},
    volume: volumeRoutes(store),
    log,
    refusing: () => null,
    stopping: stopping.signal,
    healthy: async () => true,
    status: () => Promise.reject(new Error("not asked here")),
  };
  const app = createApp(http);
  serve = (request) => app.fetch(request);
  const routes = [
    linkRoute({ agents, replica: "rep-test", log, helloMs: 10_000 }),
    ...terminalRoutes({ ...http, advertiseUrl: () => url, dialMs: 10_000 }),
  ];
  const closeSockets = serveUpgrades(server, routes, { ...http, pingMs: 15_000 });
  await loops.start();

  const request = (method: string, path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(url + path, {
      method,
      ...init,
      headers: { authorization: `Bearer ${TOKEN}`, ...(init.headers as Record<string, string>) },
    });
  const api = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const answer = await request(method, path, body === undefined ? {} : { body: JSON.stringify(body) });
    const said = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${said}\n${text().slice(-4000)}`);
    return (said === "" ? undefined : JSON.parse(said)) as T;
  };
  return {
    url,
    dir,
    sandboxes,
    logged: text,
    api,
    status: async (method, path, init) => (await request(method, path, init)).status,
    until: async (name, is) => {
      for (let i = 0; ; i++) {
        const session = await api<Session>("GET", `/api/sessions/${name}`);
        if (is(session)) return session;
        if (i > 400) throw new Error(`never so: ${JSON.stringify(session, null, 1)}\n${text().slice(-6000)}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    events: async (name, last) => {
      const answer = await request("GET", `/api/sessions/${name}/events?from=0`);
      const seen: SessionEvent["event"][] = [];
      let rest = "";
      for await (const chunk of answer.body ?? []) {
        rest += Buffer.from(chunk).toString("utf8");
        const blocks = rest.split("\n\n");
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
          const data = /^data: (.*)$/m.exec(block)?.[1];
          if (data === undefined) continue;
          const { event } = JSON.parse(data) as SessionEvent;
          seen.push(event);
          if (!last(event)) continue;
          void answer.body?.cancel().catch(() => {});
          return seen;
        }
      }
      throw new Error(`the events ended: ${JSON.stringify(seen)}`);
    },
    sandbox: async (count) => {
      for (let i = 0; sandboxes.length < count; i++) {
        if (i > 400) throw new Error(`no sandbox ${count} was made\n${text().slice(-6000)}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return sandboxes[count - 1]!;
    },
    terminal: (ref) =>
      new WebSocket(`${url.replace("http", "ws")}/api/sandboxes/${ref}/terminal`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      }),
    close: async () => {
      for (const sandbox of sandboxes) sandbox.end();
      stopping.abort();
      await closeSockets();
      await closeServer(server, 1000);
      await loops.stop();
      await redis.close();
      await redisServer.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** A home whose git knows a password of git.example.com. */
async function gitHome(dir: string): Promise<Record<string, string | undefined>> {
  await writeFile(join(dir, ".gitconfig"), `[credential]\n\thelper = store --file ${dir}/stored\n`);
  await writeFile(join(dir, "stored"), "https://me:pw@git.example.com\n");
  return { PATH: process.env["PATH"], HOME: dir, GIT_CONFIG_NOSYSTEM: "1" };
}

function scriptedDriver(sandboxes: ScriptedSandbox[]): Driver {
  const running = (id: string): ScriptedSandbox | undefined => sandboxes.find((one) => one.spec.id === id && !one.gone);
  const status = (one: ScriptedSandbox) => ({
    id: one.spec.id,
    session: one.spec.session,
    generation: one.spec.generation,
    state: "running" as const,
    detail: null,
    start: null,
    restarts: NO_RESTARTS,
  });
  return {
    name: "scripted",
    isolation: "none: there is no sandbox",
    keepsFolders: false,
    workspace: () => "/workspace",
    canAdopt: async () => false,
    create: async (spec) => {
      if (!running(spec.id)) sandboxes.push(new ScriptedSandbox(spec));
      return { adopted: false };
    },
    list: async () => sandboxes.filter((one) => !one.gone).map(status),
    status: async (id) => {
      const found = running(id);
      return found ? status(found) : null;
    },
    destroy: async (id) => running(id)?.end(),
    stop: async (id) => running(id)?.end(),
    onChange: () => {},
    madeOf: () => "",
    snapshots: null,
    warm: null,
    close: async () => {},
  };
}

/** One sandbox's daemon. */
export class ScriptedSandbox {
  readonly spec: SandboxSpec;
  readonly commands: AgentCommand[] = [];
  readonly acked: number[] = [];
  gone = false;
  superseded = false;
  ws: WebSocket | undefined;
  private seq = 0;
  private readonly url: string;
  private readonly token: string;

  constructor(spec: SandboxSpec) {
    this.spec = spec;
    this.url = spec.env[AGENT_ENV.url]!.split(" ")[0]!;
    this.token = spec.env[AGENT_ENV.token]!;
  }

  request(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.token}` },
      body: body === undefined ? null : JSON.stringify(body),
    });
  }

  async boot(): Promise<BootSpec> {
    const answer = await this.request("GET", "/agent/boot");
    return BootSpec.parse(await answer.json());
  }

  /** `on`: what it does for each command; what it returns is the command's result. */
  async link(on: (command: AgentCommand) => Promise<unknown>): Promise<void> {
    const ws = this.dial("/agent/link");
    this.ws = ws;
    const welcomed = new Promise<void>((resolve) =>
      ws.on("message", (data: Buffer) => {
        const frame = ToAgent.parse(JSON.parse(data.toString("utf8")));
        if (frame.type === "welcome") resolve();
        if (frame.type === "ack") this.acked.push(frame.seq);
        if (frame.type === "superseded") this.superseded = true;
        if (frame.type !== "command") return;
        this.commands.push(frame.command);
        void on(frame.command).then((value) => this.say({ type: "result", command: frame.id, ok: true, value }));
      }),
    );
    await once(ws, "open");
    this.say({ type: "hello", protocol: 1, sandbox: this.spec.id, last_command: null });
    await welcomed;
  }

  dial(path: string): WebSocket {
    const url = path.startsWith("ws") ? path : this.url.replace("http", "ws") + path;
    return new WebSocket(url, { headers: { authorization: `Bearer ${this.token}` } });
  }

  say(frame: unknown): void {
    this.ws?.send(JSON.stringify(frame));
  }

  /** Its number, by which it may be said again. */
  event(event: AgentEvent, seq = ++this.seq): number {
    this.say({ type: "event", seq, event });
    return seq;
  }

  ready(checkpoint: string | null = null): void {
    const source = checkpoint === null ? "fresh" : "checkpoint";
    const how = { verified: checkpoint !== null, missing: [], bad: [], warnings: [], seconds: {} };
    this.event({ type: "restored", source, checkpoint, ...how });
    this.event({ type: "phase", phase: "ready", detail: null });
    const activity = { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: null };
    this.say({ type: "heartbeat", at: new Date().toISOString(), phase: "ready", frozen: false, activity });
  }

  /** A checkpoint of that content, through the signed URLs. Answers its id and the URL its one part went to. */
  async checkpoint(
    reason: CheckpointReason,
    content: string,
    harnessSession: string | null,
  ): Promise<{ id: string; put: string }> {
    const id = newCheckpointId(Date.now());
    const objects = [
      { file: "worktree.age", bytes: Buffer.from(content) },
      { file: "meta.json.age", bytes: Buffer.from(`meta of ${content}`) },
    ].map(({ file, bytes }) => ({
      file,
      bytes,
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex"),
    }));
    const begun = await this.request("POST", "/agent/checkpoints", {
      checkpoint: id,
      parent: null,
      reason,
      objects: objects.map(({ file, size, sha256 }) => ({ file, size, sha256 })),
    });
    const { uploads } = BeginAnswer.parse(await begun.json());
    for (const { file, bytes } of objects) {
      const { url, method, headers } = uploads[file]!;
      const sent = await fetch(url, { method, headers, body: bytes });
      if (!sent.ok) throw new Error(`PUT ${file}: ${sent.status} ${await sent.text()}`);
    }
    const [part, meta] = objects.map(({ file, size, sha256 }) => ({ file, size, sha256 }));
    const committed = await this.request("POST", `/agent/checkpoints/${id}/commit`, {
      head: "1".repeat(40),
      base: "1".repeat(40),
      branch: "main",
      harness: "script",
      harness_session: harnessSession,
      turn_id: null,
      fingerprint: createHash("sha256").update(content).digest("hex"),
      parts: [{ name: "worktree", ...part }],
      meta,
      paired: true,
      proved: true,
      left_out: [],
      not_kept: [],
      warnings: [],
    });
    if (!committed.ok) throw new Error(`commit: ${committed.status} ${await committed.text()}`);
    CommitAnswer.parse(await committed.json());
    return { id, put: uploads["worktree.age"]!.url };
  }

  end(): void {
    this.gone = true;
    this.ws?.terminate();
  }
}
