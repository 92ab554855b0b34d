/** Pods that wait for sessions, against a stand-in API server; `test/kubernetes/warm.test.ts` has real ones. */
import { AGENT_ENV } from "@hangar/shared";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Driver, WarmSpec } from "../../../src/driver/driver.ts";
import { connectCluster } from "../../../src/driver/kubernetes/client.ts";
import { createKubernetesDriver } from "../../../src/driver/kubernetes/kubernetes.ts";
import { running, until } from "./pods.ts";
import { StandInApi } from "./stand-in-api.ts";

const ID = "sbx-0a1b2c3d-g1";
const SPEC: Omit<WarmSpec, "id"> = {
  repoFolder: "repo",
  remote: null,
  env: { [AGENT_ENV.url]: "http://10.0.0.7:4747", [AGENT_ENV.token]: "hwt1.secret" },
  kubernetes: null,
};
let api: StandInApi;
let kubeconfig: string;
const drivers: Driver[] = [];

beforeEach(async () => {
  api = new StandInApi();
  kubeconfig = await api.start();
});
afterEach(async () => {
  await Promise.all(drivers.splice(0).map((driver) => driver.close()));
  await api.stop();
});

async function open(): Promise<Driver> {
  const driver = await createKubernetesDriver({
    cluster: connectCluster({ kubeconfig, namespace: null }),
    instance: "hangar",
    image: "registry.example/sandbox:1",
    snapshots: null,
    log: { info: () => undefined, warn: () => undefined },
    backoff: [5, 20],
  });
  drivers.push(driver);
  return driver;
}

const stateOf = async (driver: Driver) => (await driver.status(ID))?.state ?? null;

test("a pod that waits is nobody's until it is claimed; then it goes by its session's sandbox, for every replica", async () => {
  const driver = await open();
  const WARM = "wrm-00c0ffee";
  const warm = driver.warm!;
  await warm.create({ ...SPEC, id: WARM });
  await warm.create({ ...SPEC, id: WARM });
  expect(api.get("secrets", WARM)?.["metadata"].ownerReferences).toMatchObject([{ name: WARM }]);
  api.change("pods", WARM, running);
  await until(async () => (await warm.status(WARM))?.start === null);
  expect(await driver.list()).toEqual([]);
  expect((await warm.list()).map(({ id }) => id)).toEqual([WARM]);
  expect(await stateOf(driver)).toBeNull();

  const told: string[] = [];
  driver.onChange((id) => told.push(id));
  const as = { id: ID, session: "ses-0a1b2c3d", generation: 1 };
  expect(await warm.claim(WARM, as)).toBe(true);
  expect(await warm.claim(WARM, as)).toBe(true);
  expect(await stateOf(driver)).toBe("running");
  expect(await warm.status(WARM)).toBeNull();
  expect(await warm.list()).toEqual([]);
  await warm.destroy(WARM);
  expect(api.get("pods", WARM)?.["metadata"].deletionTimestamp).toBeUndefined();
  await until(() => told.includes(ID));

  // Another replica, and one whose watch does not know it yet.
  const other = await open();
  expect((await other.list()).map(({ id }) => id)).toEqual([ID]);
  api.refuse = (request) => (request.startsWith("WATCH") ? { code: 500, message: "not now" } : null);
  api.endWatches();
  const third = await open();
  expect(await stateOf(third)).toBe("running");
  api.refuse = () => null;

  await driver.destroy(ID);
  expect(api.get("pods", WARM)?.["metadata"].deletionTimestamp).toBeDefined();
  api.drop("pods", WARM);
  await until(async () => (await stateOf(driver)) !== "running");
  expect(api.get("secrets", WARM)).toBeUndefined();
});

test("one that is gone, is ending or was started again is not claimed", async () => {
  const driver = await open();
  const warm = driver.warm!;
  const as = { id: ID, session: "ses-0a1b2c3d", generation: 1 };
  expect(await warm.claim("wrm-00000000", as)).toBe(false);
  await warm.create({ ...SPEC, id: "wrm-00000001" });
  api.change("pods", "wrm-00000001", (pod) => {
    running(pod);
    pod["status"].containerStatuses[0].restartCount = 1;
  });
  await until(async () => (await warm.status("wrm-00000001"))?.restarts.count === 1);
  expect(await warm.claim("wrm-00000001", as)).toBe(false);
  await warm.create({ ...SPEC, id: "wrm-00000002" });
  api.change("pods", "wrm-00000002", running);
  api.delete("wrm-00000002", 30);
  await until(async () => (await warm.status("wrm-00000002"))?.state === "ending");
  expect(await warm.claim("wrm-00000002", as)).toBe(false);
  expect(await stateOf(driver)).toBeNull();
});
