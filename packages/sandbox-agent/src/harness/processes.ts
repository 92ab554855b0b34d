/**
 * Finds and ends the processes of a turn. Ending the harness's process group is not enough: the agents start each tool in a
 * session of its own, and a tool may have left its parent. So a process belongs to a turn when it descends from the harness,
 * or descends from one noted before, or carries the turn's mark in its environment.
 */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  /** When it started, in whatever unit the system gives: with the pid it names one process for ever. */
  readonly started: string;
}

/** Everything that runs and is no zombie. */
export const allProcesses = (): Promise<Process[]> => (process.platform === "linux" ? fromProc() : fromPs());

/** What descends from any of `roots`, themselves not included. */
export function descendantsOf(roots: Iterable<number>, all: readonly Process[]): Process[] {
  const children = Map.groupBy(all, (each) => each.parent);
  const found = new Map<number, Process>();
  const queue = [...roots];
  for (let pid = queue.pop(); pid !== undefined; pid = queue.pop()) {
    for (const child of children.get(pid) ?? []) {
      if (found.has(child.pid)) continue;
      found.set(child.pid, child);
      queue.push(child.pid);
    }
  }
  return [...found.values()];
}

/** What was started with `mark` (`NAME=value`) in its environment. Only Linux tells; elsewhere: nothing. */
export async function markedWith(mark: string, all: readonly Process[]): Promise<Process[]> {
  if (process.platform !== "linux") return [];
  const wanted = Buffer.from(`\0${mark}\0`);
  const marked = await Promise.all(
    all.map(async ({ pid }) => {
      const environment = await readFile(`/proc/${pid}/environ`).catch(() => null);
      return (
        environment !== null && Buffer.concat([Buffer.from("\0"), environment, Buffer.from("\0")]).includes(wanted)
      );
    }),
  );
  return all.filter((each, index) => marked[index] === true && each.pid !== process.pid);
}

export interface StopOptions {
  /** The leader of a process group to end with everything that descends from it; none: only what is marked. */
  readonly leader: number | null;
  readonly mark: string;
  /** How long what was asked to end (SIGTERM) may take, milliseconds. */
  readonly graceMs: number;
}

/**
 * Ends the leader, its group, its descendants and everything marked: SIGTERM to the leader's group first, so that the
 * harness closes its transcript and ends its own tools; then SIGTERM, and at last SIGKILL, to whatever is left. Answers
 * the processes that even then would not go (none, but for one stuck in the kernel).
 */
export async function stopProcesses({ leader, mark, graceMs }: StopOptions): Promise<Process[]> {
  const noted = new Map<string, Process>();
  // An empty group's number may be given to a stranger: from then on it is no sign of belonging.
  let group = leader;
  const look = async (): Promise<Process[]> => {
    const all = await allProcesses();
    const members = all.filter((each) => each.group === group);
    if (members.length === 0) group = null;
    for (const each of [...members, ...(await markedWith(mark, all))]) noted.set(keyOf(each), each);
    const alive = (): Process[] => [...noted.values()].filter(isIn(all));
    const parents = alive().map(({ pid }) => pid);
    for (const each of descendantsOf(parents, all)) noted.set(keyOf(each), each);
    return alive();
  };
  const goneWithin = async (ms: number, isWaitedFor: (one: Process) => boolean): Promise<boolean> => {
    const end = Date.now() + ms;
    for (;;) {
      if (!(await look()).some(isWaitedFor)) return true;
      if (Date.now() >= end) return false;
      await delay(50);
    }
  };

  const first = await look();
  if (leader !== null && first.some((each) => each.group === leader)) {
    signal(-leader, "SIGTERM");
    await goneWithin(graceMs, ({ pid }) => pid === leader);
  }
  for (const { pid } of await look()) signal(pid, "SIGTERM");
  if (await goneWithin(leader === null ? graceMs : 500, () => true)) return [];
  for (let round = 0; round < 100; round += 1) {
    const left = await look();
    if (left.length === 0) return [];
    for (const { pid } of left) signal(pid, "SIGKILL");
    await delay(20);
  }
  return look();
}

const keyOf = ({ pid, started }: Process): string => `${pid}@${started}`;
const isIn = (all: readonly Process[]): ((one: Process) => boolean) => {
  const keys = new Set(all.map(keyOf));
  return (one) => keys.has(keyOf(one));
};

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It is gone already.
  }
}
async function fromProc(): Promise<Process[]> {
  const names = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(names.map((name) => readFile(`/proc/${name}/stat`, "latin1").catch(() => "")));
  return found.flatMap((stat, index) => {
    // The program's name is in brackets and may hold anything, also brackets and spaces.
    const [state, parent, group, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const started = rest[16];
    if (state === undefined || started === undefined || state === "Z" || state === "X") return [];
    return [{ pid: Number(names[index]), parent: Number(parent), group: Number(group), started }];
  });
}

async function fromPs(): Promise<Process[]> {
  const { stdout } = await promisify(execFile)("ps", ["-axo", "pid=,ppid=,pgid=,stat=,lstart="], {
    maxBuffer: 1 << 26,
  });
  return stdout.split("\n").flatMap((line) => {
    const [, pid, parent, group, state, started] = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.+)$/.exec(line) ?? [];
    if (started === undefined || state?.startsWith("Z")) return [];
    return [{ pid: Number(pid), parent: Number(parent), group: Number(group), started: started.trim() }];
  });
}
