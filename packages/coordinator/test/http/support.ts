/** The app over small stand-ins of the use cases, in process or listening; and a log that is kept. */
import { createAdaptorServer } from "@hono/node-server";
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { HangarError, type EnvironmentRecord, type SecretInfo, type Session, type Turn } from "@hangar/shared";
import { WebSocket } from "ws";
import { type AppDeps, createApp } from "../../src/app.ts";
import { makeEnvironments } from "../../src/environment/environments.ts";
import { makeSecrets } from "../../src/environment/secrets.ts";
import { adminCheck, hostCheck } from "../../src/http/auth.ts";
import { linkRoute } from "../../src/http/link.ts";
import { terminalRoutes } from "../../src/http/terminals.ts";
import { serveUpgrades } from "../../src/http/upgrades.ts";
import type { AgentIdentity, AgentSide, Sessions } from "../../src/session/sessions.ts";
import { createLog, type Log } from "../../src/telemetry.ts";

export const TOKEN = "admin-token-0123456789";
export const AGENT_TOKEN = "agent-token-0123456789";
export const AGENT: AgentIdentity = {
  session: "ses-0a1b2c3d",
  sandbox: "sbx-0a1b2c3d-g1",
  generation: 1,
  nonce: "0".repeat(32),
};

export const NOW = "2026-12-01T00:00:00.000Z";
const session = (over: Partial<Session> = {}): Session => ({
  id: AGENT.session,
  name: "fix",
  title: "fix",
  owner: "admin",
  environment: "fix",
  harness: "script",
  model: null,
  repo: null,
  base_branch: null,
  branch: "hangar/session/fix",
  harness_session: null,
  sandbox_id: AGENT.sandbox,
  state: "IDLE",
  status: null,
  phase: "ready",
  generation: 1,
  turns: [],
  checkpoints: [],
  idle_minutes: 30,
  ttl_minutes: 1440,
  expires_at: null,
  kept_awake_by: [],
  held: null,
  activity: null,
  restored_from: null,
  forked_from: null,
  leftover_sandbox: null,
  last_summary: null,
  last_check: null,
  usage: null,
  job_id: null,
  created_at: NOW,
  last_active_at: NOW,
  updated_at: NOW,
  ...over,
});

const turn = (message: string): Turn => ({
  id: "trn-0123456789ab",
  message,
  state: "queued",
  run_id: null,
  idempotency_key: null,
  harness: "script",
  harness_session: null,
  queued_at: NOW,
  started_at: null,
  finished_at: null,
  exit_code: null,
  summary: null,
  error: null,
  conversation_lost: false,
  handoff: false,
  usage: null,
  checkpoint_id: null,
});

/** What was called, in order: method and its arguments behind the owner. */
export type Calls = [string, ...unknown[]][];

export function standInSessions(calls: Calls, over: Partial<Sessions> = {}): Sessions {
  const known = (ref: string): Session => {
    if (ref === "fix" || ref === AGENT.session) return session();
    throw new HangarError("session_not_found", `There is no session "${ref}"`);
  };
  const called = <T>(name: string, args: unknown[], value: T): Promise<T> => {
    calls.push([name, ...args]);
    return Promise.resolve(value);
  };
  return {
    create: (_, input) => called("create", [input], session({ name: input.name })),
    list: (_, options) => called("list", [options], []),
    get: async (_, ref) => called("get", [ref], known(ref)),
    fork: async (_, ref, input) => called("fork", [ref, input], [session({ name: `${ref}-fork-1` })]),
    open: async (_, ref, input) => called("open", [ref, input], known(ref)),
    send: async (_, ref, input) => called("send", [ref, input], { session: known(ref), turn: turn(input.message) }),
    suspend: async (_, ref, input) => called("suspend", [ref, input], known(ref)),
    keep: async (_, ref, input) => called("keep", [ref, input], known(ref)),
    archive: async (_, ref) => called("archive", [ref], known(ref)),
    remove: async (_, ref, options) => called("remove", [ref, options], void known(ref)),
    checkpointNow: async (_, ref) =>
      called("checkpointNow", [ref, known(ref).id], {
        outcome: { outcome: "failed", code: "disk_full", error: "full" } as const,
        checkpoint: null,
      }),
    check: () => Promise.reject(new Error("not asked here")),
    checkpoints: async (_, ref) => called("checkpoints", [ref], known(ref).checkpoints),
    restore: async (_, ref, input) => called("restore", [ref, input], known(ref)),
    cancelTurn: async (_, ref, id) => called("cancelTurn", [ref, id], turn(known(ref).name)),
    async *events() {},
    sandboxes: () => called("sandboxes", [], []),
    exec: async (_, ref, input) =>
      called("exec", [ref, input], { exit_code: 0, stdout: "", stderr: "", truncated: false, timed_out: false }),
    openTerminal: (_, ref, input) => called("openTerminal", [ref, input], undefined),
    export: () => Promise.reject(new Error("not asked here")),
    beginImport: () => Promise.reject(new Error("not asked here")),
    commitImport: () => Promise.reject(new Error("not asked here")),
    cancelImport: () => Promise.reject(new Error("not asked here")),
    touch: (_, ref) => called("touch", [ref], undefined),
    countByState: () => Promise.reject(new Error("not asked here")),
    ...over,
  };
}

