/**
 * hangar-coordinator: builds everything in order, serves, and takes it apart in the other order. The only module that
 * constructs. Exit codes: 0 stopped when asked; 1 it cannot start, with one line on standard error that says why; 2 a setting
 * is not valid.
 */
import { randomBytes } from "node:crypto";
import { HangarError, redactor, type Redact, type Status } from "@hangar/shared";
import packageJson from "../package.json" with { type: "json" };
import { createApp } from "./app.ts";
import { readDeclaredHarnesses } from "./declared-file.ts";
import { newToken, readClientConfig } from "./client-config.ts";
import { type Config, hostEnvironment, readConfig } from "./config.ts";
import { hostCredentials } from "./credentials/git-credential.ts";
import { makeEnvironments } from "./environment/environments.ts";
import { makeSecrets } from "./environment/secrets.ts";
import { adminCheck, hostCheck, OWNER } from "./http/auth.ts";
import { linkRoute } from "./http/link.ts";
import { mcpFace } from "./http/mcp.ts";
import { problemResponse } from "./http/problem.ts";
import { closeServer, createServer, listen } from "./http/server.ts";
import { terminalRoutes } from "./http/terminals.ts";
import { newRequestId, serveUpgrades } from "./http/upgrades.ts";
import { warmRoute } from "./http/warm.ts";
import { buildingDriver } from "./images/building-driver.ts";
import { prebuild } from "./images/prebuild.ts";
import { openDriver } from "./open-driver.ts";
import { openImages } from "./open-images.ts";
import { openStore, volumeRoot } from "./open-store.ts";
import { connectRedis } from "./redis/connect.ts";
import { joinReplicas } from "./replica.ts";
import type { Deps } from "./session/ports.ts";
import { makeRedaction } from "./session/redaction.ts";
import { reseal } from "./session/reseal.ts";
import { makeAgentSide, makeLoops, makeSessions } from "./session/sessions.ts";
import {
  embeddedRedis,
  portsToTry,
  prepareDataDir,
  reachable,
  refuseUnreachable,
  tellClients,
  vaultOf,
} from "./startup.ts";

import { volumeRoutes } from "./store/volume-http.ts";
import { createLog, type Log } from "./telemetry.ts";
import { vaultCommand } from "./vault-command.ts";
import { makeWarmLoop } from "./warm/loop.ts";
import { poolOf, poolStatus } from "./warm/pool.ts";
import { makeWarmSide } from "./warm/warm-side.ts";

async function main(): Promise<void> {
  if (process.argv[2] === "vault") return await vaultCommand(process.argv[3], configOrExit().data_dir);
  const asked = stopSignal();
  const config = configOrExit();
  const replica = `rep-${randomBytes(4).toString("hex")}`;
  const hidden = { redact: redactor([]) };
  const log = createLog({ level: config.log_level, replica, redact: (text) => hidden.redact(text) });
  process.on("uncaughtException", (error) => {
    log.error({ error }, "the coordinator failed and ends");
    process.exit(1);
  });
  // All state is in Redis and the store: a task that failed unseen is a bug to report, not a reason to end the others.
  process.on("unhandledRejection", (error) => log.error({ error }, "a task failed and nobody looked"));
  // Nothing that is waited for below, such as a child that holds no process alive, may end this one too early.
  setInterval(() => {}, 2 ** 31 - 1);
  const stack = new AsyncDisposableStack();
  try {
    await start({ config, replica, log, stack, hidden });
  } catch (error) {
    await stack.disposeAsync().catch(() => undefined);
    startFailed(error, log);
  }
  await asked;
  log.info({}, "stopping");
  await stack.disposeAsync();
  log.info({}, "stopped");
  process.exit(0);
}

function configOrExit(): Config {
  try {
    return readConfig(process.env);
  } catch (error) {
    console.error(`hangar: ${error instanceof Error ? error.message : String(error)}`);
    return process.exit(2);
  }
}

interface Start {
  readonly config: Config;
  readonly replica: string;
  readonly log: Log;
  readonly stack: AsyncDisposableStack;
  /** What log lines pass: better informed once secrets can be read. */
  readonly hidden: { redact: Redact };
}

