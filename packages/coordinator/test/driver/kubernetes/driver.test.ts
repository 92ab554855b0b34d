/** The kubernetes driver against a stand-in API server; `test/kubernetes/` runs it on a real cluster. */
import { AGENT_ENV, HangarError, KubernetesPod } from "@hangar/shared";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Driver, SandboxSpec } from "../../../src/driver/driver.ts";
import { connectCluster } from "../../../src/driver/kubernetes/client.ts";
import { createKubernetesDriver } from "../../../src/driver/kubernetes/kubernetes.ts";
import { running, until } from "./pods.ts";
import { StandInApi } from "./stand-in-api.ts";

const ID = "sbx-0a1b2c3d-g1";
let api: StandInApi;
let kubeconfig: string;
let now: number;
const drivers: Driver[] = [];

beforeEach(async () => {
  api = new StandInApi();
  kubeconfig = await api.start();
  now = Date.now();
});
afterEach(async () => {
  await Promise.all(drivers.splice(0).map((driver) => driver.close()));
  await api.stop();
});

async function open(instance = "hangar"): Promise<Driver> {
  const driver = await createKubernetesDriver({
    cluster: connectCluster({ kubeconfig, namespace: null }),
    instance,
    image: "registry.example/sandbox:1",
    snapshots: null,
    log: { info: () => undefined, warn: () => undefined },
    clock: () => now,
    backoff: [5, 20],
  });
  drivers.push(driver);
  return driver;
}

const spec = (more: Partial<SandboxSpec> = {}): SandboxSpec => ({
  id: ID,
  session: "ses-0a1b2c3d",
  generation: 1,
  repoFolder: "repo",
  remote: null,
  env: { [AGENT_ENV.url]: "http://10.0.0.7:4747", [AGENT_ENV.token]: "hat1.secret", [AGENT_ENV.sandbox]: ID },
  adopt: null,
  snapshot: null,
  kubernetes: null,
  ...more,
});

const stateOf = async (driver: Driver) => (await driver.status(ID))?.state ?? null;

test("a sandbox is a pod with no rights, and its token is in a Secret that goes with it", async () => {
  const driver = await open();
  await driver.create(spec());
  const pod = api.get("pods", ID)!;
  expect(JSON.stringify(pod)).not.toContain("hat1.secret");
  expect(pod["metadata"].labels).toMatchObject({
    "app.kubernetes.io/managed-by": "hangar",
    "hangar.dev/session": "ses-0a1b2c3d",
    "hangar.dev/generation": "1",
  });
  expect(pod["spec"]).toMatchObject({
    automountServiceAccountToken: false,
    terminationGracePeriodSeconds: 60,
    securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
  });
  const [container] = pod["spec"].containers;
  expect(container.securityContext).toEqual({
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"] },
  });
  expect(container.env).toContainEqual({
    name: AGENT_ENV.token,
    valueFrom: { secretKeyRef: { name: ID, key: "token" } },
  });
  const secret = api.get("secrets", ID)!;
  expect(secret["stringData"]).toEqual({ token: "hat1.secret" });
  expect(secret["metadata"].ownerReferences).toMatchObject([{ kind: "Pod", name: ID, uid: pod["metadata"].uid }]);
  api.drop("pods", ID);
  expect(api.get("secrets", ID)).toBeUndefined();
});

test("what the environment asks for is in the pod", async () => {
  const driver = await open();
  const kubernetes = KubernetesPod.parse({
    image: "registry.example/team/box@sha256:" + "a".repeat(64),
    image_pull_secrets: ["pull"],
    node_selector: { pool: "sandboxes" },
    tolerations: [{ key: "spot", value: "true", effect: "NoSchedule" }, {}],
    runtime_class: "gvisor",
    priority_class: "low",
    service_account: "box",
    requests: { cpu: "2" },
    limits: { memory: "8Gi", "ephemeral-storage": "30Gi", "nvidia.com/gpu": "1" },
    read_only_root: false,
    run_as_user: 2000,
    termination_grace_seconds: 25,
  });
  await driver.create(spec({ kubernetes }));
  const { spec: pod } = api.get("pods", ID)!;
  expect(pod).toMatchObject({
    imagePullSecrets: [{ name: "pull" }],
    nodeSelector: { pool: "sandboxes" },
    tolerations: [{ key: "spot", operator: "Equal", value: "true", effect: "NoSchedule" }, { operator: "Exists" }],
    runtimeClassName: "gvisor",
    priorityClassName: "low",
    serviceAccountName: "box",
    terminationGracePeriodSeconds: 25,
    automountServiceAccountToken: false,
    securityContext: { runAsUser: 2000 },
  });
  expect(pod.containers[0]).toMatchObject({
    image: kubernetes.image,
    resources: { requests: { cpu: "2" }, limits: kubernetes.limits },
    securityContext: { readOnlyRootFilesystem: false },
  });
  expect(pod.containers[0].env).toContainEqual({ name: AGENT_ENV.grace, value: "25" });
});

