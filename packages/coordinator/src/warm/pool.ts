/**
 * One look at one environment's warm pool: what does not fit any more is retired, what is missing is made, and a session
 * that has claimed one is left alone. Every step may be done twice or cut off; records come before sandboxes and go before
 * them, so that what has no record is nobody's.
 */
import { AGENT_ENV, HangarError, newWarmId, repoFolder, START_WORDS, startText } from "@hangar/shared";
import type { EnvironmentRecord, WarmPoolStatus } from "@hangar/shared";
import type { Deps, WarmRecord } from "../session/ports.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { hoursAt } from "./hours.ts";
import { warmToken } from "./warm-token.ts";

const MINUTE = 60_000;
/** How long one that failed is not tried again: for a reason of its own, and for one that passes. */
const RETRY_MS = 5 * MINUTE;
const RETRY_SOON_MS = 30_000;
/** How often an image that is being built is asked for. */
const BUILD_LOOK_MS = 5000;

type Listed = WarmRecord & { readonly seen_at: number };

export const poolOf = ({ owner, environment }: Pick<WarmRecord, "owner" | "environment">): string =>
  `${owner}/${environment}`;
export const fromPool = (pool: string): { owner: string; name: string } => {
  const slash = pool.lastIndexOf("/");
  return { owner: pool.slice(0, slash), name: pool.slice(slash + 1) };
};

/** Answers when to look next; none: when something happens. */
export async function lookAtPool(deps: Deps, pool: string): Promise<number | null> {
  const { owner, name } = fromPool(pool);
  const environment = await deps.environments.get(owner, name);
  const now = deps.clock();
  const { wanted, changesAt } = wantedOf(deps, environment, now);
  const fingerprint = environment && fingerprintOf(deps.driver, environment);
  const standing: WarmRecord[] = [];
  for (const warm of await listed(deps, pool)) {
    if (warm.claimed_by !== null) await settleClaimed(deps, warm);
    else if (warm.fingerprint !== fingerprint) await retire(deps, warm, "its environment has changed");
    else {
      const kept = await checked(deps, warm, environment);
      if (kept) standing.push(kept);
    }
  }
  for (const warm of bestFirst(standing).slice(wanted)) await retire(deps, warm, "it is not wanted now");
  if (environment) {
    while (standing.length < wanted && !standing.some(({ unbuilt }) => unbuilt)) {
      standing.push(await make(deps, owner, environment, fingerprint ?? ""));
    }
  }
  return nextLook(deps, await listed(deps, pool), wanted, changesAt);
}

function wantedOf(deps: Deps, environment: EnvironmentRecord | null, now: number) {
  const size = environment === null || deps.driver.warm === null ? 0 : environment.warm_pool;
  if (size === 0) return { wanted: 0, changesAt: null };
  const { open, changesAt } = hoursAt(environment?.warm_pool_hours ?? null, now);
  return { wanted: open ? size : 0, changesAt };
}

async function listed(deps: Deps, pool: string): Promise<Listed[]> {
  return (await deps.warm.list()).filter((warm) => poolOf(warm) === pool);
}

const bestFirst = (all: readonly WarmRecord[]): WarmRecord[] =>
  all.toSorted((a, b) => Number(b.state === "ready") - Number(a.state === "ready") || a.created_at - b.created_at);

/** The record as it stands; none: it is retired. */
async function checked(deps: Deps, warm: Listed, environment: EnvironmentRecord | null): Promise<WarmRecord | null> {
  const { driver, settings } = deps;
  const now = deps.clock();
  if (warm.state === "failed") {
    await driver.warm?.destroy(warm.id);
    return now < warm.retry_at ? warm : retire(deps, warm, "it failed and is tried again");
  }
  if (warm.unbuilt && environment) return now < warm.retry_at ? warm : begin(deps, warm, environment);
  if (warm.state === "stale") return retire(deps, warm, warm.detail ?? "its clone cannot follow the remote");
  const there = (await driver.warm?.status(warm.id)) ?? null;
  if (there?.state !== "running") return retire(deps, warm, there?.detail ?? "its sandbox is gone");
  if (there.restarts.count > 0) return fail(deps, warm, `its daemon did not stay up (${there.restarts.why})`);
  if (warm.seen_at === 0) {
    if (there.start !== null && "failed" in there.start) return fail(deps, warm, there.start.failed);
    if (there.start !== null && there.start.waits !== warm.detail) {
      await deps.warm.change(warm, { detail: there.start.waits });
    }
  } else if (now - warm.seen_at >= settings.lease_seconds * 3000) {
    return retire(deps, warm, "it was not heard of");
  }
  const hung = warm.state === "busy" && now - warm.changed_at >= settings.start_timeout_minutes * MINUTE;
  if (hung) return fail(deps, warm, `not ready in time, and hung in: ${startText("starting", warm.detail)}`);
  return warm;
}

