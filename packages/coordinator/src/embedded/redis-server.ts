/**
 * The real `redis-server` that `hangar up` starts for itself: a private Unix socket, no TCP port, append-only persistence
 * in the data folder. It is a process of its own session (Ctrl-C in the coordinator's terminal does not reach it) and is
 * started again whenever it dies. One that a killed coordinator left behind is stopped, and its data taken over.
 *
 * The caller holds the data folder's lock.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { createConnection } from "node:net";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { gone, identify, isAlive, ProcessIdentity, signal } from "./process.ts";

export interface RedisServerOptions {
  readonly dataDir: string;
  /** Where programs are looked for. */
  readonly path: string;
  /** A private folder for sockets when the data folder's path is too long for one: XDG_RUNTIME_DIR or the system's temp folder. */
  readonly runtimeDir: string;
  /** One line for the log: it died, it is back. */
  readonly log: (line: string) => void;
}

export interface RedisServer {
  readonly socket: string;
  /** None: it is just being started again. */
  pid(): number | null;
  /** Lets it write what it has and ends it. */
  stop(): Promise<void>;
}

/** Answers once it serves. HangarError `missing_cli`, or `redis_unavailable` with redis-server's own last line. */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  const binary = findProgram("redis-server", options.path);
  if (!binary)
    throw new HangarError("missing_cli", `redis-server is not installed: ${howToInstall("redis-server", "redis")}`);
  const folder = join(options.dataDir, "redis");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const socket = socketPath(folder, options.runtimeDir);
  await stopOrphan(folder);
  rmSync(socket, { force: true });

  let current = await start();
  const life = new AbortController();
  const supervision = supervise();
  return { socket, pid: () => current?.pid ?? null, stop };

  async function start(): Promise<Running> {
    const running = await launch(binary as string, folder, socket);
    await ready(running, socket, folder);
    return running;
  }

  async function supervise(): Promise<void> {
    let backOff = 50;
    while (!life.signal.aborted) {
      const since = performance.now();
      const [code, cause] = await current.ended;
      if (life.signal.aborted) return;
      options.log(`redis-server ended (${cause ?? `exit ${code}`}); starting it again`);
      if (performance.now() - since > 30_000) backOff = 50;
      for (;;) {
        await sleep(backOff, undefined, { signal: life.signal }).catch(() => undefined);
        backOff = Math.min(backOff * 2, 5000);
        if (life.signal.aborted) return;
        try {
          current = await start();
          if (life.signal.aborted) return await end(current.identity);
          options.log(`redis-server is back (pid ${current.pid})`);
          break;
        } catch (error) {
          options.log(`redis-server does not start: ${error instanceof Error ? error.message : String(error)}`);
        }
      }
    }
  }

  async function stop(): Promise<void> {
    if (life.signal.aborted) return await supervision;
    life.abort();
    await end(current.identity);
    await supervision;
    rmSync(join(folder, "redis.json"), { force: true });
    rmSync(socket, { force: true });
  }
}

/** The first executable of that name on `path`; none when it is not installed. */
export function findProgram(name: string, path: string): string | null {
  for (const folder of path.split(delimiter)) {
    if (folder === "") continue;
    const candidate = join(folder, name);
    if (existsSync(candidate)) return candidate;
  }
  return null;
}

export const howToInstall = (apt: string, brew: string): string =>
  process.platform === "darwin"
    ? `install it with \`brew install ${brew}\``
    : `install it with \`sudo apt-get install ${apt}\``;

interface Running {
  readonly pid: number;
  readonly identity: ProcessIdentity;
  readonly ended: Promise<[code: number | null, signal: string | null]>;
}

/**
 * The shell waits for a line before it becomes redis-server, so that its identity is on disk first: a coordinator killed in
 * between leaves either nothing or a server that the next one finds.
 */
