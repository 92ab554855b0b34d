/**
 * A real Hangar for tests: the coordinator as its own process over its own data folder, with real redis-server and sandboxes.
 * Everything lives under one temporary folder and ends with `close`.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Session, SessionEvent, Turn } from "@hangar/shared";

const root = fileURLToPath(new URL("../..", import.meta.url));
const bin = (path: string): string => join(root, path);
export const COORDINATOR = bin("packages/coordinator/bin/hangar-coordinator.mjs");
export const CLI = bin("packages/cli/bin/hangar.mjs");

export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

interface Replica {
  readonly url: string;
  readonly pid: number;
  readonly process: ChildProcess;
  /** What it has written to its log so far. */
  log(): string;
  kill(signal: NodeJS.Signals): Promise<void>;
}

export interface TestHangar {
  readonly dir: string;
  readonly dataDir: string;
  readonly home: string;
  readonly env: Record<string, string>;
  /** The first replica; replaced by `restart`. */
  replica: Replica;
  start(extra?: Record<string, string>): Promise<Replica>;
  restart(extra?: Record<string, string>): Promise<void>;
  /** REST; throws with the problem's code and detail unless the status is 2xx. */
  api<T>(method: string, path: string, body?: unknown, replica?: Replica): Promise<T>;
  raw(method: string, path: string, init?: RequestInit): Promise<Response>;
  cli(args: string[], options?: { input?: string; cwd?: string; env?: Record<string, string> }): Promise<Ran>;
  session(name: string): Promise<Session>;
  /** Waits until the session is as asked, with its newest record in the failure. */
  until(name: string, what: string, is: (session: Session) => boolean, seconds?: number): Promise<Session>;
  /** Sends and waits for the turn's end. */
  turn(name: string, message: string, seconds?: number): Promise<Turn>;
  events(name: string): Promise<SessionEvent[]>;
  exec(name: string, ...argv: string[]): Promise<Ran>;
  /** An open terminal of the session's sandbox, once its first bytes came. */
  terminal(name: string, what?: "shell" | "harness"): Promise<WebSocket & { text(): string }>;
  /** Pids on this machine whose command line or environment holds this Hangar's folder. */
  pids(match: RegExp): Promise<number[]>;
  close(): Promise<void>;
}

