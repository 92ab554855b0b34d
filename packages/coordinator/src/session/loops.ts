/** Does what is due, at this replica: claims sessions, looks at them, waits for the next. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError, SandboxId } from "@hangar/shared";
import type { SandboxStatus } from "../driver/driver.ts";
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
  let passedAt = deps.clock();

  const inFlight = new Map<string, Promise<void>>();

  const again = new Set<string>();
  const lookUntilQuiet = async (id: string, until: number): Promise<void> => {
    do await lookAt(deps, id, until, reachableSince);
    while (again.delete(id));
    inFlight.delete(id);
  };

  /** Starts looks at what is due, as many as there is room for; a slow one holds up none of the others. */
  const startDue = async (): Promise<number> => {
    const room = AT_ONCE - inFlight.size;
    if (room <= 0) return 0;
    const now = deps.clock();
    const until = now + (deps.settings.claim_seconds ?? 30) * 1000;
    const claimed = await deps.due.claim(now, until, room);
    for (const id of claimed) {
      // Something happened to it while it is looked at here, or its claim ran out: it is looked at again afterwards.
      if (inFlight.has(id)) again.add(id);
      else inFlight.set(id, lookUntilQuiet(id, until));
    }
    return claimed.length;
  };

  const runDue = async (): Promise<number> => {
    for (let looked = 0; ;) {
      const started = await startDue();
      looked += started;
      if (started === 0 && inFlight.size === 0) return looked;
      if (inFlight.size > 0) await Promise.race(inFlight.values());
    }
  };

  const pass = async (): Promise<void> => {
    if (!(await deps.sessions.isFilled())) await fill(deps);
    const idlePass = (deps.settings.idle_pass_seconds ?? 60) * 1000;
    noticeSleep(idlePass);
    if (deps.clock() - reconciledAt >= idlePass) {
      await reconcile(deps);
      reconciledAt = deps.clock();
    }
    while ((await startDue()) > 0);
    const next = (await deps.due.next()) ?? Number.POSITIVE_INFINITY;
    const wait = Math.min(next - deps.clock(), idlePass, 30_000);
    if (inFlight.size >= AT_ONCE) await Promise.race(inFlight.values());
    else if (wait > 0) await deps.due.wait(wait, stopping.signal);
  };

  /** A machine that slept wakes with clocks hours ahead: the daemons' silence was its own. */
  const noticeSleep = (idlePass: number): void => {
    const now = deps.clock();
    if (now - passedAt > Math.min(idlePass, 30_000) + 30_000) reachableSince = now;
    passedAt = now;
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
    await Promise.allSettled(inFlight.values());
  };

  deps.driver.onChange((sandbox) => {
    if (!SandboxId.safeParse(sandbox).success) return;
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

/** Never rejects: what failed is due again when its claim ends. */
async function lookAt(deps: Deps, id: string, until: number, reachableSince: number): Promise<void> {
  try {
    const next = await look(deps, id, reachableSince);
    await deps.due.settle(id, until, next);
  } catch (error) {
    const away =
      error instanceof HangarError && (error.code === "redis_unavailable" || error.code === "cluster_unavailable");
    if (!away) deps.log.error({ session: id, error }, "a look at a session failed and is tried again");
  }
}

/** Sandboxes that run although no session owns them: stopped, their folders left, since they may hold work. */
async function reconcile(deps: Deps): Promise<void> {
  for (const { id, session, generation, state } of await present(deps)) {
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

/** While the cluster is away nothing is reconciled, and everything else goes on. */
async function present(deps: Deps): Promise<SandboxStatus[]> {
  try {
    return await deps.driver.list();
  } catch (error) {
    if (!(error instanceof HangarError && error.code === "cluster_unavailable")) throw error;
    deps.log.warn({ error }, "what runs is not known, and is looked at again");
    return [];
  }
}