test("two replicas and a retry whose answer was lost make one pod", async () => {
  const [one, two] = [await open(), await open()];
  await Promise.all([one.create(spec()), two.create(spec())]);
  const { uid } = api.get("pods", ID)!["metadata"];
  // Made, and the answer does not come.
  await one.create(spec());
  expect(api.get("pods", ID)!["metadata"].uid).toBe(uid);
  expect(api.get("secrets", ID)!["metadata"].ownerReferences).toMatchObject([{ uid }]);
});

test("a pod of that name that is another Hangar's is not taken for its own", async () => {
  await (await open("other")).create(spec());
  const failure = await (await open()).create(spec()).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "cluster_refused", retryable: false });
  expect(await (await open()).list()).toEqual([]);
});

test("ingress is denied, and egress is as the environment says", async () => {
  const driver = await open();
  const deny = api.get("networkpolicies", "hangar-hangar-deny-ingress");
  expect(deny?.["spec"]).toMatchObject({ policyTypes: ["Ingress"], ingress: [] });
  await driver.create(spec({ kubernetes: KubernetesPod.parse({ egress: [{ cidr: "192.0.2.0/24", ports: [443] }] }) }));
  const label = api.get("pods", ID)!["metadata"].labels["hangar.dev/egress"];
  const egress = api.get("networkpolicies", `hangar-hangar-egress-${label}`)!["spec"];
  expect(egress.podSelector.matchLabels).toMatchObject({ "hangar.dev/egress": label });
  expect(egress.egress).toContainEqual({
    to: [{ ipBlock: { cidr: "192.0.2.0/24" } }],
    ports: [{ protocol: "TCP", port: 443 }],
  });
  expect(egress.egress).toContainEqual({
    to: [{ ipBlock: { cidr: "10.0.0.7/32" } }],
    ports: [{ protocol: "TCP", port: 4747 }],
  });
});

test("a coordinator that may make no policy says so; an environment that wants one is refused", async () => {
  api.refuse = (request) =>
    /networkpolicies/.test(request) ? { code: 403, message: "networkpolicies is forbidden" } : null;
  const driver = await open();
  expect(driver.isolation).toContain("ingress as the namespace has it");
  await driver.create(spec());
  const closed = spec({ id: "sbx-0a1b2c3d-g2", kubernetes: KubernetesPod.parse({ egress: [] }) });
  await expect(driver.create(closed)).rejects.toMatchObject({ code: "cluster_refused" });
  expect(api.get("pods", "sbx-0a1b2c3d-g2")).toBeUndefined();
});

test("a start says what it waits for", async () => {
  const driver = await open();
  const told: string[] = [];
  driver.onChange((id) => told.push(id));
  await driver.create(spec());
  const says = async (words: string) =>
    until(async () => JSON.stringify((await driver.status(ID))?.start ?? null).includes(words));
  await says("waiting for a node");
  api.change("pods", ID, (pod) => {
    pod["status"].conditions = [
      {
        type: "PodScheduled",
        status: "False",
        reason: "Unschedulable",
        message: "0/1 nodes are available: 1 Insufficient memory.",
      },
    ];
  });
  await says("waiting for a node with room (0/1 nodes are available");
  api.event(ID, "TriggeredScaleUp", "pod triggered scale-up");
  await says("adding a node to the cluster");
  api.event(
    ID,
    "FailedScaleUp",
    "Node scale up failed: Quota 'SSD_TOTAL_GB' exceeded. Limit: 500.0 in region europe-west1.",
  );
  await says("a quota is exhausted (SSD_TOTAL_GB)");
  api.change("pods", ID, (pod) => (pod["spec"].nodeName = "node-1"));
  await says("starting");
  api.event(ID, "Pulling", 'Pulling image "registry.example/sandbox:1"');
  await says("pulling the image");
  api.event(ID, "Pulled", "Successfully pulled image");
  await says("starting");
  api.change("pods", ID, running);
  await until(async () => (await driver.status(ID))?.start === null);
  expect(told).toContain(ID);
});

