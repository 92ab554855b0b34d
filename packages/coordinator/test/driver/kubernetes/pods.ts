/** What tests of the driver share. */
import { expect, vi } from "vitest";
import type { Json } from "./stand-in-api.ts";

export const until = (is: () => unknown): Promise<void> =>
  vi.waitFor(async () => expect(await is()).toBeTruthy(), { timeout: 10_000, interval: 10 });

/** As the kubelet says it of a pod whose container runs. */
export const running = (pod: Json): void => {
  pod["spec"].nodeName = "node-1";
  pod["status"] = { phase: "Running", containerStatuses: [{ restartCount: 0, state: { running: {} } }] };
};
