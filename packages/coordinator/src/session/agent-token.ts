/**
 * A sandbox's token: `hat1.<session>.<generation>.<nonce>.<mac>`. The MAC says that Hangar made it; the session's record says
 * whether its generation and nonce are still the present ones.
 */
import { HangarError, sandboxIdOf } from "@hangar/shared";
import type { Deps, Vault } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import type { AgentIdentity } from "./faces.ts";

export function agentToken(vault: Vault, record: Pick<SessionRecord, "id" | "generation" | "nonce">): string {
  const said = `hat1.${record.id}.${record.generation}.${record.nonce}`;
  return `${said}.${vault.mac("agent-token", said)}`;
}

const TOKEN = /^(hat1\.(ses-[0-9a-f]{8})\.([0-9]{1,9})\.([0-9a-f]{32}))\.([0-9a-f]{64})$/;

/** `unauthorized`, `stale_generation`. */
export async function authenticate(deps: Deps, token: string): Promise<AgentIdentity> {
  const agent = parseToken(deps.vault, token);
  if (agent === null) throw new HangarError("unauthorized", "That is not a sandbox's token");
  await present(deps, agent);
  return agent;
}

/** Whose it was when Hangar made it; none: Hangar did not. */
export function parseToken(vault: Vault, token: string): AgentIdentity | null {
  const [, said, session, generation, nonce, mac] = TOKEN.exec(token) ?? [];
  if (!said || !session || !generation || !nonce || !mac || !vault.verify("agent-token", said, mac)) return null;
  return { session, sandbox: sandboxIdOf(session, Number(generation)), generation: Number(generation), nonce };
}

/** The session's record, while the sandbox owns it; `stale_generation` after that. */
export async function present(deps: Deps, agent: AgentIdentity): Promise<SessionRecord> {
  const record = await deps.sessions.get(agent.session);
  if (record === null) throw await stale(deps, agent);
  if (record.generation !== agent.generation || record.nonce !== agent.nonce) throw await stale(deps, agent);
  return record;
}

/** Redis without its data knows no session, which must not make sandboxes end themselves while it is filled again. */
export async function stale(deps: Deps, agent: AgentIdentity): Promise<HangarError> {
  if (!(await deps.sessions.isFilled())) {
    return new HangarError(
      "redis_unavailable",
      "Redis has lost its data and is being filled from the store; try again",
    );
  }
  return new HangarError("stale_generation", `The sandbox ${agent.sandbox} does not own its session any more`);
}