async function fail(
  deps: Deps,
  warm: WarmRecord,
  detail: string,
  { retryMs = RETRY_MS, unbuilt = false } = {},
): Promise<WarmRecord> {
  const now = deps.clock();
  const set = { state: "failed", detail, changed_at: now, retry_at: now + retryMs, unbuilt } as const;
  deps.log.warn({ warm: warm.id, environment: warm.environment, detail }, "a warm sandbox failed");
  if (await deps.warm.change(warm, set)) await deps.driver.warm?.destroy(warm.id);
  return { ...warm, ...set };
}

/** Not one that was claimed in this moment. */
async function retire(deps: Deps, warm: WarmRecord, why: string): Promise<null> {
  if (!(await deps.warm.change(warm, null))) return null;
  deps.log.info({ warm: warm.id, environment: warm.environment, why }, "a warm sandbox is retired");
  await deps.driver.warm?.destroy(warm.id);
  return null;
}

/** Its session has it, or wants it no more. */
async function settleClaimed(deps: Deps, warm: WarmRecord): Promise<void> {
  const session = await deps.sessions.get(`ses-${warm.claimed_by?.slice(4, 12)}`);
  const isStarting = session?.sandbox_id === warm.claimed_by && session?.state === "STARTING";
  if (isStarting && session.seen_at === 0) return;
  await retire(deps, warm, "it was claimed");
}

async function make(
  deps: Deps,
  owner: string,
  environment: EnvironmentRecord,
  fingerprint: string,
): Promise<WarmRecord> {
  const now = deps.clock();
  const record: WarmRecord = {
    id: newWarmId(),
    rev: 0,
    owner,
    environment: environment.name,
    fingerprint,
    state: "busy",
    detail: START_WORDS.starting,
    created_at: now,
    changed_at: now,
    retry_at: 0,
    unbuilt: false,
    claimed_by: null,
    handed: false,
  };
  await deps.warm.add(record);
  return begin(deps, record, environment);
}

/** May be repeated. No sandbox is made of an image that is not there yet. */
async function begin(deps: Deps, record: WarmRecord, environment: EnvironmentRecord): Promise<WarmRecord> {
  try {
    await deps.driver.warm?.create({
      id: record.id,
      repoFolder: repoFolder(environment.repo),
      remote: environment.repo,
      env: {
        [AGENT_ENV.url]: deps.settings.agent_urls.join(" "),
        [AGENT_ENV.token]: warmToken(deps.vault, record.id),
        [AGENT_ENV.sandbox]: record.id,
      },
      kubernetes: environment.kubernetes,
    });
  } catch (error) {
    const isKnown = error instanceof HangarError;
    if (isKnown && error.code === "image_building") {
      return changed(deps, record, { detail: error.message, unbuilt: true, retry_at: deps.clock() + BUILD_LOOK_MS });
    }
    if (!isKnown) deps.log.error({ warm: record.id, error }, "a warm sandbox could not be made");
    const line = isKnown ? error.message : "it could not be made: see the coordinator's log";
    const retryMs = isKnown && error.retryable ? RETRY_SOON_MS : RETRY_MS;
    return fail(deps, record, line, { retryMs, unbuilt: isKnown && error.code === "image_build_failed" });
  }
  if (!record.unbuilt) return record;
  // Its daemon may have said more by now: then this changes nothing.
  return changed(deps, record, { detail: START_WORDS.starting, unbuilt: false, changed_at: deps.clock() });
}

async function changed(deps: Deps, record: WarmRecord, set: Partial<WarmRecord>): Promise<WarmRecord> {
  await deps.warm.change(record, set);
  return { ...record, ...set };
}

function nextLook(deps: Deps, all: readonly Listed[], wanted: number, changesAt: number | null): number | null {
  const now = deps.clock();
  const pass = (deps.settings.idle_pass_seconds ?? 60) * 1000;
  const times = all.map((warm) => {
    if (warm.claimed_by !== null || warm.state === "busy") return now + Math.min(pass, 5000);
    return warm.state === "failed" ? Math.max(now + 1000, warm.retry_at) : now + pass;
  });
  if (wanted > all.length) times.push(now + pass);
  if (changesAt !== null) times.push(changesAt);
  return times.length === 0 ? null : Math.min(...times);
}

/** For people. */
export async function poolStatus(deps: Deps, owner: string, environment: EnvironmentRecord): Promise<WarmPoolStatus> {
  const all = (await listed(deps, poolOf({ owner, environment: environment.name }))).filter(
    ({ claimed_by }) => claimed_by === null,
  );
  const { wanted, changesAt } = wantedOf(deps, environment, deps.clock());
  const cannot = `The ${deps.driver.name} driver keeps no warm sandboxes here`;
  const failed = all.find(({ state }) => state === "failed")?.detail ?? null;
  const starting = all.filter(({ state }) => state === "busy").toSorted((a, b) => a.created_at - b.created_at);
  return {
    wanted,
    ready: all.filter(({ state }) => state === "ready").length,
    starting: starting.length,
    phase: starting[0]?.detail ?? null,
    changes_at: changesAt === null ? null : new Date(changesAt).toISOString(),
    problem: environment.warm_pool > 0 && deps.driver.warm === null ? cannot : failed,
  };
}
