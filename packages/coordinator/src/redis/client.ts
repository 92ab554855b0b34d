/**
 * The connection to Redis. It comes back by itself; calls wait for that a little and then throw `redis_unavailable`.
 * A call that was under way when the connection broke throws too: it may or may not have happened.
 */
import { HangarError } from "@hangar/shared";
import { Redis } from "ioredis";
import type { RedisOptions } from "ioredis";
import { SCRIPTS } from "./scripts.ts";

export type ScriptName = keyof typeof SCRIPTS;

export interface RedisClient {
  /** Runs `work` with a connection that is up; HangarError `redis_unavailable` or `disk_full`. */
  call<T>(work: (redis: Redis) => Promise<T>): Promise<T>;
  script(name: ScriptName, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
  /** For subscriptions alone; may be down. */
  readonly subscriber: Redis;
  close(): Promise<void>;
}

/** How long a call waits for a connection that is coming back, ms. */
const WAIT_FOR_CONNECTION = 2000;

export async function connectClient(url: string): Promise<RedisClient> {
  const options: RedisOptions = {
    ...target(url),
    scripts: SCRIPTS,
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: 5000,
    retryStrategy: (times) => Math.min(times * 50, 1000),
  };
  const redis = new Redis({ ...options, replyMapping: "legacy" });
  const subscriber = redis.duplicate({ enableOfflineQueue: true, maxRetriesPerRequest: null });
  // ioredis reports each failed attempt as an event too; calls say what went wrong.
  for (const connection of [redis, subscriber]) connection.on("error", () => undefined);
  try {
    await redis.connect();
    await redis.ping();
  } catch (error) {
    redis.disconnect();
    subscriber.disconnect();
    throw unavailable(error, `Redis at ${withoutPassword(url)} cannot be reached: start it, or set HANGAR_REDIS_URL`);
  }
  void subscriber.connect().catch(() => undefined);

  const call = async <T>(work: (redis: Redis) => Promise<T>): Promise<T> => {
    if (redis.status !== "ready") await comingBack(redis);
    try {
      return await work(redis);
    } catch (error) {
      throw unavailable(error, "Redis cannot be reached; try again");
    }
  };
  return {
    call,
    subscriber,
    script: (name, keys, args) =>
      call((connection) => (connection as unknown as Record<ScriptName, Script>)[name](...keys, ...args)),
    close: async () => {
      subscriber.disconnect();
      await redis.quit().catch(() => redis.disconnect());
    },
  };
}

type Script = (...args: readonly (string | number)[]) => Promise<unknown>;

function target(url: string): RedisOptions {
  if (url.startsWith("unix://")) return { path: url.slice("unix://".length) };
  const { hostname, port, username, password, pathname, protocol } = new URL(url);
  return {
    host: hostname.replace(/^\[|\]$/g, "") || "127.0.0.1",
    port: Number(port || 6379),
    db: Number(pathname.slice(1) || 0),
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(protocol === "rediss:" && { tls: {} }),
  };
}

const withoutPassword = (url: string): string => url.replace(/\/\/[^@/]*@/, "//");

/** Waits for `ready` a little; says nothing when it does not come, since the call then fails by itself. */
function comingBack(redis: Redis): Promise<void> {
  return new Promise((done) => {
    const finish = (): void => {
      clearTimeout(timer);
      redis.off("ready", finish);
      redis.off("end", finish);
      done();
    };
    const timer = setTimeout(finish, WAIT_FOR_CONNECTION);
    redis.once("ready", finish);
    redis.once("end", finish);
  });
}

/** Errors of the connection become `redis_unavailable`; what Redis itself refuses is a bug, but for a full disk. */
function unavailable(error: unknown, message: string): unknown {
  if (error instanceof HangarError) return error;
  const text = error instanceof Error ? error.message : String(error);
  if (/MISCONF|No space left/i.test(text)) {
    return new HangarError("disk_full", "Redis cannot write its data to disk: free some space", { cause: error });
  }
  if (/^(?:ERR|WRONGTYPE|NOPERM|WRONGPASS|NOAUTH)\b|Error running script|user_script/.test(text)) {
    return /NOAUTH|WRONGPASS|NOPERM/.test(text)
      ? new HangarError("redis_unavailable", "Redis refuses the password: set HANGAR_REDIS_URL", { cause: error })
      : error;
  }
  return new HangarError("redis_unavailable", message, { cause: error });
}
