/** Who serves: the URL of every replica that said so lately, so that a sandbox can dial another when one is gone. */
import type { RedisClient } from "./client.ts";
import { replicasKey } from "./keys.ts";

export interface Replicas {
  /** This one is there until `until` (ms since 1970), unless it says so again. */
  announce(url: string, until: number): Promise<void>;
  /** Those that are there at `now`; the one that will be there longest first. */
  list(now: number): Promise<string[]>;
  leave(url: string): Promise<void>;
}

export const makeReplicas = (client: RedisClient): Replicas => ({
  announce: async (url, until) => {
    await client.call((redis) => redis.zadd(replicasKey, until, url));
  },
  list: async (now) => {
    await client.call((redis) => redis.zremrangebyscore(replicasKey, "-inf", now));
    return client.call((redis) => redis.zrange(replicasKey, "+inf", "-inf", "BYSCORE", "REV"));
  },
  leave: async (url) => {
    await client.call((redis) => redis.zrem(replicasKey, url));
  },
});
