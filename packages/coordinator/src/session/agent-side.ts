/** The daemon's side: its link and its HTTP calls, assembled from the use cases. */
import { CheckpointOutcome } from "@hangar/shared";
import type { Redactor } from "@hangar/shared";
import { takeEvent } from "./agent-event.ts";
import { authenticate, present, stale } from "./agent-token.ts";
import { begin, downloads, renew } from "./begin.ts";
import { boot, gitCredential } from "./boot.ts";
import { commit } from "./commit.ts";
import { successor } from "./hot.ts";
import { awakeBy, expiry, iso } from "./machine.ts";
import type { Change, CommandResult, Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import type { AgentIdentity, AgentSide } from "./faces.ts";
import { refused, turnOfCommand } from "./turn.ts";
import { update } from "./update.ts";

export function makeAgentSide(deps: Deps): AgentSide {
  return {
    authenticate: (token) => authenticate(deps, token),
    boot: (agent) => boot(deps, agent),
    successor: (token) => successor(deps, token),
    begin: (agent, input) => begin(deps, agent, input),
    renew: (agent, checkpoint, input) => renew(deps, agent, checkpoint, input),
    async commit(agent, checkpoint, input) {
      const redact = await redactorOf(deps, agent);
      return commit(deps, agent, checkpoint, { ...input, warnings: input.warnings.map(redact) });
    },
    downloads: (agent, input) => downloads(deps, agent, input),
    gitCredential: (agent, input) => gitCredential(deps, agent, input),
    async connected(agent, _hello, replica) {
      const record = await heard(deps, agent, { connected: true, replica }, { dueBy: deps.clock() });
      const { heartbeat_seconds, lease_seconds } = deps.settings;
      return { type: "welcome", heartbeat_seconds, lease_seconds, acked: record.seq };
    },
    event: (agent, seq, event) => takeEvent(deps, agent, seq, event),
    async heartbeat(agent, { activity }) {
      const record = await heard(deps, agent, { connected: true, activity });
      await stayAwake(deps, record);
    },
    async result(agent, command, value) {
      await settle(deps, agent, command, { ok: true, value: await redactedAnswer(deps, agent, value) });
    },
    async failure(agent, command, code, said) {
      const error = (await redactorOf(deps, agent))(said);
      await settle(deps, agent, command, { ok: false, code, error });
      const turn = turnOfCommand(command);
      if (turn !== null) await turnRefused(deps, agent, turn, code, error);
    },
    async disconnected(agent, replica) {
      const record = await deps.sessions.get(agent.session);
      if (record?.generation !== agent.generation || record.nonce !== agent.nonce || record.replica !== replica) return;
      await deps.sessions.change(
        agent.session,
        { generation: agent.generation, nonce: agent.nonce },
        { set: { connected: false }, quiet: true, dueBy: deps.clock() },
      );
    },
    async *commands(agent, signal) {
      await present(deps, agent);
      for await (const pending of deps.commands.follow(agent.sandbox, signal)) {
        await present(deps, agent);
        yield pending;
      }
    },
  };
}

async function redactorOf(deps: Deps, agent: AgentIdentity): Promise<Redactor> {
  const record = await deps.sessions.get(agent.session);
  return record ? deps.redaction.for(record) : deps.redaction.all;
}

/** A checkpoint that failed says why; other answers are what the user asked for, as it is. */
async function redactedAnswer(deps: Deps, agent: AgentIdentity, value: unknown): Promise<unknown> {
  const outcome = CheckpointOutcome.safeParse(value);
  if (!outcome.success || outcome.data.outcome !== "failed") return value;
  return { ...outcome.data, error: (await redactorOf(deps, agent))(outcome.data.error) };
}

/** Its daemon is there: the lease runs from now. */
async function heard(
  deps: Deps,
  agent: AgentIdentity,
  set: Partial<SessionRecord>,
  more: Change = {},
): Promise<SessionRecord> {
  const { generation, nonce } = agent;
  const result = await deps.sessions.change(
    agent.session,
    { generation, nonce },
    { ...more, quiet: true, set: { ...set, seen_at: deps.clock() } },
  );
  if (!result.ok) throw await stale(deps, agent);
  return result.record;
}

/** While anything keeps it awake, it counts as active and its time limit moves. */
async function stayAwake(deps: Deps, record: SessionRecord): Promise<void> {
  const now = deps.clock();
  if (awakeBy(record, now, deps.settings).length === 0) return;
  await deps.sessions.change(
    record.id,
    { generation: record.generation, nonce: record.nonce },
    { quiet: true, set: { last_active_at: iso(now), expires_at: expiry(record.ttl_minutes, now) } },
  );
}

async function settle(deps: Deps, agent: AgentIdentity, command: string, result: CommandResult): Promise<void> {
  await present(deps, agent);
  await deps.commands.settle(agent.sandbox, command, result);
  if (command.startsWith("cmd-freeze-")) await deps.due.nudge(agent.session, deps.clock());
}

/**
 * A turn that the daemon would not run is over, and says why. One that it would not begin because it is ending itself, as when
 * its machine shuts down and nobody has said so yet, is kept for the next sandbox.
 */
async function turnRefused(
  deps: Deps,
  agent: AgentIdentity,
  turnId: string,
  code: string,
  error: string,
): Promise<void> {
  await update(deps, agent.session, async (record) => {
    if (record.generation !== agent.generation || record.running_turn !== turnId || record.state !== "ACTIVE")
      return null;
    if (code === "wrong_state") return { guard: { rev: record.rev }, change: { set: { refused_turn: turnId } } };
    const turn = await deps.sessions.turn(record.id, turnId);
    return turn?.state === "running" ? refused(record, turn, deps.clock(), error) : null;
  });
}