test("an image that cannot be pulled fails the start; a registry that is away has a while", async () => {
  const driver = await open();
  await driver.create(spec());
  const waiting = (reason: string, message: string) =>
    api.change("pods", ID, (pod) => {
      pod["spec"].nodeName = "node-1";
      pod["status"].containerStatuses = [{ restartCount: 0, state: { waiting: { reason, message } } }];
    });
  waiting("ErrImagePull", "dial tcp: connection refused");
  await until(async () => JSON.stringify((await driver.status(ID))?.start).includes("tried again (dial tcp"));
  now += 4 * 60_000;
  expect((await driver.status(ID))?.start).toMatchObject({ code: "image_pull_failed" });
  now -= 4 * 60_000;
  waiting("ErrImagePull", "manifest unknown: no such tag");
  await until(async () => (await driver.status(ID))?.start && "failed" in (await driver.status(ID))!.start!);
  expect((await driver.status(ID))?.start).toEqual({
    code: "image_pull_failed",
    failed: "The image cannot be pulled: manifest unknown: no such tag",
  });
});

test("a daemon that does not stay up fails the start with what it said last", async () => {
  const driver = await open();
  await driver.create(spec());
  const crashed = (restartCount: number) =>
    api.change("pods", ID, (pod) => {
      pod["spec"].nodeName = "node-1";
      const state = { waiting: { reason: "CrashLoopBackOff", message: "back-off" } };
      const lastState = { terminated: { exitCode: 127, reason: "Error", message: "first\nnode: not found\n" } };
      pod["status"].containerStatuses = [{ restartCount, state, lastState }];
    });
  crashed(1);
  const start = async () => JSON.stringify((await driver.status(ID))?.start);
  await until(async () =>
    (await start()).includes("starting, which fails and is tried again (exit 127: node: not found)"),
  );
  crashed(3);
  await until(async () => (await start()).includes("sandbox_crashed"));
});

test("a quota's refusal is worth another try and names the quota; a wrong request is not", async () => {
  const driver = await open();
  const message = 'pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1, used: pods=5, limited: pods=5';
  api.refuse = (request) => (request === "POST pods" ? { code: 403, message, reason: "Forbidden" } : null);
  const quota = await driver.create(spec()).catch((error: unknown) => error);
  expect(quota).toMatchObject({ code: "quota_exhausted", retryable: true });
  expect((quota as HangarError).message).toContain("a quota is exhausted (sandboxes)");
  api.refuse = (request) =>
    request === "POST pods" ? { code: 403, message: "no PriorityClass with name low was found" } : null;
  await expect(driver.create(spec())).rejects.toMatchObject({ code: "cluster_refused" });
  await driver.destroy(ID);
  expect(api.get("secrets", ID)).toBeUndefined();
});

test("a watch that ends goes on from its last version; one whose version is too old lists again", async () => {
  const driver = await open();
  await driver.create(spec());
  await until(() => api.watching === 2);
  const lists = () => api.requests.filter((request) => request === "GET pods").length;
  const before = lists();
  api.endWatches();
  await until(() => api.watching === 2);
  expect(lists()).toBe(before);
  api.change("pods", ID, running);
  await until(async () => (await driver.status(ID))?.start === null);
  // Gone while nobody watched, and the server has forgotten since when.
  const exited: string[] = [];
  driver.onChange((id) => exited.push(id));
  api.quietly(() => api.drop("pods", ID));
  api.oldest = 1000;
  api.endWatches();
  await until(() => exited.includes(ID));
  expect(lists()).toBeGreaterThan(before);
  expect(await stateOf(driver)).toBe("left");
  expect(await driver.list()).toEqual([]);
});

test("while the API server is away a running pod runs on, and a start is tried again", async () => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  await until(async () => (await driver.status(ID))?.start === null);
  await api.away();
  expect(await stateOf(driver)).toBe("running");
  expect(await driver.list()).toHaveLength(1);
  await expect(driver.create(spec({ id: "sbx-0a1b2c3d-g2" }))).rejects.toMatchObject({
    code: "cluster_unavailable",
    retryable: true,
  });
  await expect(driver.destroy(ID)).rejects.toMatchObject({ code: "cluster_unavailable" });
  await api.start();
  api.change("pods", ID, (pod) => (pod["status"] = { phase: "Failed", reason: "Evicted", message: "low on disk" }));
  await until(async () => (await stateOf(driver)) === "left");
  expect((await driver.status(ID))?.detail).toBe("evicted by its node (node node-1): low on disk");
});