async function launch(binary: string, folder: string, socket: string): Promise<Running> {
  const child = spawn(
    "/bin/sh",
    ["-c", 'umask 077 && read -r _ && exec "$0" "$@" </dev/null', binary, ...redisArguments(folder, socket)],
    { cwd: folder, detached: true, stdio: ["pipe", "ignore", "ignore"], env: { LC_ALL: "C" } },
  );
  const ended = exit(child);
  if (child.pid === undefined)
    throw new HangarError("internal", "redis-server cannot be started: /bin/sh does not run");
  const identity = identify(child.pid);
  if (!identity) throw new HangarError("redis_unavailable", "redis-server ended at once");
  writeFileSync(join(folder, "redis.json.tmp"), JSON.stringify(identity), { mode: 0o600 });
  renameSync(join(folder, "redis.json.tmp"), join(folder, "redis.json"));
  child.stdin?.on("error", () => undefined);
  child.stdin?.end("go\n");
  child.unref();
  return { pid: child.pid, identity, ended };
}

async function exit(child: ChildProcess): Promise<[number | null, string | null]> {
  const [code, cause] = (await Promise.race([
    once(child, "exit"),
    once(child, "error").then((e) => [null, String(e)]),
  ])) as [number | null, string | null];
  return [code, cause];
}

const redisArguments = (folder: string, socket: string): string[] =>
  Object.entries({
    port: "0",
    unixsocket: socket,
    unixsocketperm: "600",
    dir: folder,
    logfile: join(folder, "redis.log"),
    daemonize: "no",
    appendonly: "yes",
    appendfsync: "everysec",
    save: "",
    "auto-aof-rewrite-min-size": "16mb",
    "maxmemory-policy": "noeviction",
  }).flatMap(([name, value]) => [`--${name}`, value]);

/** Waits for PONG: a server that still loads its file answers LOADING. */
async function ready(running: Running, socket: string, folder: string): Promise<void> {
  for (let pause = 5; ; pause = Math.min(pause * 2, 200)) {
    if (!isAlive(running.identity)) {
      throw new HangarError("redis_unavailable", `redis-server does not start: ${lastLine(join(folder, "redis.log"))}`);
    }
    if (await pings(socket)) return;
    await Promise.race([sleep(pause), running.ended]);
  }
}

function pings(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = createConnection(socket);
    const answer = (ok: boolean) => {
      connection.destroy();
      resolve(ok);
    };
    connection.setTimeout(2000, () => answer(false));
    connection.on("error", () => answer(false));
    connection.on("close", () => answer(false));
    connection.on("connect", () => connection.write("PING\r\n"));
    connection.on("data", (data) => answer(data.toString().startsWith("+PONG")));
  });
}

async function stopOrphan(folder: string): Promise<void> {
  const parsed = ProcessIdentity.safeParse(readJson(join(folder, "redis.json")));
  if (parsed.success) await end(parsed.data);
}

/** SIGTERM makes redis-server write and sync its file; what hangs is killed, and loses at most its last second. */
async function end(identity: ProcessIdentity): Promise<void> {
  if (!signal(identity, "SIGTERM") || (await gone(identity, 10_000))) return;
  signal(identity, "SIGKILL");
  if (!(await gone(identity, 10_000)))
    throw new HangarError("redis_unavailable", `redis-server (pid ${identity.pid}) does not end: kill it by hand`);
}

/** A socket's path may have 104 bytes on macOS and 108 on Linux. A longer one moves to a private folder of a short name. */
export function socketPath(folder: string, runtimeDir: string): string {
  const natural = join(folder, "redis.sock");
  if (Buffer.byteLength(natural) <= 100) return natural;
  const uid = process.getuid?.() ?? 0;
  const short = join(runtimeDir, `hangar-${uid}-${createHash("sha256").update(folder).digest("hex").slice(0, 12)}`);
  mkdirSync(short, { recursive: true, mode: 0o700 });
  const info = lstatSync(short);
  if (!info.isDirectory() || info.uid !== uid)
    throw new HangarError(
      "internal",
      `${short} belongs to someone else: remove it, or choose a shorter HANGAR_DATA_DIR`,
    );
  chmodSync(short, 0o700);
  return join(short, "redis.sock");
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

function lastLine(path: string): string {
  try {
    return readFileSync(path, "utf8").trimEnd().split("\n").pop() ?? "it says nothing";
  } catch {
    return "it says nothing";
  }
}
