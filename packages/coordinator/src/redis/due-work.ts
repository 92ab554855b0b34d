/** Due work in one sorted set: what is to be looked at (a session, a warm pool) → when. */
import type { DueWork } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { dueKey, poolsKey, wakeChannel } from "./keys.ts";
import type { Wake, Watch } from "./wake.ts";

export const makeDueSessions = (client: RedisClient, wake: Wake): DueWork => makeDueWork(client, wake, dueKey, "due");
export const makeDuePools = (client: RedisClient, wake: Wake): DueWork => makeDueWork(client, wake, poolsKey, "pools");

function makeDueWork(client: RedisClient, wake: Wake, key: string, topic: string): DueWork {
  let watch: Promise<Watch> | null = null;
  return {
    claim: async (now, until, limit) => (await client.script("claim", [key], [now, until, limit])) as string[],
    settle: async (session, claimedUntil, next) => {
      await client.script("settleClaim", [key], [session, claimedUntil, next ?? "never"]);
    },
    nudge: (session, at) =>
      client.call(async (redis) => {
        await redis.zadd(key, "LT", at, session);
        await redis.publish(wakeChannel(topic), "");
      }),
    next: async () => {
      // Whoever nudges after this read wakes the wait that follows it.
      watch ??= wake.watch(topic);
      await watch;
      const [, score] = await client.call((redis) =>
        redis.zrangebyscore(key, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, 1),
      );
      return score === undefined ? null : Number(score);
    },
    wait: async (ms, signal) => {
      watch ??= wake.watch(topic);
      await (await watch).changed(ms, signal);
    },
  };
}
