/** Reading on while Redis comes and goes. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";

/** Longest time between two looks when no wake arrives, ms. */
export const REREAD_MS = 5000;

/** Tries again while Redis cannot be reached; none when the signal fires first. */
export async function untilBack<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  for (let wait = 100; !signal.aborted; wait = Math.min(wait * 2, 2000)) {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof HangarError && error.code === "redis_unavailable")) throw error;
      await sleep(wait, undefined, { signal }).catch(() => undefined);
    }
  }
  return undefined;
}
