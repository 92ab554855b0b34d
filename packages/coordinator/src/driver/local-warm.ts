/**
 * Local sandboxes that wait for a session: processes like any other, whose folder holds `warm.json` until a claim writes
 * `run.json` beside it, which makes it a session's in one step. Only with bubblewrap, since without it a sandbox's paths
 * hold its session's id.
 */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { gone, signal } from "../embedded/process.ts";
import { NO_RESTARTS } from "./driver.ts";
import type { WarmDriver, WarmSpec, WarmStatus } from "./driver.ts";
import { isRunning, readRun, readWarm, type Run, type Warm, writeRun } from "./local-sandbox.ts";

export interface LocalWarmDeps {
  readonly sandboxes: string;
  readonly withSession: <T>(session: string, work: () => Promise<T>) => Promise<T>;
  readonly start: (spec: WarmSpec, folder: string) => Promise<void>;
  readonly remove: (folder: string) => void;
  /** It is this driver's own from now on, and its end is told. */
  readonly adopt: (run: Run) => void;
}

export function localWarm(deps: LocalWarmDeps): WarmDriver {
  const folderOf = (id: string): string => join(deps.sandboxes, id);
  const statusOf = (warm: Warm): WarmStatus => ({
    id: warm.id,
    state: isRunning(warm) ? "running" : "left",
    detail: null,
    start: null,
    restarts: NO_RESTARTS,
  });
  const find = (id: string): Warm | null => readWarm(folderOf(id));

  return {
    create: (spec) =>
      deps.withSession(spec.id, async () => {
        if (!find(spec.id)) await deps.start(spec, folderOf(spec.id));
      }),
    list: async () =>
      readdirSync(deps.sandboxes).flatMap((name) => {
        const warm = name.startsWith("wrm-") ? find(name) : null;
        return warm ? [statusOf(warm)] : [];
      }),
    status: async (id) => {
      const warm = find(id);
      return warm && statusOf(warm);
    },
    claim: (id, as) =>
      deps.withSession(id, async () => {
        const folder = folderOf(id);
        if (readRun(folder)?.id === as.id) return true;
        const warm = find(id);
        if (!warm || !isRunning(warm)) return false;
        const { main, outer } = warm;
        const { session, generation } = as;
        const run: Run = { version: 1, id: as.id, session, generation, mode: "namespace", adopted: null, main, outer };
        writeRun(folder, run);
        deps.adopt(run);
        return true;
      }),
    destroy: (id) =>
      deps.withSession(id, async () => {
        const folder = folderOf(id);
        const warm = find(id);
        if (!warm) {
          // A start that was cut off before it was written down.
          if (existsSync(folder) && readRun(folder) === null) deps.remove(folder);
          return;
        }
        signal(warm.main, "SIGKILL");
        await gone(warm.main, 20_000);
        if (warm.outer !== null) await gone(warm.outer, 20_000);
        deps.remove(folder);
      }),
  };
}
