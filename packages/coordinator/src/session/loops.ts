/** Does what is due, at this replica: claims sessions, looks at them, waits for the next. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { isLive } from "./machine.ts";
import { look } from "./look.ts";
import { sessionOf } from "./lookup.ts";
import type { Deps } from "./ports.ts";
import { recover } from "./recover.ts";
import type { Loops } from "./faces.ts";

/** Sessions looked at side by side; a slow one delays none of the others. */
const AT_ONCE = 16;

export function makeLoops(deps: Deps): Loops {
  const stopping = new AbortController();
  let running: Promise<void> | null = null;
  let reachableSince = deps.clock();
  let reconciledAt = 0;

  const runDue = async (): Promise<number> => {
    let looked = 0;
    for (;;) {
      const until = deps.clock() + (deps.settings.claim_seconds ?? 30) * 1000;
      const claimed = await deps.due.claim(deps.clock(), until, AT_ONCE);
      if (claimed.length === 0) return looked;
      await Promise.all(claimed.map((id) => lookAt(deps, id, until, reachableSince)));
      looked += claimed.length;
      if (stopping.signal.aborted) return looked;
    }
  };

  const pass = async (): Promise<void> => {
    if (!(await deps.sessions.isFilled())) await fill(deps);
    const idlePass = (deps.settings.idle_pass_seconds ?? 60) * 1000;
    if (deps.clock() - reconciledAt >= idlePass) {
      await reconcile(deps);
      reconciledAt = deps.clock();
    }
    await runDue();
    const next = (await deps.due.next()) ?? Number.POSITIVE_INFINITY;
    const wait = Math.min(next - deps.clock(), idlePass, 30_000);
    if (wait > 0) await deps.due.wait(wait, stopping.signal);
  };

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted;) {
      try {
        await pass();
        if (failures > 0) deps.log.info({ failures }, "the loops go on");
        failures = 0;
      } catch (error) {
        failures++;
        if (failures === 1) deps.log.error({ error }, "the loops are held up and try again");
        await sleep(Math.min(100 * 2 ** failures, 5000), undefined, { signal: stopping.signal }).catch(() => undefined);
        // Nobody could be heard meanwhile: silence until now says nothing about a sandbox.
        reachableSince = deps.clock();
      }
    }
  };

  deps.driver.onExit((sandbox) => {
    deps.due.nudge(sessionOf(sandbox), deps.clock()).catch(() => undefined);
  });

  return {
    async start() {
      await fill(deps);
      reachableSince = deps.clock();
      running = run();
    },
    async stop() {
      stopping.abort();
      await running;
    },
    runDue,
  };
}

async function fill(deps: Deps): Promise<void> {
  await recover(deps);
  for (const id of await deps.sessions.ids()) {
    const record = await deps.sessions.get(id);
    if (record && (isLive(record.state) || record.ending !== null || record.sandbox_id !== null)) {
      await deps.due.nudge(id, deps.clock());
    }
  }
  await deps.sessions.setFilled();
}

async function lookAt(deps: Deps, id: string, until: number, reachableSince: number): Promise<void> {
  try {
    const next = await look(deps, id, reachableSince);
    await deps.due.settle(id, until, next);
  } catch (error) {
    // The claim's end makes it due again.
    if (error instanceof HangarError && error.code === "redis_unavailable") throw error;
    deps.log.error({ session: id, error }, "a look at a session failed and is tried again");
  }
}

/** Sandboxes that run although no session owns them: stopped, their folders left, since they may hold work. */
async function reconcile(deps: Deps): Promise<void> {
  for (const { id, session, generation, state } of await deps.driver.list()) {
    if (state !== "running") continue;
    const record = await deps.sessions.get(session);
    if (record === null) {
      deps.log.warn({ sandbox: id, session }, "a sandbox runs for a session that is not known");
    } else if (record.generation > generation || (record.sandbox_id === null && !isLive(record.state))) {
      deps.log.warn({ sandbox: id, session }, "a sandbox that owns its session no more is stopped");
      await deps.driver.stop(id);
    }
  }
}
