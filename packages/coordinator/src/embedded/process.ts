/**
 * A process's identity: a pid alone may be given to another process later, a pid with its start time may not.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

export const ProcessIdentity = z.strictObject({
  pid: z.number().int().positive(),
  /** When it started, opaque: on Linux the boot's id and the start in clock ticks since; elsewhere what `ps` says. */
  started: z.string().min(1),
});
export type ProcessIdentity = z.infer<typeof ProcessIdentity>;

/** None: no such process, or only its zombie. */
export function identify(pid: number): ProcessIdentity | null {
  const started = process.platform === "linux" ? startedLinux(pid) : startedPs(pid);
  return started === null ? null : { pid, started };
}

export const isAlive = (of: ProcessIdentity): boolean => identify(of.pid)?.started === of.started;

/** Sends a signal to that very process. False: it is gone. */
export function signal(of: ProcessIdentity, name: NodeJS.Signals): boolean {
  if (!isAlive(of)) return false;
  try {
    return process.kill(of.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** Waits until it is gone. False: it is still there after `ms`. */
export async function gone(of: ProcessIdentity, ms: number): Promise<boolean> {
  const end = performance.now() + ms;
  for (let pause = 2; isAlive(of); pause = Math.min(pause * 2, 100)) {
    if (performance.now() > end) return false;
    await sleep(pause);
  }
  return true;
}

let boot: string | undefined;
function startedLinux(pid: number): string | null {
  try {
    boot ??= readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name in parentheses may hold anything; state and start time are the 1st and 20th fields behind it.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? null : `${boot}:${fields[19]}`;
  } catch {
    return null;
  }
}

function startedPs(pid: number): string | null {
  try {
    const out = execFileSync("ps", ["-o", "stat=,lstart=", "-p", String(pid)], { encoding: "utf8", stdio: "pipe" });
    const [, state, started] = /^\s*(\S+)\s+(.+?)\s*$/.exec(out) ?? [];
    return started === undefined || state?.startsWith("Z") ? null : started;
  } catch {
    return null;
  }
}
