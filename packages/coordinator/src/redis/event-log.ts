/** A session's events: a Redis stream, capped. Wakes only say that it is worth reading; reading is what counts. */
import { HangarError } from "@hangar/shared";
import type { SessionEvent } from "@hangar/shared";
import type { EventLog } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { sessionKeys } from "./keys.ts";
import { REREAD_MS, untilBack } from "./reread.ts";
import type { Wake } from "./wake.ts";

const BATCH = 200;

export function makeEventLog(client: RedisClient, wake: Wake): EventLog {
  const read = async (session: string, from: string, count: number): Promise<SessionEvent[]> => {
    const entries = await client.call((redis) =>
      redis.xrange(sessionKeys(session).events, from === "0" ? "-" : `(${from}`, "+", "COUNT", count),
    );
    return entries.map(([id, fields]) => toEvent(id, fields));
  };
  const newest = async (session: string): Promise<string> => {
    const [entry] = await client.call((redis) => redis.xrevrange(sessionKeys(session).events, "+", "-", "COUNT", 1));
    return entry?.[0] ?? "0";
  };

  return {
    read: async (session, from, count) => read(session, position(from), count),
    async *follow(session, from, signal) {
      const watch = await wake.watch(`events:${session}`);
      try {
        let at = from === "$" ? await newest(session) : position(from);
        while (!signal.aborted) {
          const events = await untilBack(() => read(session, at, BATCH), signal);
          for (const event of events ?? []) {
            if (signal.aborted) return;
            yield event;
            at = event.id;
          }
          if (events === undefined) return;
          if (events.length > 0) continue;
          const there = await untilBack(
            () => client.call((redis) => redis.exists(sessionKeys(session).record)),
            signal,
          );
          if (there === 0) return;
          await watch.changed(REREAD_MS, signal);
        }
      } finally {
        watch.close();
      }
    },
  };
}

function position(from: string): string {
  if (/^(?:0|\d{1,15}-\d{1,10})$/.test(from)) return from;
  throw new HangarError("invalid_request", "Not a place in an event log: give 0, $ or the id of an event");
}

function toEvent(id: string, fields: string[]): SessionEvent {
  const value = (name: string): string => fields[fields.indexOf(name) + 1] ?? "";
  return { id, at: value("at"), event: JSON.parse(value("event")) as SessionEvent["event"] };
}
