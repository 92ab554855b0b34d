/**
 * A start takes a warm sandbox where there is one that fits. Claimed in Redis first; then the session's record says, once for
 * this start, which it is or that it is none, so that no replica makes another beside it; then the driver makes it the
 * session's, and its daemon is told.
 */
import type { EnvironmentRecord } from "@hangar/shared";
import type { Deps, WarmRecord } from "../session/ports.ts";
import { usable } from "../session/hot.ts";
import type { SessionRecord } from "../session/record.ts";
import { update } from "../session/update.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { poolOf } from "./pool.ts";

/** What a record says of a start whose sandbox is made for it. */
export const MADE_FOR_IT = "none";

/** `make`: the caller makes the sandbox. `taken`: there is nothing more to do. Called again for a start, it goes on. */
export async function takeWarm(
  deps: Deps,
  record: SessionRecord,
  environment: EnvironmentRecord | null,
): Promise<"make" | "taken"> {
  const decided = await decide(deps, record, environment);
  const { warm, sandbox_id: sandbox, generation } = decided;
  if (warm === null || warm === MADE_FOR_IT || sandbox === null || generation !== record.generation) {
    return warm === MADE_FOR_IT ? "make" : "taken";
  }
  const claimed = await deps.warm.get(warm);
  // Its session has been heard from, or it is gone: the look at the start says which.
  if (claimed?.claimed_by !== sandbox) return "taken";
  if (await deps.driver.warm?.claim(warm, { id: sandbox, session: record.id, generation })) {
    await deps.warm.change(claimed, { handed: true });
  } else {
    // The next look at the start finds no sandbox, and another start goes on without it.
    deps.log.warn({ session: record.id, warm }, "a warm sandbox was gone when it was claimed");
    await deps.warm.change(claimed, null);
  }
  await deps.pools.nudge(poolOf(claimed), deps.clock());
  return "taken";
}

async function decide(
  deps: Deps,
  record: SessionRecord,
  environment: EnvironmentRecord | null,
): Promise<SessionRecord> {
  if ((record.warm ?? null) !== null) return record;
  const claimed = environment && (await claim(deps, record, environment));
  const decided = await update(deps, record.id, (present) => {
    const isOpen = present.state === "STARTING" && present.nonce === record.nonce && (present.warm ?? null) === null;
    return isOpen ? { guard: { rev: present.rev }, change: { set: { warm: claimed?.id ?? MADE_FOR_IT } } } : null;
  });
  if (claimed && decided.warm !== claimed.id) await deps.warm.change(claimed, { claimed_by: null });
  return decided;
}

async function claim(deps: Deps, record: SessionRecord, environment: EnvironmentRecord): Promise<WarmRecord | null> {
  const { sandbox_id: sandbox } = record;
  const fits = record.repo === environment.repo && record.base_branch === environment.base_branch;
  if (usable(deps, record, environment) !== null) return null;
  if (deps.driver.warm === null || sandbox === null || record.adopting !== null || !fits) return null;
  if (environment.warm_pool === 0) return null;
  return deps.warm.claim({
    owner: record.owner,
    environment: environment.name,
    fingerprint: fingerprintOf(deps.driver, environment),
    sandbox,
    heardSince: deps.clock() - deps.settings.heartbeat_seconds * 2500,
  });
}
