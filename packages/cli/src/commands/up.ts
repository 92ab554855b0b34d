/** `hangar up`, `down`, `status`, `doctor`: Hangar itself, on this machine. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type ErrorCode, HangarError, Session, SessionListItem, Status } from "@hangar/shared";
import { z } from "zod";
import { type Client, clientOf, readClientConfig } from "../client.ts";
import type { Context } from "../context.ts";
import { ExitWith } from "../failure.ts";
import { waitUntilSuspended } from "../follow.ts";

export async function up(context: Context, options: { foreground?: boolean; json?: boolean }): Promise<void> {
  const { config, ui } = context;
  onlyHere(context, "up");
  const running = await runningHere(context);
  if (running) {
    if (options.json) return ui.json({ ...running.status, pid: running.pid, already_running: true });
    ui.out(`Hangar is already running at ${running.client.url} (pid ${running.pid})`);
    return intro(context, running.status);
  }
  makeDataDir(config.dataDir);
  if (options.foreground) return await foreground(context);
  const isFirst = readClientConfig(config.dataDir) === null;
  const started = await startDetached(context);
  if (options.json) return ui.json({ ...started.status, pid: started.pid, already_running: false });
  ui.out(`Hangar is up at ${started.client.url} (pid ${started.pid})`);
  intro(context, started.status);
  if (isFirst)
    ui.note(
      `Back up ${join(config.dataDir, "vault")} outside this machine: without it no checkpoint can be opened again.`,
    );
}

export interface Running {
  readonly client: Client;
  readonly pid: number;
  readonly status: Status;
}

/** The Hangar of this data folder, when it runs and answers. */
async function runningHere(context: Context): Promise<Running | null> {
  const local = readClientConfig(context.config.dataDir);
  if (local === null || local.pid === null || !processExists(local.pid)) return null;
  const client = clientOf(local.url, local.token, false);
  try {
    return { client, pid: local.pid, status: await client.call("GET", "/api/status", Status) };
  } catch {
    return null;
  }
}

/** Starts the coordinator in a session of its own and waits until it serves. Its own line when it does not. */
export async function startDetached(context: Context): Promise<Running> {
  const { config, ui } = context;
  makeDataDir(config.dataDir);
  const log = join(config.dataDir, "coordinator.log");
  if (existsSync(log) && statSync(log).size > 20_000_000) renameSync(log, `${log}.1`);
  const before = existsSync(log) ? statSync(log).size : 0;
  const file = openSync(log, "a", 0o600);
  const child = spawn(process.execPath, [program("hangar-coordinator")], {
    cwd: config.dataDir,
    env: { ...config.env, HANGAR_DATA_DIR: config.dataDir },
    detached: true,
    stdio: ["ignore", file, file],
  });
  closeSync(file);
  const ended = once(child, "exit");
  child.unref();
  ui.progress("starting Hangar");
  try {
    for (let pause = 30; ; pause = Math.min(pause * 1.5, 500)) {
      if (child.exitCode !== null || child.signalCode !== null) throw startFailure(log, before, child.exitCode);
      const running = readClientConfig(config.dataDir)?.pid === child.pid ? await runningHere(context) : null;
      if (running) return running;
      await Promise.race([sleep(pause), ended]);
    }
  } finally {
    ui.done();
  }
}

async function foreground({ config }: Context): Promise<void> {
  const child = spawn(process.execPath, [program("hangar-coordinator")], {
    env: { ...config.env, HANGAR_DATA_DIR: config.dataDir },
    stdio: "inherit",
  });
  // A terminal's Ctrl-C reaches the child too; what is sent to this process alone is passed on.
  const pass = (signal: NodeJS.Signals) => void child.kill(signal);
  for (const signal of ["SIGTERM", "SIGHUP"] as const) process.on(signal, pass);
  process.on("SIGINT", () => undefined);
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new ExitWith(code ?? 1);
}

