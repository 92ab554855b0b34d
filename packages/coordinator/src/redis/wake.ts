/**
 * Wakes who waits for news of a topic. A wake is a hint: it may be missed while the connection is down, so every wait
 * ends by itself after a while and its caller reads again.
 */
import type { RedisClient } from "./client.ts";
import { wakeChannel } from "./keys.ts";

export interface Wake {
  /** From when it returns, wakes of the topic are noticed; read only then. */
  watch(topic: string): Promise<Watch>;
}

export interface Watch {
  /** Returns when woken since the last call, after `ms`, or when the signal fires. */
  changed(ms: number, signal: AbortSignal): Promise<void>;
  close(): void;
}

/** Longest wait for the subscription itself, ms; without it, waits end by time alone. */
const SUBSCRIBE_MS = 1000;

export function makeWake({ subscriber }: RedisClient): Wake {
  const watchers = new Map<string, Set<() => void>>();
  subscriber.on("message", (channel: string) => {
    for (const notice of watchers.get(channel) ?? []) notice();
  });
  // What was published while the connection was down is unknown: everybody reads again.
  subscriber.on("ready", () => {
    for (const notices of watchers.values()) for (const notice of notices) notice();
  });

  return {
    async watch(topic) {
      const channel = wakeChannel(topic);
      let woken = false;
      let wakeUp: (() => void) | null = null;
      const notice = (): void => {
        woken = true;
        wakeUp?.();
      };
      const others = watchers.get(channel);
      if (others) others.add(notice);
      else watchers.set(channel, new Set([notice]));
      await within(SUBSCRIBE_MS, subscriber.subscribe(channel));
      return {
        changed: (ms, signal) =>
          new Promise((done) => {
            if (woken || signal.aborted) {
              woken = false;
              done();
              return;
            }
            const finish = (): void => {
              clearTimeout(timer);
              signal.removeEventListener("abort", finish);
              wakeUp = null;
              woken = false;
              done();
            };
            const timer = setTimeout(finish, ms);
            signal.addEventListener("abort", finish);
            wakeUp = finish;
          }),
        close: () => {
          const notices = watchers.get(channel);
          notices?.delete(notice);
          if (notices?.size !== 0) return;
          watchers.delete(channel);
          void subscriber.unsubscribe(channel).catch(() => undefined);
        },
      };
    },
  };
}

function within(ms: number, work: Promise<unknown>): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    work
      .catch(() => undefined)
      .finally(() => {
        clearTimeout(timer);
        done();
      });
  });
}
