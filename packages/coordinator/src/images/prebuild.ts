/** At start-up: builds the images of the environments that are to be used soon, so that no session waits for them. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import type { EnvironmentRepository } from "../session/ports.ts";
import { ensureImage } from "./building-driver.ts";
import type { Images } from "./building-driver.ts";

export interface Prebuild {
  readonly environments: Pick<EnvironmentRepository, "get">;
  readonly images: Images;
  readonly owner: string;
  /** By name; one that is not there is told and left. */
  readonly names: readonly string[];
  readonly log: { info(fields: object, message: string): void; warn(fields: object, message: string): void };
  readonly signal: AbortSignal;
  /** How often a build that runs is looked at, ms. */
  readonly everyMs?: number;
}

/** Ends when all are built or cannot be; never rejects. Any number of replicas may do it at once. */
export async function prebuild(deps: Prebuild): Promise<void> {
  await Promise.all([...new Set(deps.names)].map((name) => one(deps, name)));
}

async function one(
  { environments, images, owner, log, signal, everyMs = 5000 }: Prebuild,
  name: string,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const environment = await environments.get(owner, name);
      if (!environment) return log.warn({ environment: name }, "an environment to prebuild is not there");
      if (!environment.kubernetes?.build) return;
      await ensureImage(images, environment.kubernetes);
      return log.info({ environment: name }, "an environment's image is built");
    } catch (error) {
      if (!(error instanceof HangarError && error.retryable)) {
        return log.warn({ environment: name, error }, "an environment's image cannot be built ahead");
      }
    }
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
}
