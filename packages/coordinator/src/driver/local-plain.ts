/**
 * Finding every process of a sandbox that has no namespace of its own: those that carry its mark in their environment
 * (inherited by whatever it starts), the daemon's process group and session, and the descendants of all these.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive, type ProcessIdentity } from "../embedded/process.ts";

/** The mark: this variable, with the sandbox's own folder. */
export const MARK = "HANGAR_SANDBOX_FOLDER";

/** Kills until nothing is left. False: something does not die. */
export async function endPlain(folder: string, main: ProcessIdentity): Promise<boolean> {
  for (let round = 0; round < 200; round++) {
    const pids = processesOf(folder, main);
    if (pids.length === 0) return true;
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // it ended meanwhile
      }
    }
    await sleep(Math.min(5 * (round + 1), 100));
  }
  return false;
}

export function processesOf(folder: string, main: ProcessIdentity): number[] {
  const table = process.platform === "linux" ? linuxTable() : psTable();
  const mark = `${MARK}=${folder}`;
  const groupIsOurs = isAlive(main);
  const ours = new Set<number>();
  for (const one of table) {
    if (one.environment().split("\0").includes(mark)) ours.add(one.pid);
    if (groupIsOurs && (one.group === main.pid || one.session === main.pid)) ours.add(one.pid);
  }
  for (let before = -1; before !== ours.size;) {
    before = ours.size;
    for (const one of table) if (ours.has(one.parent)) ours.add(one.pid);
  }
  ours.delete(process.pid);
  return [...ours];
}

interface Entry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** `NAME=value`, separated by NUL. Empty: not ours to read. */
  environment(): string;
}

function linuxTable(): Entry[] {
  const entries: Entry[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = read(`/proc/${name}/stat`);
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (stat === "" || fields[0] === "Z" || fields[0] === "X") continue;
    const [, parent, group, session] = fields.map(Number);
    entries.push({
      pid: Number(name),
      parent: parent ?? 0,
      group: group ?? 0,
      session: session ?? 0,
      environment: () => read(`/proc/${name}/environ`),
    });
  }
  return entries;
}

function psTable(): Entry[] {
  const environments = new Map<number, string>();
  for (const line of ps(["-axEww", "-o", "pid=,command="])) {
    const [, pid, rest] = /^\s*(\d+) (.*)$/.exec(line) ?? [];
    if (pid !== undefined && rest !== undefined) environments.set(Number(pid), rest.replaceAll(" ", "\0"));
  }
  return ps(["-axo", "pid=,ppid=,pgid=,stat="]).flatMap((line) => {
    const [pid, parent, group, state] = line.trim().split(/\s+/);
    if (!pid || state?.startsWith("Z")) return [];
    return {
      pid: Number(pid),
      parent: Number(parent),
      group: Number(group),
      session: 0,
      environment: () => environments.get(Number(pid)) ?? "",
    };
  });
}

const ps = (args: string[]): string[] =>
  execFileSync("ps", args, {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
    stdio: ["ignore", "pipe", "ignore"],
  }).split("\n");

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
