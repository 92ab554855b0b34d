/** Looks at the warm pools that are due, at this replica, and now and then for warm sandboxes that are nobody's. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError, WarmId } from "@hangar/shared";
import type { Deps } from "../session/ports.ts";
import { lookAtPool, poolOf } from "./pool.ts";

export interface WarmLoop {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Everything that is due now; what the loop does all the time. */
  runDue(): Promise<void>;
}

export function makeWarmLoop(deps: Deps, owner: string): WarmLoop {
  const stopping = new AbortController();
  let running: Promise<void> | null = null;
  let reconciledAt = 0;

  const runDue = async (): Promise<void> => {
    for (;;) {
      const now = deps.clock();
      const until = now + (deps.settings.claim_seconds ?? 30) * 1000;
      const [pool] = await deps.pools.claim(now, until, 1);
      if (pool === undefined) return;
      await deps.pools.settle(pool, until, await lookAtPool(deps, pool));
    }
  };

  const pass = async (): Promise<void> => {
    const idlePass = (deps.settings.idle_pass_seconds ?? 60) * 1000;
    if (deps.clock() - reconciledAt >= idlePass) {
      await endNobodys(deps);
      reconciledAt = deps.clock();
    }
    await runDue();
    const next = (await deps.pools.next()) ?? Number.POSITIVE_INFINITY;
    const wait = Math.min(next - deps.clock(), idlePass, 30_000);
    if (wait > 0) await deps.pools.wait(wait, stopping.signal);
  };

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted;) {
      try {
        await pass();
        failures = 0;
      } catch (error) {
        failures++;
        const away = error instanceof HangarError && error.retryable;
        if (failures === 1 && !away) deps.log.error({ error }, "the warm pools are held up and looked at again");
        await sleep(Math.min(200 * 2 ** failures, 10_000), undefined, { signal: stopping.signal }).catch(
          () => undefined,
        );
      }
    }
  };

  deps.driver.onChange((id) => {
    if (WarmId.safeParse(id).success) void nudge(id).catch(() => undefined);
  });
  const nudge = async (id: string): Promise<void> => {
    const record = await deps.warm.get(id);
    if (record) await deps.pools.nudge(poolOf(record), deps.clock());
  };

  return {
    async start() {
      if (deps.driver.warm === null) return;
      for (const { name, warm_pool } of await deps.environments.list(owner)) {
        if (warm_pool > 0) await deps.pools.nudge(poolOf({ owner, environment: name }), deps.clock());
      }
      for (const warm of await deps.warm.list()) await deps.pools.nudge(poolOf(warm), deps.clock());
      running = run();
    },
    async stop() {
      stopping.abort();
      await running;
    },
    runDue,
  };
}

/** Left by a replica that was killed, or by a Redis that lost its data. Records come before sandboxes, so these have none. */
async function endNobodys(deps: Deps): Promise<void> {
  for (const { id } of (await deps.driver.warm?.list()) ?? []) {
    if ((await deps.warm.get(id)) === null) await deps.driver.warm?.destroy(id);
  }
}
