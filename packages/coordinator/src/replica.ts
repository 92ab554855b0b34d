/** This replica among the others: it says that it is there, and knows who else is. */
import type { Replicas } from "./redis/replicas.ts";
import type { Log } from "./telemetry.ts";

export interface Presence {
  /** Base URLs that a sandbox may dial: this replica's first. */
  urls(): readonly string[];
  leave(): Promise<void>;
}

const EVERY_MS = 15_000;
/** A replica that missed two of its turns is taken for gone. */
const HOLDS_MS = 45_000;

export async function joinReplicas(replicas: Replicas, url: string, log: Log): Promise<Presence> {
  let others: string[] = [];
  const pass = async (): Promise<void> => {
    const now = Date.now();
    await replicas.announce(url, now + HOLDS_MS);
    others = (await replicas.list(now)).filter((other) => other !== url);
  };
  await pass();
  const timer = setInterval(() => {
    pass().catch((error: unknown) => log.debug({ error }, "this replica could not say that it is there"));
  }, EVERY_MS).unref();
  return {
    urls: () => [url, ...others],
    leave: async () => {
      clearInterval(timer);
      await replicas.leave(url).catch(() => undefined);
    },
  };
}