/** The coordinator's last word: one line that begins with `hangar: `. */
function startFailure(log: string, from: number, exitCode: number | null): HangarError {
  const said = readFileSync(log).subarray(from).toString("utf8").trimEnd().split("\n");
  const line = said.findLast((one) => one.startsWith("hangar: "))?.slice("hangar: ".length);
  if (line === undefined) return new HangarError("internal", `Hangar did not start (exit ${exitCode}): see ${log}`);
  const kinds: [RegExp, ErrorCode][] = [
    [/^another Hangar/, "in_use"],
    [/not installed/, "missing_cli"],
    [/redis/i, "redis_unavailable"],
  ];
  const code = exitCode === 2 ? "invalid_request" : kinds.find(([pattern]) => pattern.test(line))?.[1];
  return new HangarError(code ?? "internal", line);
}

function makeDataDir(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new HangarError(
      "invalid_request",
      `the data folder ${path} cannot be made (${why}): set HANGAR_DATA_DIR to another`,
      { cause: error },
    );
  }
}

function intro(context: Context, status: Status): void {
  const { ui } = context;
  const say = (line: string) => ui.out(line);
  const h = ui.prefix;
  say("");
  say(`  ${h} secret set ANTHROPIC_API_KEY           a key for Claude Code, kept sealed`);
  say(`  ${h} session new NAME --repo URL "MESSAGE"  a stream of work, with its first message`);
  say(`  ${h} session list                           all of them, newest first`);
  say(`  ${h} session send NAME "MESSAGE"            the next message; opens it where it is suspended`);
  say(`  ${h} sb attach NAME                         a terminal in its sandbox`);
  say(`  ${h} session suspend NAME                   checkpoint it and let the sandbox go`);
  say(`  ${h} down                                   suspend everything and stop`);
  say(`  ${h} --help                                 everything else`);
  if (h !== "hangar") say(`  From other folders: alias hangar=${here("../../../../node_modules/.bin/hangar")}`);
  for (const warning of status.warnings) ui.note(`warning: ${warning}`);
}

export async function down(context: Context, options: { keep?: boolean; json?: boolean }): Promise<void> {
  const { ui } = context;
  onlyHere(context, "down");
  const running = await runningHere(context);
  if (!running) {
    const pid = readClientConfig(context.config.dataDir)?.pid;
    if (pid && processExists(pid))
      throw new HangarError(
        "not_running",
        `Hangar (pid ${pid}) does not answer: kill ${pid} and look into ${join(context.config.dataDir, "coordinator.log")}`,
      );
    if (options.json) return ui.json({ stopped: false, suspended: [], left: [] });
    return ui.out("Hangar is not running");
  }
  const { suspended, left } = options.keep ? { suspended: [], left: [] } : await suspendAll(context);
  ui.progress("stopping Hangar");
  process.kill(running.pid, "SIGTERM");
  for (let waited = 0; processExists(running.pid); waited += 50) {
    if (waited > 60_000)
      throw new HangarError(
        "timeout",
        `Hangar (pid ${running.pid}) does not stop: see its log in ${running.status.data_dir}`,
      );
    await sleep(50);
  }
  ui.done();
  if (options.json) return ui.json({ stopped: true, suspended, left });
  ui.out("Hangar is down");
  for (const { name, why } of left) ui.note(`hangar: ${why.startsWith(name) ? why : `${name}: ${why}`}`);
  if (left.length > 0) throw new ExitWith(1);
}

/** Those that cannot be suspended keep their sandboxes: work that is in no checkpoint is not thrown away. */
async function suspendAll(context: Context): Promise<{ suspended: string[]; left: { name: string; why: string }[] }> {
  const answer = z.object({ sessions: z.array(SessionListItem) });
  const { sessions } = await context.client().call("GET", "/api/sessions", answer);
  const live = sessions.filter((one) => ["STARTING", "ACTIVE", "IDLE", "SUSPENDING"].includes(one.state));
  const suspended: string[] = [];
  const left: { name: string; why: string }[] = [];
  await Promise.all(
    live.map(async ({ id, name, state }) => {
      if (state === "ACTIVE") context.ui.note(`${name}: its running turn is stopped`);
      try {
        const session = await context.client().call("POST", `/api/sessions/${id}/suspend`, Session, {});
        await waitUntilSuspended(context, session);
        context.ui.note(`${name} is suspended`);
        suspended.push(name);
      } catch (error) {
        if (error instanceof ExitWith) throw error;
        left.push({ name, why: error instanceof Error ? error.message : String(error) });
      }
    }),
  );
  return { suspended, left };
}

