/** Makes a session and starts it. */
import {
  defaultBranch,
  Environment,
  HangarError,
  newNonce,
  newSessionId,
  newTurnId,
  SandboxId,
  SessionId,
} from "@hangar/shared";
import type { EnvironmentRecord, NewSession } from "@hangar/shared";
import { identityKey } from "../store/store.ts";
import { expiry, iso } from "./machine.ts";
import type { Change, Deps } from "./ports.ts";
import { hideCredentials } from "./redaction.ts";
import { EMPTY_RECORD } from "./record.ts";
import type { SessionRecord, TurnRecord } from "./record.ts";
import { newTurn } from "./send.ts";

export async function create(deps: Deps, owner: string, input: NewSession): Promise<SessionRecord> {
  refuseOdd(input);
  if (await deps.sessions.find(owner, input.name)) {
    throw new HangarError("name_taken", `A session named "${input.name}" exists: choose another name`);
  }
  const { environment, own } = await environmentFor(deps, owner, input);
  const id = newSessionId();
  const recipient = await makeIdentity(deps, id);
  const record = firstRecord(deps.clock(), { id, owner, input, environment, own, recipient });
  const message = input.message;
  const turn = message === undefined ? null : newTurn({ record, message, id: newTurnId(), now: deps.clock() });
  try {
    return await deps.sessions.create(record, firstChange(deps.clock(), turn));
  } catch (error) {
    if (error instanceof HangarError && error.code === "name_taken") await undo(deps, record);
    throw error;
  }
}

/** It starts at once, with its first message where there is one, behind the turns that it remembers of another session. */
export const firstChange = (now: number, turn: TurnRecord | null, before: readonly TurnRecord[] = []): Change => ({
  events: [
    { type: "state", state: "STARTING", status: null },
    ...(turn ? [{ type: "turn_queued" as const, turn: turn.id, message: hideCredentials(turn.message) }] : []),
  ],
  turns: [...before, ...(turn ? [turn] : [])],
  ...(turn && { enqueue: [turn.id] }),
  dueBy: now,
});

/** What a record says of its first start. */
export const firstStart = (id: string, ttlMinutes: number, now: number) =>
  ({
    state: "STARTING",
    state_since: now,
    phase: "starting",
    generation: 1,
    nonce: newNonce(),
    sandbox_id: `sbx-${id.slice(4)}-g1`,
    sandbox_started_at: iso(now),
    expires_at: expiry(ttlMinutes, now),
    created_at: iso(now),
    last_active_at: iso(now),
    updated_at: iso(now),
  }) satisfies Partial<SessionRecord>;

/** Another session took the name meanwhile: what was made for this one goes. */
export async function undo(deps: Deps, { id, owner, environment, own_environment }: SessionRecord): Promise<void> {
  await deps.store.delete(identityKey(id));
  if (own_environment) await deps.environments.remove(owner, environment).catch(() => undefined);
}

export function refuseIdLike(name: string): void {
  if (SessionId.safeParse(name).success || SandboxId.safeParse(name).success) {
    throw new HangarError("invalid_request", `"${name}" looks like an id: choose another name`);
  }
}

function refuseOdd({ name, environment, secrets }: NewSession): void {
  refuseIdLike(name);
  if (environment !== undefined && secrets !== undefined) {
    throw new HangarError(
      "invalid_request",
      `The secrets of "${environment}" are named in its file, not by the session`,
    );
  }
}

/** The one that is named, or one made on the spot with the session's name. */
async function environmentFor(
  deps: Deps,
  owner: string,
  input: NewSession,
): Promise<{ environment: EnvironmentRecord; own: boolean }> {
  if (input.environment !== undefined) {
    const environment = await deps.environments.get(owner, input.environment);
    if (environment) return { environment, own: false };
    throw new HangarError(
      "environment_not_found",
      `There is no environment "${input.environment}": see \`hangar env list\`, or make it with \`hangar env apply -f FILE\``,
    );
  }
  const { idle_minutes, ttl_minutes } = deps.settings;
  const made = Environment.parse({
    name: input.name,
    repo: input.repo ?? null,
    base_branch: input.base_branch ?? null,
    harness: input.harness ?? "script",
    model: input.model ?? null,
    secrets: input.secrets ?? [],
    idle_minutes,
    ttl_minutes,
  });
  const there = await deps.environments.get(owner, input.name);
  if (there) {
    throw new HangarError(
      "name_taken",
      `An environment named "${input.name}" exists: use it with \`--env ${input.name}\`, or choose another name`,
    );
  }
  return { environment: await deps.environments.put(owner, made, "absent"), own: true };
}

/** The session's own age identity, sealed to the vault, in the store; what is recorded is its public half. */
export async function makeIdentity(deps: Deps, id: string): Promise<string> {
  const { identity, recipient } = await deps.vault.newIdentity();
  await deps.store.create(identityKey(id), await deps.vault.seal(new TextEncoder().encode(identity)));
  return recipient;
}

function firstRecord(
  now: number,
  of: {
    id: string;
    owner: string;
    input: NewSession;
    environment: EnvironmentRecord;
    own: boolean;
    recipient: string;
  },
): SessionRecord {
  const { id, input, environment } = of;
  return {
    ...EMPTY_RECORD,
    id,
    name: input.name,
    title: input.title ?? input.name,
    owner: of.owner,
    environment: environment.name,
    harness: input.harness ?? environment.harness,
    model: input.model ?? environment.model,
    repo: input.repo ?? environment.repo,
    base_branch: input.base_branch ?? environment.base_branch,
    branch: input.branch ?? defaultBranch(input.name),
    ...firstStart(id, environment.ttl_minutes, now),
    idle_minutes: input.idle_minutes ?? environment.idle_minutes,
    ttl_minutes: environment.ttl_minutes,
    job_id: input.job_id ?? null,
    recipient: of.recipient,
    own_environment: of.own,
  };
}
