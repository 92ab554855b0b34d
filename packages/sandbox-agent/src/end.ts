/**
 * `hangar-agent end`: tells the daemon of this sandbox to end, as SIGTERM does, and returns when it has: its last checkpoint is
 * committed, or its time is over. For a preStop hook, where an image's own init or stop signal would keep SIGTERM from it. The
 * daemon ends what runs in its sandbox, and so may end this too: by then it was told.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pause } from "./backoff.ts";
import { stateFolder } from "./config.ts";
import { replaceFile } from "./durable.ts";

const pidFile = (state: string): string => join(state, "daemon.pid");

export const writePid = (state: string): void => replaceFile(pidFile(state), String(process.pid));

export async function end(_argv: readonly string[]): Promise<number> {
  const state = stateFolder(process.env);
  const pid = readPid(state);
  if (pid === null || !signal(pid, "SIGTERM")) return 0;
  while (signal(pid, 0)) await pause(50);
  return 0;
}

function readPid(state: string): number | null {
  try {
    const pid = Number(readFileSync(pidFile(state), "utf8"));
    return Number.isInteger(pid) && pid > 1 ? pid : null;
  } catch {
    return null;
  }
}

/** Whether the process is there. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}
