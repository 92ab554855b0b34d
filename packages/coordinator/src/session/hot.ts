/**
 * Hot resume: beside the checkpoint, which is what counts, a suspend may keep the sandbox's memory, and the next start may go
 * on with it. Everything here is best effort: what goes wrong costs a start from the checkpoint.
 */
import { HangarError } from "@hangar/shared";
import type { EnvironmentRecord, Successor } from "@hangar/shared";
import { fingerprintOf } from "../warm/fingerprint.ts";
import { agentToken, parseToken, stale } from "./agent-token.ts";
import { MINUTE } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { HotSnapshot, SessionRecord } from "./record.ts";
import { update } from "./update.ts";

/** From the begin of a suspend on. */
const TAKE_MS = 3 * MINUTE;
/** A restore that is not heard of for this long has not come about. */
export const RESTORE_MS = 2 * MINUTE;

export const isHot = (deps: Deps, environment: EnvironmentRecord | null): boolean =>
  deps.driver.snapshots !== null && environment?.kubernetes?.hot_resume === true;

/** Of a sandbox that is frozen and whose checkpoint is committed. `wait`: it is being taken; null: there is none. */
export async function takeSnapshot(deps: Deps, record: SessionRecord): Promise<HotSnapshot | "wait" | null> {
  const environment = await deps.environments.get(record.owner, record.environment);
  const { sandbox_id: sandbox, generation, nonce, ending } = record;
  if (!isHot(deps, environment) || environment === null || sandbox === null || ending !== null) return null;
  const taken = (await deps.driver.snapshots?.take(sandbox).catch((error: unknown) => {
    return { failed: error instanceof Error ? error.message : String(error) };
  })) ?? { failed: "the driver takes none" };
  if (taken === "pending" && deps.clock() - record.state_since < TAKE_MS) return "wait";
  if (taken === "pending" || "failed" in taken) {
    const why = taken === "pending" ? "it took too long" : taken.failed;
    deps.log.warn({ session: record.id, sandbox, why }, "no snapshot of the memory: the checkpoint is what is resumed");
    return null;
  }
  const fingerprint = fingerprintOf(deps.driver, environment);
  return { snapshot: taken.ready, sandbox, generation, nonce, fingerprint, tried: null };
}

/** What a start may try: none where its sandbox would not be the same, or where it is to be another state. */
export function usable(deps: Deps, record: SessionRecord, environment: EnvironmentRecord | null): HotSnapshot | null {
  const hot = record.hot ?? null;
  if (hot === null || environment === null || !isHot(deps, environment) || record.restore_from !== null) return null;
  const isOpen = hot.tried === null || hot.tried === record.generation;
  return isOpen && hot.fingerprint === fingerprintOf(deps.driver, environment) ? hot : null;
}

/** That this start tries it is on record before its sandbox is made; another start does not. */
export async function tryHot(
  deps: Deps,
  record: SessionRecord,
  environment: EnvironmentRecord | null,
): Promise<string | null> {
  const hot = usable(deps, record, environment);
  if (hot === null) return null;
  const tried = await update(deps, record.id, (present) =>
    present.nonce === record.nonce && present.hot?.tried === null
      ? { guard: { rev: present.rev }, change: { set: { hot: { ...hot, tried: present.generation } } } }
      : null,
  );
  return tried.hot?.tried === record.generation ? hot.snapshot : null;
}

/** It was tried, or cannot be: it holds secrets and goes. */
export async function dropHot(deps: Deps, record: SessionRecord): Promise<SessionRecord> {
  const hot = record.hot ?? null;
  if (hot === null) return record;
  await deps.driver.snapshots?.remove(hot.snapshot);
  const result = await deps.sessions.change(record.id, { rev: record.rev }, { set: { hot: null } });
  return result.ok ? result.record : ((await deps.sessions.get(record.id)) ?? record);
}

/** For a daemon that woke with the token of the sandbox that was suspended. `unauthorized`, `stale_generation`. */
export async function successor(deps: Deps, token: string): Promise<Successor> {
  const before = parseToken(deps.vault, token);
  if (before === null) throw new HangarError("unauthorized", "That is not a sandbox's token");
  const after = await update(deps, before.session, (record) =>
    isRestored(record, before) && record.adopting === null
      ? { guard: { rev: record.rev, from: ["STARTING"] }, change: { set: { adopting: before.sandbox } } }
      : null,
  );
  if (!isRestored(after, before) || after.sandbox_id === null) throw await stale(deps, before);
  return { sandbox: after.sandbox_id, token: agentToken(deps.vault, after) };
}

/** Only where nothing else runs for the present start: a pod that began from nothing has said so by then. */
const isRestored = (record: SessionRecord, { generation, nonce }: { generation: number; nonce: string }): boolean =>
  record.state === "STARTING" &&
  record.seen_at === 0 &&
  record.hot?.tried === record.generation &&
  record.hot.generation === generation &&
  record.hot.nonce === nonce;
