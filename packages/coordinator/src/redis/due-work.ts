/** Due work in one sorted set: session → when it is to be looked at. */
import type { DueWork } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { dueKey, wakeChannel } from "./keys.ts";
import type { Wake, Watch } from "./wake.ts";

export function makeDueWork(client: RedisClient, wake: Wake): DueWork {
  let watch: Promise<Watch> | null = null;
  return {
    claim: async (now, until, limit) => (await client.script("claim", [dueKey], [now, until, limit])) as string[],
    settle: async (session, claimedUntil, next) => {
      await client.script("settleClaim", [dueKey], [session, claimedUntil, next ?? "never"]);
    },
    nudge: (session, at) =>
      client.call(async (redis) => {
        await redis.zadd(dueKey, "LT", at, session);
        await redis.publish(wakeChannel("due"), "");
      }),
    next: async () => {
      // Whoever nudges after this read wakes the wait that follows it.
      watch ??= wake.watch("due");
      await watch;
      const [, score] = await client.call((redis) =>
        redis.zrangebyscore(dueKey, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, 1),
      );
      return score === undefined ? null : Number(score);
    },
    wait: async (ms, signal) => {
      watch ??= wake.watch("due");
      await (await watch).changed(ms, signal);
    },
  };
}
