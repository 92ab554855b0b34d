/**
 * GKE Pod Snapshots as far as Hangar uses them, against a stand-in API server: what is sent has the shape that the public reference
 * of `podsnapshot.gke.io/v1` gives, and a stand-in for the controller answers. No real one was at hand.
 */
import { AGENT_ENV, KubernetesPod } from "@hangar/shared";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parsePodSnapshot } from "../../../../../test/stand-ins/pod-snapshots.ts";
import type { Driver, SandboxSpec, Snapshots } from "../../../src/driver/driver.ts";
import { connectCluster } from "../../../src/driver/kubernetes/client.ts";
import { createKubernetesDriver } from "../../../src/driver/kubernetes/kubernetes.ts";
import { type Json, StandInApi } from "./stand-in-api.ts";

const ID = "sbx-0a1b2c3d-g1";
let api: StandInApi;
let driver: Driver;
let snapshots: Snapshots;

beforeEach(async () => {
  api = new StandInApi();
  driver = await createKubernetesDriver({
    cluster: connectCluster({ kubeconfig: await api.start(), namespace: null }),
    instance: "hangar",
    image: "registry.example/sandbox:1",
    snapshots: "storage",
    log: { info: () => undefined, warn: () => undefined },
    backoff: [5, 20],
  });
  snapshots = driver.snapshots!;
});
afterEach(async () => {
  await driver.close();
  await api.stop();
});

const spec = (snapshot: string | null): SandboxSpec => ({
  id: ID,
  session: "ses-0a1b2c3d",
  generation: 1,
  repoFolder: "repo",
  remote: null,
  env: { [AGENT_ENV.url]: "http://10.0.0.7:4747", [AGENT_ENV.token]: "hat1.secret", [AGENT_ENV.sandbox]: ID },
  adopt: null,
  snapshot,
  kubernetes: KubernetesPod.parse({ hot_resume: true, runtime_class: "gvisor" }),
});

function sent(plural: string, name: string): { spec: Json } {
  const { status: _, ...object } = api.get(plural, name) ?? {};
  return parsePodSnapshot(plural, object);
}

/** The stand-in controller: makes the snapshot and names it in the trigger. */
function answer(conditions: object[]): void {
  api.make("podsnapshots", { metadata: { name: "snap-1" }, status: { conditions } });
  api.change("podsnapshotmanualtriggers", ID, (trigger) => {
    trigger["status"] = { snapshotCreated: { name: "snap-1" } };
  });
}

test("a policy selects the pods that ask for it; one trigger is one snapshot, however often it is asked for", async () => {
  await driver.create(spec(null));
  expect(await snapshots.take(ID)).toBe("pending");
  expect(await snapshots.take(ID)).toBe("pending");
  const policy = sent("podsnapshotpolicies", "hangar-hangar");
  expect(policy.spec).toMatchObject({ storageConfigName: "storage", triggerConfig: { type: "manual" } });
  const { labels } = api.get("pods", ID)!["metadata"];
  expect(labels).toMatchObject(policy.spec["selector"].matchLabels);
  expect(sent("podsnapshotmanualtriggers", ID).spec).toEqual({ targetPod: ID });
  answer([{ type: "Ready", status: "False", reason: "Uploading" }]);
  expect(await snapshots.take(ID)).toBe("pending");
  api.change("podsnapshots", "snap-1", (snapshot) => {
    snapshot["status"].conditions = [{ type: "Ready", status: "True", reason: "AllSnapshotsAvailable" }];
  });
  expect(await snapshots.take(ID)).toEqual({ ready: "snap-1" });
  await snapshots.remove("snap-1");
  await snapshots.remove("snap-1");
  expect(api.get("podsnapshots", "snap-1")).toBeUndefined();
});

test("one that fails says why; without the right to take any, it is refused", async () => {
  await driver.create(spec(null));
  await snapshots.take(ID);
  answer([{ type: "Ready", status: "False", reason: "UploadFailed", message: "no such bucket" }]);
  expect(await snapshots.take(ID)).toEqual({ failed: "UploadFailed: no such bucket" });
  api.refuse = (request) => (/podsnapshot/.test(request) ? { code: 403, message: "podsnapshots is forbidden" } : null);
  await expect(snapshots.take(ID)).rejects.toMatchObject({ code: "cluster_refused" });
});

test("a pod that is to be restored names the snapshot, and is the same else", async () => {
  await driver.create(spec(null));
  const cold = api.get("pods", ID)!;
  api.drop("pods", ID);
  await driver.create(spec("snap-1"));
  const hot = api.get("pods", ID)!;
  expect(hot["metadata"].annotations["podsnapshot.gke.io/ps-name"]).toBe("snap-1");
  expect(cold["metadata"].annotations).not.toHaveProperty(["podsnapshot.gke.io/ps-name"]);
  expect(hot["spec"]).toEqual(cold["spec"]);
});