export function standInAgents(calls: Calls, over: Partial<AgentSide> = {}): AgentSide {
  const called = <T>(name: string, args: unknown[], value: T): Promise<T> => {
    calls.push([name, ...args]);
    return Promise.resolve(value);
  };
  const unused = (): Promise<never> => Promise.reject(new Error("not asked here"));
  return {
    authenticate: async (token) => {
      if (token !== AGENT_TOKEN) throw new HangarError("unauthorized", "not a sandbox's token");
      return AGENT;
    },
    successor: () => Promise.reject(new Error("not asked here")),
    boot: unused,
    begin: (_, input) => called("begin", [input], { uploads: {} }),
    renew: (_, id, input) => called("renew", [id, input], { uploads: {} }),
    commit: unused,
    downloads: (_, input) => called("downloads", [input], { downloads: {} }),
    gitCredential: (_, input) => called("gitCredential", [input], { username: "u", password: "p" }),
    connected: (_, hello) =>
      called("connected", [hello], { type: "welcome" as const, heartbeat_seconds: 10, lease_seconds: 60, acked: 0 }),
    event: (_, seq, event) => called("event", [seq, event], undefined),
    heartbeat: (_, heartbeat) => called("heartbeat", [heartbeat], undefined),
    result: (_, command, value) => called("result", [command, value], undefined),
    failure: (_, command, code, error) => called("failure", [command, code, error], undefined),
    disconnected: () => called("disconnected", [], undefined),
    // oxlint-disable-next-line require-yield -- nobody commands anything
    async *commands(_, signal) {
      await aborted(signal);
    },
    ...over,
  };
}

export const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve());
  });

export function keptLog(): { log: Log; text: () => string } {
  let text = "";
  const log = createLog({ level: "trace", replica: "rep-test" }, { write: (line: string) => (text += line) });
  return { log, text: () => text };
}

/** Environments and secrets that are kept in memory. */
export function memory(): {
  environments: Map<string, EnvironmentRecord>;
  secrets: Map<string, Uint8Array>;
  deps: Pick<AppDeps, "environments" | "secrets">;
} {
  const environments = new Map<string, EnvironmentRecord>();
  const secrets = new Map<string, Uint8Array>();
  const info = (name: string): SecretInfo => ({ name, environment: null, file: null, mode: null, updated_at: NOW });
  return {
    environments,
    secrets,
    deps: {
      environments: makeEnvironments({
        repository: {
          get: async (_, name) => environments.get(name) ?? null,
          list: async () => [...environments.values()],
          put: async (_, environment) => {
            const record = { ...environment, created_at: NOW, updated_at: NOW, sessions: 0 };
            environments.set(environment.name, record);
            return record;
          },
          remove: async (_, name) => {
            if (!environments.delete(name)) throw new HangarError("environment_not_found");
          },
        },
        defaults: { idle_minutes: 45, ttl_minutes: 600 },
        changed: async () => {},
        pool: () => Promise.reject(new Error("not asked here")),
      }),
      secrets: makeSecrets({
        repository: {
          put: async (_, { name }, { sealed }) => (secrets.set(name, sealed), info(name)),
          get: async (_, { name }) => {
            const sealed = secrets.get(name);
            return sealed ? { sealed, file: null, mode: null } : null;
          },
          list: async () => [...secrets.keys()].map(info),
          remove: async (_, { name }) => {
            if (!secrets.delete(name)) throw new HangarError("secret_not_found");
          },
        },
        environments: { get: async (_, name) => environments.get(name) ?? null },
        vault: { seal: async (plain) => plain.toReversed() },
      }),
    },
  };
}

const notAsked = () => Promise.reject(new Error("not asked here"));
const NO_WARM: AppDeps["warm"] = {
  authenticate: notAsked,
  welcome: notAsked,
  report: notAsked,
  // oxlint-disable-next-line require-yield -- nobody claims anything
  async *follow() {},
  gitCredential: notAsked,
};

export function standInApp(over: Partial<AppDeps> = {}): { deps: AppDeps; calls: Calls; logged: () => string } {
  const calls: Calls = [];
  const { log, text } = keptLog();
  const deps: AppDeps = {
    sessions: standInSessions(calls),
    agents: standInAgents(calls),
    warm: NO_WARM,
    ...memory().deps,
    vault: { reseal: () => Promise.reject(new Error("not asked here")) },
    mcp: { fetch: () => Promise.reject(new Error("not asked here")) },
    checkAdmin: adminCheck(TOKEN),
    checkHost: () => {},
    volume: null,
    log,
    refusing: () => null,
    stopping: new AbortController().signal,
    status: () => Promise.reject(new Error("not asked here")),
    healthy: async () => true,
    ...over,
  };
  return { deps, calls, logged: text };
}

export interface Listening {
  readonly url: string;
  readonly server: Server;
  readonly deps: AppDeps;
  logged: () => string;
  connect(path: string, token?: string, headers?: Record<string, string>): WebSocket;
  close(): Promise<void>;
}

/** The whole HTTP face on a port of its own. */
export async function listen(over: Partial<AppDeps> = {}, pingMs = 60_000): Promise<Listening> {
  const { deps, logged } = standInApp({
    checkHost: hostCheck({ host: "127.0.0.1", advertiseUrl: "http://127.0.0.1:1" }),
    ...over,
  });
  const server = createAdaptorServer({ fetch: createApp(deps).fetch }) as Server;
  let url = "";
  const routes = [
    linkRoute({ agents: deps.agents, replica: "rep-test", log: deps.log, helloMs: 10_000 }),
    ...terminalRoutes({ ...deps, advertiseUrl: () => url, dialMs: 10_000 }),
  ];
  const closeSockets = serveUpgrades(server, routes, { ...deps, pingMs });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    server,
    deps,
    logged,
    connect: (path, token = AGENT_TOKEN, headers = {}) =>
      new WebSocket(url.replace("http", "ws") + path, { headers: { authorization: `Bearer ${token}`, ...headers } }),
    close: async () => {
      await closeSockets();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
