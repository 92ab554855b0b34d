/** Warm sandboxes in Redis: one hash of records, few enough to be read whole, and when each was heard of last. */
import type { WarmRecord, WarmRepository } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { warmKey, warmSeenKey } from "./keys.ts";
import type { Wake } from "./wake.ts";

export function makeWarmRepository(client: RedisClient, wake: Wake): WarmRepository {
  const keys = [warmKey, warmSeenKey];
  return {
    add: async (record) => {
      await client.call((redis) => redis.hset(warmKey, record.id, JSON.stringify(record)));
    },
    get: async (id) => {
      const text = await client.call((redis) => redis.hget(warmKey, id));
      return text === null ? null : (JSON.parse(text) as WarmRecord);
    },
    list: async () => {
      const [all, seen] = await client.call((redis) =>
        Promise.all([redis.hvals(warmKey), redis.zrange(warmSeenKey, "0", "-1", "WITHSCORES")]),
      );
      const heard = new Map<string, number>();
      for (let i = 0; i + 1 < seen.length; i += 2) heard.set(seen[i]!, Number(seen[i + 1]));
      return all.map((text) => {
        const record = JSON.parse(text) as WarmRecord;
        return Object.assign(record, { seen_at: heard.get(record.id) ?? 0 });
      });
    },
    change: async (record, set) => {
      const after = set === null ? null : { ...record, ...set, rev: record.rev + 1 };
      const text = after === null ? "" : JSON.stringify(after);
      return Number(await client.script("changeWarm", keys, [record.id, record.rev, text])) === 1;
    },
    claim: async ({ owner, environment, fingerprint, sandbox, heardSince }) => {
      const text = await client.script("claimWarm", keys, [owner, environment, fingerprint, sandbox, heardSince]);
      return typeof text === "string" ? (JSON.parse(text) as WarmRecord) : null;
    },
    heard: async (id, at) => {
      await client.call((redis) => redis.zadd(warmSeenKey, at, id));
    },
    watch: (id) => wake.watch(`warm:${id}`),
  };
}
