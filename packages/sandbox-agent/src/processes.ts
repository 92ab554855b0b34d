/** Finding and ending what a sandbox's work left running. */
import { readFileSync, readdirSync } from "node:fs";
import { pause } from "./backoff.ts";
import { SANDBOX_MARK } from "./config.ts";
import { run, signalGroup } from "./process.ts";

/** Kills a process group that an earlier daemon of this sandbox started: never one whose number was given out again. */
export function endEarlierGroup(pid: number): void {
  if (process.platform === "linux" && !(startedAt(pid) < startedAt(process.pid))) return;
  signalGroup(pid, "SIGKILL");
}

/** Clock ticks since the machine started; NaN: no such process. */
const startedAt = (pid: number): number =>
  Number(
    procText(pid, "stat")
      .replace(/^.*\) /s, "")
      .split(" ")[19] ?? "x",
  );

interface Running {
  readonly pid: number;
  readonly parent: number;
  /** Carries the sandbox's mark in its environment. */
  readonly marked: boolean;
}

/**
 * Ends every process of the sandbox but the daemon and its ancestors: SIGTERM, then SIGKILL, until none is left or `mostMs`
 * is over. Resolves with the pids that would not go.
 */
export async function endLeftovers(sandbox: string, mostMs = 8000): Promise<number[]> {
  const begun = performance.now();
  for (let round = 0; ; round++) {
    const left = await leftovers(sandbox);
    if (left.length === 0) return [];
    const over = performance.now() - begun;
    if (over > mostMs) return left;
    // A second SIGTERM says nothing new; new processes that appear later are killed at once.
    for (const pid of left) signal(pid, round === 0 ? "SIGTERM" : "SIGKILL");
    for (let wait = 0; wait < (round === 0 ? 40 : 4); wait++) {
      await pause(25);
      if ((await leftovers(sandbox)).length === 0) return [];
    }
  }
}

/** Stops every process of the sandbox where it is; what one forks meanwhile is stopped in the next round. */
export async function stopLeftovers(sandbox: string): Promise<void> {
  for (let round = 0; round < 5; round++) {
    for (const pid of await leftovers(sandbox)) signal(pid, "SIGSTOP");
    await pause(20);
  }
}

/** They go on where they were stopped. */
export async function continueLeftovers(sandbox: string): Promise<void> {
  for (const pid of await leftovers(sandbox)) signal(pid, "SIGCONT");
}

async function leftovers(sandbox: string): Promise<number[]> {
  const all = process.platform === "linux" ? readProc(sandbox) : await readPs(sandbox);
  const byPid = new Map(all.map((each) => [each.pid, each]));
  const own = ancestors(process.pid, byPid);
  const mine = ownsNamespace(own);
  return all
    .filter((each) => !own.has(each.pid) && (mine || each.marked || descends(each, byPid)))
    .map((each) => each.pid);
}

/** Whether this PID namespace holds nothing but the sandbox: then everything in it may go. */
function ownsNamespace(own: ReadonlySet<number>): boolean {
  if (process.platform !== "linux" || !own.has(1)) return false;
  if (process.pid === 1) return true;
  // An init that started this very program, and at most one launcher in between: nothing else shares the namespace.
  const program = process.argv[1] ?? "\0\0";
  const launchers = [...own].filter((pid) => pid !== 1 && pid !== process.pid);
  const init = procText(1, "cmdline");
  const known = /(?:^|\/)(?:bwrap|tini|dumb-init|catatonit|docker-init)$/.test(init.split("\0")[0] ?? "");
  if (!known && !init.includes(program)) return false;
  return launchers.length <= 1 && launchers.every((pid) => procText(pid, "cmdline").includes(program));
}

function ancestors(pid: number, byPid: ReadonlyMap<number, Running>): Set<number> {
  const chain = new Set<number>();
  for (let at: number | undefined = pid; at !== undefined && at > 0 && !chain.has(at); at = byPid.get(at)?.parent) {
    chain.add(at);
  }
  return chain;
}

function descends(each: Running, byPid: ReadonlyMap<number, Running>): boolean {
  return ancestors(each.pid, byPid).has(process.pid);
}

function readProc(sandbox: string): Running[] {
  const mark = `${SANDBOX_MARK}=${sandbox}`;
  const found: Running[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const pid = Number(name);
    // pid (name, which may hold anything) state parent …
    const [state, parent] = procText(pid, "stat")
      .replace(/^.*\) /s, "")
      .split(" ");
    if (state === undefined || parent === undefined || state === "Z" || state === "X") continue;
    const marked = `\0${procText(pid, "environ")}`.includes(`\0${mark}\0`);
    found.push({ pid, parent: Number(parent), marked });
  }
  return found;
}

function procText(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return ""; // gone, or another user's
  }
}

async function readPs(sandbox: string): Promise<Running[]> {
  const env = { PATH: "/bin:/usr/bin", LC_ALL: "C" };
  const ran = await run(["ps", "-axwwE", "-o", "pid=,ppid=,command="], { cwd: "/", env, maxBytes: 64 * 1024 * 1024 });
  return ran.stdout
    .toString("utf8")
    .split("\n")
    .flatMap((line) => {
      const [, pid, parent, rest] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
      if (pid === undefined || parent === undefined || rest === undefined) return [];
      return [{ pid: Number(pid), parent: Number(parent), marked: rest.includes(`${SANDBOX_MARK}=${sandbox}`) }];
    });
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // gone
  }
}
