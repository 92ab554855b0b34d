/** Connects to Redis and makes the adapters of the session ports. */
import type {
  AgentCommands,
  Clock,
  DueWork,
  EnvironmentRepository,
  EventLog,
  SecretRepository,
  SessionRepository,
} from "../session/ports.ts";

export interface RedisAdapters {
  readonly sessions: SessionRepository;
  readonly due: DueWork;
  readonly events: EventLog;
  readonly commands: AgentCommands;
  readonly environments: EnvironmentRepository;
  readonly secrets: SecretRepository;
  /** `redis_unavailable` when it does not answer. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/**
 * `url`: redis://…, rediss://… or unix:///path. Throws `redis_unavailable` when it cannot be reached at start;
 * afterwards connections come back by themselves and calls in between throw it.
 */
export function connectRedis(_options: { url: string; clock: Clock; keepEvents?: number }): Promise<RedisAdapters> {
  throw new Error("filled in below");
}