export async function startHangar(extra: Record<string, string> = {}): Promise<TestHangar> {
  const dir = await mkdtemp(join(tmpdir(), "hangar-e2e-"));
  const dataDir = join(dir, "data");
  const home = join(dir, "host-home");
  await mkdir(home, { recursive: true });
  const token = "test-token-0123456789abcdef0123456789abcdef";
  const replicas = new Set<Replica>();
  let firstPort: number | undefined;
  const base: Record<string, string> = {
    PATH: [join(root, "node_modules/.bin"), process.env["PATH"] ?? ""].join(delimiter),
    HOME: home,
    LANG: "C.UTF-8",
    HANGAR_DATA_DIR: dataDir,
    HANGAR_TOKEN: token,
    HANGAR_LOG_LEVEL: "debug",
    ...extra,
  };

  const start = async (more: Record<string, string> = {}): Promise<Replica> => {
    // A coordinator that comes back has its old address, as in real life: its sandboxes know no other.
    const port =
      replicas.size === 0
        ? (firstPort ??= Number(extra["HANGAR_TEST_FIRST_PORT"] ?? (await freePort())))
        : await freePort();
    const child = spawn(process.execPath, [COORDINATOR], {
      cwd: dir,
      env: { ...base, HANGAR_PORT: String(port), ...more },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (log += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
    const url = `http://127.0.0.1:${port}`;
    const replica: Replica = {
      url,
      pid: child.pid ?? -1,
      process: child,
      log: () => log,
      kill: async (signal) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const gone = once(child, "exit");
        child.kill(signal);
        await gone;
        replicas.delete(replica);
      },
    };
    replicas.add(replica);
    for (let i = 0; ; i++) {
      if (child.exitCode !== null || i > 300) throw new Error(`the coordinator did not come up:\n${log}`);
      const ok = await fetch(`${url}/healthz`).then(
        (r) => r.ok,
        () => false,
      );
      if (ok) return replica;
      await sleep(100);
    }
  };

  const hangar: TestHangar = {
    dir,
    dataDir,
    home,
    env: base,
    replica: await start(),
    start,
    restart: async (more) => {
      await hangar.replica.kill("SIGKILL");
      hangar.replica = await start(more);
    },
    raw: (method, path, init = {}) =>
      fetch(hangar.replica.url + path, {
        method,
        ...init,
        headers: { authorization: `Bearer ${token}`, ...(init.headers as Record<string, string>) },
      }),
    api: async <T>(method: string, path: string, body?: unknown, replica: Replica = hangar.replica): Promise<T> => {
      const answer = await fetch(replica.url + path, {
        method,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
      return (text === "" ? undefined : JSON.parse(text)) as T;
    },
    cli: (args, options = {}) =>
      run(process.execPath, [CLI, ...args], {
        cwd: options.cwd ?? dir,
        env: { ...base, ...options.env },
        input: options.input ?? "",
      }),
    session: (name) => hangar.api<Session>("GET", `/api/sessions/${name}`),
    until: async (name, what, is, seconds = 60) => {
      let last: Session | undefined;
      for (let i = 0; i < seconds * 10; i++) {
        last = await hangar.session(name).catch(() => last);
        if (last && is(last)) return last;
        await sleep(100);
      }
      throw new Error(
        `${name} was never ${what}: ${JSON.stringify(last, null, 1)}\n${hangar.replica.log().slice(-6000)}`,
      );
    },
    turn: async (name, message, seconds = 90) => {
      const { turn } = await hangar.api<{ turn: Turn }>("POST", `/api/sessions/${name}/send`, { message });
      const find = (s: Session): Turn | undefined => s.turns.find((t) => t.id === turn.id);
      const ended = (s: Session): boolean => !["queued", "running"].includes(find(s)?.state ?? "queued");
      const session = await hangar.until(
        name,
        `done with ${turn.id}`,
        (s) => ended(s) && s.state !== "ACTIVE",
        seconds,
      );
      return find(session) as Turn;
    },
    events: async (name) => {
      const stop = new AbortController();
      const answer = await hangar.raw("GET", `/api/sessions/${name}/events?from=0`, { signal: stop.signal });
      const events: SessionEvent[] = [];
      let text = "";
      const timer = setTimeout(() => stop.abort(), 1500);
      try {
        for await (const chunk of answer.body ?? []) text += Buffer.from(chunk as Uint8Array).toString("utf8");
      } catch {
        // the stream has no end of its own
      }
      clearTimeout(timer);
      for (const block of text.split("\n\n")) {
        const data = block
          .split("\n")
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trim());
        if (data.length > 0) events.push(JSON.parse(data.join("\n")) as SessionEvent);
      }
      return events;
    },
    exec: async (name, ...argv) => {
      const result = await hangar.api<{ exit_code: number; stdout: string; stderr: string }>(
        "POST",
        `/api/sandboxes/${name}/exec`,
        { argv },
      );
      const text = (base64: string): string => Buffer.from(base64, "base64").toString("utf8");
      return { code: result.exit_code, stdout: text(result.stdout), stderr: text(result.stderr) };
    },
    terminal: async (name, what = "shell") => {
      const url = `${hangar.replica.url.replace("http", "ws")}/api/sandboxes/${name}/terminal?what=${what}&cols=80&rows=24`;
      // Node's WebSocket takes headers, which the standard's type does not know
      const options = { headers: { authorization: `Bearer ${token}` } } as unknown as string[];
      const socket = new WebSocket(url, options);
      socket.binaryType = "arraybuffer";
      let text = "";
      socket.addEventListener("message", (message) => {
        text +=
          typeof message.data === "string" ? message.data : Buffer.from(message.data as ArrayBuffer).toString("utf8");
      });
      await new Promise<void>((resolve, reject) => {
        socket.addEventListener("message", () => resolve(), { once: true });
        socket.addEventListener("close", (event) => reject(new Error(`no terminal: ${event.code} ${event.reason}`)), {
          once: true,
        });
      });
      return Object.assign(socket, { text: () => text });
    },
    pids: (match) => pidsOf(dir, match),
    close: async () => {
      for (const replica of replicas.values().toArray()) await replica.kill("SIGTERM");
      await endAll(dir);
      await sleep(100);
      await rm(dir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return hangar;
}

/** Ends what still runs for `dir`: sandboxes and a redis-server outlive a killed coordinator on purpose. */
export async function endAll(dir: string): Promise<void> {
  killAll(await pidsOf(dir, /./));
}

/** SIGKILL to each; the end of one is often the end of others (a sandbox's first process takes the rest along). */
export function killAll(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
}

/** Pids whose environment names `dir` as their Hangar folder, or whose command line does, and matches. */
async function pidsOf(dir: string, match: RegExp): Promise<number[]> {
  const found: number[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid) continue;
    try {
      const cmdline = (await readFile(`/proc/${entry}/cmdline`, "utf8")).replaceAll("\0", " ");
      const environ = await readFile(`/proc/${entry}/environ`, "utf8");
      if ((cmdline.includes(dir) || environ.includes(dir)) && match.test(cmdline)) found.push(Number(entry));
    } catch {
      // it ended meanwhile, or is another user's
    }
  }
  return found;
}

export function run(
  file: string,
  args: string[],
  options: { cwd?: string; env?: Record<string, string>; input?: string } = {},
): Promise<Ran> {
  return new Promise((resolve) => {
    const child = execFile(
      file,
      args,
      { cwd: options.cwd, env: options.env, maxBuffer: 64 << 20, encoding: "utf8" },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code ?? 1) : 0, stdout, stderr }),
    );
    // a command that refuses its arguments ends before it has read anything
    child.stdin?.on("error", () => undefined).end(options.input ?? "");
  });
}

const GIT_ENV = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "Dev",
  GIT_AUTHOR_EMAIL: "dev@example.test",
  GIT_COMMITTER_NAME: "Dev",
  GIT_COMMITTER_EMAIL: "dev@example.test",
};

export async function git(cwd: string, ...args: string[]): Promise<string> {
  const ran = await run("git", args, { cwd, env: { PATH: process.env["PATH"] ?? "", ...GIT_ENV } });
  if (ran.code !== 0) throw new Error(`git ${args.join(" ")}: ${ran.stderr}`);
  return ran.stdout;
}

/** A bare remote with a few commits on main: its path. */
export async function makeRemote(dir: string, name = "widgets"): Promise<string> {
  const bare = join(dir, `${name}.git`);
  const work = join(dir, `${name}-seed`);
  await mkdir(work, { recursive: true });
  await git(dir, "init", "-q", "--bare", "-b", "main", bare);
  await git(work, "init", "-q", "-b", "main");
  await mkdir(join(work, "src"));
  for (let i = 0; i < 20; i++) await writeFile(join(work, "src", `f${i}.txt`), `file ${i}\n`.repeat(i + 1));
  await writeFile(join(work, ".gitignore"), "build/\n.env\n");
  await git(work, "add", "-A");
  await git(work, "commit", "-qm", "First commit");
  await git(work, "push", "-q", bare, "main");
  return bare;
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address ? address.port : 0;
}
