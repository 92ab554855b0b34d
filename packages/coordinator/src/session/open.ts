/** Opens a session: decides that it starts, and, as due work, gets its sandbox made. */
import { AGENT_ENV, HangarError, isErrorCode, newNonce, repoFolder } from "@hangar/shared";
import type { EnvironmentRecord, OpenSession } from "@hangar/shared";
import { takeWarm } from "../warm/claim.ts";
import { agentToken } from "./agent-token.ts";
import { tryHot } from "./hot.ts";
import { isLive, iso, start } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { failStart } from "./start-failed.ts";
import { startWaits } from "./start-waits.ts";
import { update } from "./update.ts";

/** Joins a start that is under way. A session that suspends now starts again when it has. */
export async function open(deps: Deps, id: string, input: OpenSession): Promise<SessionRecord> {
  const now = deps.clock();
  return update(deps, id, async (record) => {
    refuseArchived(record);
    const set = {
      ...(await switchedHarness(deps, record, input)),
      wanted: "up" as const,
      last_active_at: iso(now),
      start_failures: 0,
      start_not_before: 0,
    };
    if (isLive(record.state)) return { guard: {}, change: { set, dueBy: now } };
    return start(record, now, newNonce(), { set });
  });
}

/**
 * Another harness cannot read the conversation so far: it gets an account of it instead. One that was in the session before
 * goes on with its own conversation, where that is still there, and is told the rest.
 */
async function switchedHarness(deps: Deps, record: SessionRecord, input: OpenSession): Promise<Partial<SessionRecord>> {
  const harness = input.harness ?? record.harness;
  if (harness === record.harness) return { model: input.model ?? record.model };
  const own = (await deps.sessions.turns(record.id)).findLast(
    (turn) => turn.harness === harness && turn.started_at !== null,
  );
  return {
    harness,
    model: input.model ?? null,
    harness_session: own?.harness_session ?? null,
    handoff_due: true,
  };
}

export function refuseArchived(record: SessionRecord): void {
  if (record.ending === "remove") {
    throw new HangarError("session_not_found", `The session "${record.name}" is being removed`);
  }
  if (record.state === "ARCHIVED" || record.ending === "archive") {
    throw new HangarError(
      "session_archived",
      `The session "${record.name}" is archived: make a new one with \`hangar session new\``,
    );
  }
}

/** Makes the sandbox of a session that is STARTING. Called again, by any replica, it makes no second one. */
export async function makeSandbox(deps: Deps, id: string): Promise<void> {
  const before = await deps.sessions.get(id);
  if (before?.state !== "STARTING" || before.sandbox_id === null) return;
  const record = await chooseAdoption(deps, before);
  if (record === null || record.sandbox_id === null) return;
  try {
    const environment = await deps.environments.get(record.owner, record.environment);
    const how = await takeWarm(deps, record, environment);
    if (how === "make") await create(deps, record, record.sandbox_id, environment);
    await deps.sessions.change(
      record.id,
      { from: ["STARTING"], generation: record.generation, nonce: record.nonce },
      { set: { sandbox_made: true }, quiet: true },
    );
    await destroyUnwanted(deps, record);
  } catch (error) {
    const code = error instanceof HangarError ? error.code : "internal";
    const line =
      error instanceof HangarError ? error.message : "The sandbox could not be made: see the coordinator's log";
    // A build takes as long as it takes; anything else is worth a line each time.
    if (code !== "image_building") {
      deps.log.warn({ session: id, sandbox: record.sandbox_id, code, error }, "a sandbox could not be made");
    }
    // What helps on a retry is tried again by the next look, until the start's time-out.
    if (error instanceof HangarError && error.retryable) return await startWaits(deps, record, line);
    await failStart(deps, record, isErrorCode(code) ? code : "internal", line);
  }
}

async function create(
  deps: Deps,
  record: SessionRecord,
  id: string,
  environment: EnvironmentRecord | null,
): Promise<void> {
  await deps.driver.create({
    id,
    session: record.id,
    generation: record.generation,
    repoFolder: repoFolder(record.repo),
    remote: record.repo,
    env: {
      [AGENT_ENV.url]: deps.settings.agent_urls.join(" "),
      [AGENT_ENV.token]: agentToken(deps.vault, record),
      [AGENT_ENV.sandbox]: id,
    },
    adopt: record.adopting,
    snapshot: await tryHot(deps, record, environment),
    kubernetes: environment?.kubernetes ?? null,
  });
}

/** The session may have been removed, or its start given up, while the sandbox was made: nobody would ever see to it. */
async function destroyUnwanted(deps: Deps, made: SessionRecord): Promise<void> {
  const present = await deps.sessions.get(made.id);
  if (made.sandbox_id === null || present?.nonce === made.nonce) return;
  if (present?.leftover_sandbox === made.sandbox_id) await deps.driver.stop(made.sandbox_id);
  else if (made.adopting === null || present === null) await deps.driver.destroy(made.sandbox_id);
  else await deps.driver.stop(made.sandbox_id);
}

/** A folder left behind by a sandbox that ended uncleanly holds newer work than any checkpoint: it is taken over. */
async function chooseAdoption(deps: Deps, record: SessionRecord): Promise<SessionRecord | null> {
  const { leftover_sandbox: leftover, adopting, restore_from } = record;
  if (leftover === null || adopting !== null || restore_from !== null) return record;
  if (leftover === record.sandbox_id || !(await deps.driver.canAdopt(leftover))) return record;
  const { generation, nonce } = record;
  const result = await deps.sessions.change(
    record.id,
    { from: ["STARTING"], generation, nonce },
    { set: { adopting: leftover } },
  );
  return result.ok ? result.record : null;
}