export async function showStatus(context: Context, options: { json?: boolean }): Promise<void> {
  const { ui } = context;
  const status = await context.client().call("GET", "/api/status", Status);
  if (options.json) return ui.json(status);
  const row = (name: string, value: string) => ui.out(`${ui.color.dim(name.padEnd(10))} ${value}`);
  ui.out(`Hangar ${status.version} is running at ${status.url}`);
  row("up", `${Math.round(status.uptime_seconds)} s`);
  row("data", status.data_dir);
  row("redis", status.redis);
  row("store", status.store);
  row("sandboxes", `${status.driver}, ${status.isolation}`);
  const counts = Object.entries(status.sessions).filter(([, n]) => n > 0);
  row("sessions", counts.map(([state, n]) => `${n} ${state.toLowerCase()}`).join(", ") || "none");
  for (const warning of status.warnings) ui.note(`warning: ${warning}`);
}

const PROGRAMS = [
  ["git", "git", "everything"],
  ["redis-server", "redis-server", "the embedded default"],
  ["bwrap", "bubblewrap", "keeping sandboxes apart"],
  ["tmux", "tmux", "terminals"],
  ["age", "age", "recovering a checkpoint by hand"],
  ["claude", "Claude Code (npm install -g @anthropic-ai/claude-code)", "sessions with the harness claude"],
] as const;

/** What is installed, and whether Hangar runs. */
export async function doctor(context: Context): Promise<void> {
  const { ui } = context;
  const folders = (context.config.env["PATH"] ?? "").split(delimiter).filter(Boolean);
  let missing = 0;
  for (const [program, name, use] of PROGRAMS) {
    if (program === "bwrap" && process.platform !== "linux") continue;
    const found = folders.map((folder) => join(folder, program)).find((path) => existsSync(path));
    ui.out(
      found
        ? `${ui.color.green("✓")} ${program.padEnd(14)}${found}`
        : `${ui.color.yellow("✗")} ${program.padEnd(14)}not installed: needed for ${use}; install ${name}`,
    );
    if (!found && (program === "git" || program === "redis-server")) missing++;
  }
  const running = context.config.url === null ? await runningHere(context) : null;
  if (running) {
    ui.out(
      `${ui.color.green("✓")} ${"hangar".padEnd(14)}running at ${running.client.url}; sandboxes: ${running.status.isolation}`,
    );
    for (const warning of running.status.warnings) ui.out(`${ui.color.yellow("!")} ${warning}`);
  } else if (context.config.url === null) ui.out(`  ${"hangar".padEnd(14)}not running: ${ui.prefix} up`);
  if (missing > 0) throw new ExitWith(1);
}

export function onlyHere({ config }: Context, command: string): void {
  if (config.url !== null)
    throw new HangarError(
      "invalid_request",
      `HANGAR_URL names a Hangar elsewhere (${config.url}); \`hangar ${command}\` is for the one on this machine: unset it`,
    );
}

const PARTS = { "hangar-coordinator": "coordinator", "hangar-agent": "sandbox-agent" } as const;

/** Beside the bundle, or in the workspaces of a checkout. */
export function program(name: keyof typeof PARTS): string {
  const places = [here(`${name}.mjs`), here(`../../../${PARTS[name]}/bin/${name}.mjs`)];
  const found = places.find((path) => existsSync(path));
  if (!found) throw new HangarError("missing_cli", `a part of Hangar is missing (${name}): install it again`);
  return found;
}
const here = (path: string): string => join(dirname(fileURLToPath(import.meta.url)), path);

export function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
