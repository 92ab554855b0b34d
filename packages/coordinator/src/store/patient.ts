/** Any store, its passing failures waited for: a wrapper of the port, so that no adapter and no caller has to. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import type { Store } from "./store.ts";

export interface Patience {
  /** Tries in all. */
  readonly tries: number;
  /** Before the second one, ms; doubled for each that follows, and blurred so that replicas do not come at once. */
  readonly pauseMs: number;
}
const PATIENCE: Patience = { tries: 5, pauseMs: 200 };

/** What `store_unavailable` says is tried again; anything else is an answer. */
export function patientStore(store: Store, patience: Patience = PATIENCE): Store {
  const again = async <T>(work: (attempt: number) => Promise<T>): Promise<T> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work(attempt);
      } catch (error) {
        if (!passes(error) || attempt >= patience.tries) throw error;
        await sleep(patience.pauseMs * 2 ** (attempt - 1) * (0.5 + Math.random()));
      }
    }
  };
  return {
    name: store.name,
    signPut: (intent, expiresAt) => again(() => store.signPut(intent, expiresAt)),
    signGet: (key, expiresAt) => again(() => store.signGet(key, expiresAt)),
    head: (key) => again(() => store.head(key)),
    read: (key) => again(() => store.read(key)),
    replace: (key, bytes) => again(() => store.replace(key, bytes)),
    delete: (key) => again(() => store.delete(key)),
    create: (key, bytes) =>
      again(async (attempt) => {
        try {
          await store.create(key, bytes);
        } catch (error) {
          // The try before may have come through, with its answer lost: then what is there is what was to be.
          const isThere = attempt > 1 && error instanceof HangarError && error.code === "object_exists";
          if (!isThere || !Buffer.from((await store.read(key)) ?? []).equals(bytes)) throw error;
        }
      }),
    async *list(prefix) {
      const seen = new Set<string>();
      for (let attempt = 1; ; attempt++) {
        try {
          for await (const key of store.list(prefix)) {
            if (seen.has(key)) continue;
            seen.add(key);
            yield key;
          }
          return;
        } catch (error) {
          if (!passes(error) || attempt >= patience.tries) throw error;
          await sleep(patience.pauseMs * 2 ** (attempt - 1));
        }
      }
    },
  };
}

const passes = (error: unknown): boolean => error instanceof HangarError && error.code === "store_unavailable";
