/** Connects to Redis and makes the adapters of the session ports. */
import type {
  AgentCommands,
  Clock,
  DueWork,
  EnvironmentRepository,
  EventLog,
  SecretRepository,
  SessionRepository,
  WarmRepository,
} from "../session/ports.ts";
import { makeAgentCommands } from "./agent-commands.ts";
import { connectClient } from "./client.ts";
import { makeDuePools, makeDueSessions } from "./due-work.ts";
import { makeEnvironmentRepository, makeSecretRepository } from "./environment-repository.ts";
import { makeEventLog } from "./event-log.ts";
import { makeReplicas, type Replicas } from "./replicas.ts";
import { makeSessionRepository } from "./session-repository.ts";
import { makeWake } from "./wake.ts";
import { makeWarmRepository } from "./warm-repository.ts";

export interface RedisAdapters {
  readonly sessions: SessionRepository;
  readonly due: DueWork;
  readonly pools: DueWork;
  readonly warm: WarmRepository;
  readonly events: EventLog;
  readonly commands: AgentCommands;
  readonly environments: EnvironmentRepository;
  readonly secrets: SecretRepository;
  readonly replicas: Replicas;
  /** `redis_unavailable` when it does not answer. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/**
 * `url`: redis://…, rediss://… or unix:///path. Throws `redis_unavailable` when it cannot be reached at start;
 * afterwards connections come back by themselves and calls in between throw it.
 */
export async function connectRedis(options: {
  url: string;
  clock: Clock;
  /** Events kept of a session, about. */
  keepEvents?: number;
}): Promise<RedisAdapters> {
  const client = await connectClient(options.url);
  const wake = makeWake(client);
  return {
    sessions: makeSessionRepository(client, options.clock, options.keepEvents ?? 10_000),
    due: makeDueSessions(client, wake),
    pools: makeDuePools(client, wake),
    warm: makeWarmRepository(client, wake),
    events: makeEventLog(client, wake),
    commands: makeAgentCommands(client, wake),
    environments: makeEnvironmentRepository(client, options.clock),
    secrets: makeSecretRepository(client, options.clock),
    replicas: makeReplicas(client),
    ping: async () => {
      await client.call((redis) => redis.ping());
    },
    close: () => client.close(),
  };
}