/** Builds and starts everything; what has to be undone goes onto `stack`, and is undone from its top. */
async function start({ config, replica, log, stack, hidden }: Start): Promise<void> {
  const startedAt = performance.now();
  for (const warning of config.warnings) log.warn({}, warning);
  const dataDir = prepareDataDir(config.data_dir);
  const host = hostEnvironment(process.env);
  const redisUrl = config.redis_url ?? (await embeddedRedis(dataDir, host, log, stack));
  const redis = await connectRedis({ url: redisUrl, clock: Date.now, keepEvents: config.session_keep_events });
  stack.defer(() => redis.close());
  const root = volumeRoot(config);
  const vault = await vaultOf(dataDir, root, log);

  // The port is taken before anything is built that must know this replica's URL. Until all is there, it refuses.
  let refusing: string | null = "Hangar is starting: try again in a moment";
  let serve = (_request: Request): Response | Promise<Response> =>
    problemResponse(new HangarError("not_running", refusing ?? undefined), newRequestId());
  const server = createServer((request) => serve(request));
  stack.defer(() => closeServer(server, 3000));
  const before = readClientConfig(dataDir);
  const port = await listen(server, config.host, portsToTry(config, before?.url));
  const url = config.advertise_url ?? `http://${reachable(config.host)}:${port}`;

  const storeUrl = config.sandbox_url ?? url;
  refuseUnreachable(config, url);
  const { store, volume, warnings: gaps } = await openStore(config, { url: storeUrl, signer: vault });
  for (const gap of gaps) log.warn({}, gap);
  const images = await openImages(config);
  const opened = await openDriver(config, { dataDir, host, root, log });
  // Other drivers have no use for an image.
  const driver = config.driver === "kubernetes" ? buildingDriver(opened, images) : opened;
  stack.defer(() => driver.close());
  const presence = await joinReplicas(redis.replicas, url, log);
  stack.defer(() => presence.leave());

  const harnesses = await readDeclaredHarnesses(config.harnesses);
  const redaction = makeRedaction({ ...redis, vault });
  hidden.redact = (text) => redaction.all(text);
  const deps: Deps = {
    ...redis,
    store,
    driver,
    vault,
    redaction,
    credentials: config.git_credentials === "host" ? hostCredentials({ env: host, timeoutMs: 10_000 }) : null,
    settings: Object.defineProperty({ ...config, harnesses, agent_urls: [url] }, "agent_urls", {
      get: () => (config.sandbox_url === null ? presence.urls() : [config.sandbox_url]),
    }),
    clock: Date.now,
    log,
  };
  const sessions = makeSessions(deps);
  const agents = makeAgentSide(deps);
  const warm = makeWarmSide(deps);
  const loops = makeLoops(deps);
  stack.defer(() => loops.stop());
  const warmLoop = makeWarmLoop(deps, OWNER);
  stack.defer(() => warmLoop.stop());

  const token = config.token ?? before?.token ?? newToken();
  const stopping = new AbortController();
  const warnings = [...config.warnings, ...gaps, ...(driver.isolation.startsWith("none") ? [driver.isolation] : [])];
  const http = {
    sessions,
    agents,
    warm,
    environments: makeEnvironments({
      repository: redis.environments,
      defaults: config,
      changed: (owner, name) => redis.pools.nudge(poolOf({ owner, environment: name }), Date.now()),
      pool: (owner, environment) => poolStatus(deps, owner, environment),
    }),
    secrets: makeSecrets({ repository: redis.secrets, environments: redis.environments, vault }),
    vault: { reseal: () => reseal(deps, OWNER) },
    mcp: mcpFace({ sessions, owner: OWNER, version: packageJson.version, stopping: stopping.signal }, log),
    checkAdmin: adminCheck(token),
    checkHost: hostCheck({ host: config.host, advertiseUrl: url }),
    volume: volume && volumeRoutes(volume, (error) => log.error({ error }, "the store failed")),
    log,
    refusing: () => refusing,
    stopping: stopping.signal,
    healthy: async () => refusing === null && (await answers(redis.ping())),
    status: async (): Promise<Status> => ({
      version: packageJson.version,
      url,
      data_dir: dataDir,
      redis: withoutPassword(redisUrl),
      store: store.name,
      driver: driver.name,
      isolation: driver.isolation,
      replica,
      uptime_seconds: Math.round(performance.now() - startedAt) / 1000,
      sessions: await sessions.countByState(),
      warnings,
    }),
  };
  // A terminal must come to this replica; behind a shared URL that is the one, where there is one alone.
  const terminalUrl = config.advertise_url ?? config.sandbox_url ?? url;
  const app = createApp(http);
  serve = (request) => app.fetch(request);
  const closeSockets = serveUpgrades(
    server,
    [
      linkRoute({ agents, replica, log, helloMs: 10_000 }),
      warmRoute({ warm, log, helloMs: 10_000 }),
      ...terminalRoutes({ ...http, advertiseUrl: () => terminalUrl, dialMs: 20_000 }),
    ],
    { ...http, pingMs: 15_000 },
  );
  stack.defer(async () => {
    refusing = "Hangar is stopping";
    stopping.abort();
    await closeSockets();
    await closeServer(server, 3000);
  });

  await loops.start();
  await warmLoop.start();
  const ahead = [...(config.prebuild_environments ?? []), ...Object.values(config.github_repos ?? {})];
  void prebuild({ ...redis, images, owner: OWNER, names: ahead, log, signal: stopping.signal });
  refusing = null;
  tellClients(dataDir, { url, token }, config.redis_url === null, stack);
  const ready = { url, pid: process.pid, data_dir: dataDir, redis: withoutPassword(redisUrl), store: store.name };
  log.info({ ...ready, driver: driver.name, isolation: driver.isolation }, "ready");
}

/** Resolves at the first signal to stop; a second one ends the process at once. */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    for (const [signal, number] of [
      ["SIGINT", 2],
      ["SIGTERM", 15],
      ["SIGHUP", 1],
    ] as const) {
      process.on(signal, () => {
        if (asked) process.exit(128 + number);
        asked = true;
        resolve();
      });
    }
  });
}

/** Whether it succeeds soon. */
const answers = (asked: Promise<void>): Promise<boolean> =>
  Promise.race([
    asked.then(
      () => true,
      () => false,
    ),
    new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 1500).unref()),
  ]);

const withoutPassword = (url: string): string => url.replace(/\/\/[^@/]*@/, "//");

function startFailed(error: unknown, log: Log): never {
  if (error instanceof HangarError) log.debug({ error }, "it cannot start");
  else log.error({ error }, "it cannot start");
  console.error(`hangar: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(1);
}

await main();