test("a coordinator starts while its cluster is away, and knows what runs once it is back", async () => {
  await (await open()).create(spec());
  await api.away();
  const driver = await open();
  await expect(driver.list()).rejects.toMatchObject({ code: "cluster_unavailable" });
  await api.start();
  await until(async () => (await driver.list().catch(() => [])).length === 1);
  expect(await driver.list()).toMatchObject([{ id: ID, session: "ses-0a1b2c3d", generation: 1, state: "running" }]);
});

test("a pod that others end is `ending` until its processes are gone", async () => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  api.delete(ID, 60);
  await until(async () => (await stateOf(driver)) === "ending");
  expect((await driver.status(ID))?.detail).toBe("its pod was deleted");
  api.change("pods", ID, (pod) => {
    pod["status"].containerStatuses = [
      { restartCount: 0, state: { terminated: { exitCode: 0, reason: "Completed" } } },
    ];
  });
  await until(async () => (await stateOf(driver)) === "left");
});

test("a node that answers nobody does not keep its pod `ending` for good", async () => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  api.delete(ID, 60);
  await until(async () => (await stateOf(driver)) === "ending");
  now += 100_000;
  expect(await stateOf(driver)).toBe("left");
});

const disruptions: [string, string, string][] = [
  ["DeletionByPodGC", "node gone", "its node is gone (node node-1)"],
  ["PreemptionByScheduler", "", "preempted for a pod of higher priority (node node-1)"],
  ["EvictionByEvictionAPI", "Eviction API: evicting", "evicted, as by a node drain (node node-1)"],
  ["DeletionByTaintManager", "spot machine taken back", "its node was tainted or became unreachable (node node-1)"],
];
test.each(disruptions)("a pod that is gone says why: %s", async (reason, message, said) => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  api.change("pods", ID, (pod) => {
    pod["status"].conditions = [{ type: "DisruptionTarget", status: "True", reason, message }];
  });
  api.drop("pods", ID);
  await until(async () => (await stateOf(driver)) === "left");
  expect((await driver.status(ID))?.detail).toBe(said);
});

test("before conditions named disruptions, events do", async () => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  api.event(ID, "TaintManagerEviction", "Marking for deletion Pod boxes/sbx");
  await until(async () => (await driver.status(ID))?.start === null);
  api.delete(ID, 30);
  await until(async () => (await stateOf(driver)) === "ending");
  expect((await driver.status(ID))?.detail).toMatch(/^its node was tainted or became unreachable/);
});

test("a pod that went while the coordinator was away says why, where events tell", async () => {
  const first = await open();
  await first.create(spec());
  await first.close();
  api.event(ID, "Evicted", "The node was low on resource: memory.");
  api.drop("pods", ID);
  const driver = await open();
  await until(async () => (await driver.status(ID)) !== null);
  expect(await driver.status(ID)).toMatchObject({
    state: "left",
    session: "ses-0a1b2c3d",
    generation: 1,
    detail: "evicted by its node: The node was low on resource: memory.",
  });
  expect(await driver.status("sbx-0a1b2c3d-g9")).toBeNull();
});

test("a container that ran out of memory is started again in place, and that is told", async () => {
  const driver = await open();
  await driver.create(spec());
  api.change("pods", ID, running);
  api.change("pods", ID, (pod) => {
    const lastState = { terminated: { exitCode: 137, reason: "OOMKilled" } };
    pod["status"].containerStatuses = [{ restartCount: 1, state: { running: {} }, lastState }];
  });
  await until(async () => (await driver.status(ID))?.restarts.count === 1);
  expect(await driver.status(ID)).toMatchObject({
    state: "running",
    restarts: { count: 1, why: "out of memory: raise its memory limit" },
  });
});

test("after a restart every pod is found again, and destroyed ones are gone", async () => {
  await (await open()).create(spec());
  const driver = await open();
  expect((await driver.list()).map(({ id }) => id)).toEqual([ID]);
  await driver.destroy(ID);
  await until(async () => (await stateOf(driver)) === "left");
  api.drop("pods", ID);
  await until(async () => (await driver.list()).length === 0);
  await driver.destroy(ID);
  expect(await driver.status(ID)).toBeNull();
});
