/**
 * Hot resume, with a real API server and real pods. Pod Snapshots are a stand-in (test/stand-ins/pod-snapshots.ts): the API
 * server knows who asks, holds them to the Role, and passes on to it; nothing keeps or restores memory. So what is seen is that a
 * suspend asks for the snapshot in the right shape and with the rights that the manifests give, that the next pod names it, and
 * that a pod which begins from nothing has all of the checkpoint.
 */
import { ApiextensionsV1Api, ApiregistrationV1Api, CustomObjectsApi, KubeConfig } from "@kubernetes/client-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { POD_SNAPSHOT_DEFINITIONS, type PodSnapshotApi, startPodSnapshotApi } from "../stand-ins/pod-snapshots.ts";
import { onCluster } from "./on-cluster.ts";

const API_SERVICE = "v1.podsnapshot.gke.io";
const GROUP = { group: "podsnapshot.gke.io", version: "v1" };
const options = {
  rigOnly: "custom resources are stood in for",
  manifests: ["pod-snapshots"],
  settings: () => ({ HANGAR_KUBERNETES_SNAPSHOTS: "storage" }),
};

await onCluster(options, (on) => {
  const administrator = (): KubeConfig => {
    const config = new KubeConfig();
    config.loadFromFile(on.found.kubeconfig);
    return config;
  };

  // None of their objects: this build of the API server (1.20, by a Go that its vendored reflect2 does not know) dies of each.
  test("the definitions that the stand-in goes by are ones that an API server takes", async () => {
    const api = administrator().makeApiClient(ApiextensionsV1Api);
    const names = POD_SNAPSHOT_DEFINITIONS.map(({ metadata }) => metadata.name);
    try {
      for (const definition of POD_SNAPSHOT_DEFINITIONS) {
        const metadata = {
          ...definition.metadata,
          annotations: { "api-approved.kubernetes.io": "unapproved, a test" },
        };
        await api.createCustomResourceDefinition({ body: { ...definition, metadata } });
      }
      for (const name of names) {
        const is = async () => {
          const { status } = await api.readCustomResourceDefinition({ name });
          return (status?.conditions ?? []).filter((one) => one.status === "True").map(({ type }) => type);
        };
        await expect.poll(is, { timeout: 20_000 }).toEqual(expect.arrayContaining(["NamesAccepted", "Established"]));
        expect(await is()).not.toContain("NonStructuralSchema");
      }
    } finally {
      for (const name of names) await api.deleteCustomResourceDefinition({ name }).catch(() => undefined);
    }
    const left = async () => (await api.listCustomResourceDefinition()).items.map(({ metadata }) => metadata?.name);
    for (const name of names) await expect.poll(left, { timeout: 30_000 }).not.toContain(name);
  });

  describe("with the stand-in behind the API server", () => {
    let snapshots: PodSnapshotApi;
    const services = () => administrator().makeApiClient(ApiregistrationV1Api);

    beforeAll(async () => {
      const { core } = on.cluster.api;
      snapshots = await startPodSnapshotApi(async (namespace, name) => {
        return (await core.readNamespacedPod({ namespace, name })).metadata?.labels ?? {};
      });
      const { namespace } = on.cluster;
      const [name, port] = ["pod-snapshots-stand-in", snapshots.port];
      const spec = { type: "ExternalName", externalName: "localhost", ports: [{ port }] };
      await core.createNamespacedService({ namespace, body: { metadata: { name }, spec } });
      await services().createAPIService({
        body: {
          metadata: { name: API_SERVICE },
          spec: {
            ...GROUP,
            groupPriorityMinimum: 1000,
            versionPriority: 10,
            insecureSkipTLSVerify: true,
            service: { namespace, name, port },
          },
        },
      });
      const isThere = async () => {
        const { status } = await services().readAPIService({ name: API_SERVICE });
        const available = status?.conditions?.find(({ type }) => type === "Available");
        if (available?.status !== "True") throw new Error(`not available: ${available?.message}`);
      };
      await vi.waitFor(isThere, { timeout: 60_000, interval: 250 });
    }, 90_000);
    // Before its namespace: a group that nobody answers for holds up the end of every namespace.
    afterAll(async () => {
      await services().deleteAPIService({ name: API_SERVICE });
      await snapshots.close();
    });

    const kept = () => [...snapshots.objects.keys()].filter((key) => key.startsWith("podsnapshots/"));
    const suspend = async (name: string): Promise<string> => {
      const { sandbox_id } = await on.hangar.session(name);
      await on.hangar.api("POST", `/api/sessions/${name}/suspend`, {});
      await on.hangar.until(name, "suspended", (s) => s.state === "SUSPENDED", 120);
      return sandbox_id!;
    };
    const restoresFrom = async (name: string): Promise<string | undefined> => {
      const { sandbox_id } = await on.hangar.session(name);
      const pod = await on.cluster.api.core.readNamespacedPod({
        namespace: on.cluster.namespace,
        name: sandbox_id!,
      });
      return pod.metadata?.annotations?.["podsnapshot.gke.io/ps-name"];
    };

    test("a suspend has the pod's memory kept beside its checkpoint; the next pod names it, and has the checkpoint", async () => {
      await on.make("hot", { hot_resume: true });
      await on.hangar.turn("hot", "echo kept > kept.txt; git add kept.txt");
      const pod = await suspend("hot");
      expect(snapshots.objects.get(`podsnapshotmanualtriggers/${pod}`)?.spec).toEqual({ targetPod: pod });
      expect(snapshots.objects.get("podsnapshotpolicies/hangar-hangar")?.spec).toMatchObject({
        storageConfigName: "storage",
        triggerConfig: { type: "manual" },
      });
      expect(kept()).toEqual([`podsnapshots/snapshot-of-${pod}`]);
      expect((await on.hangar.session("hot")).checkpoints.at(-1)).toMatchObject({ bad: null, paired: true });

      await on.hangar.api("POST", "/api/sessions/hot/open", {});
      const opened = await on.idle("hot");
      expect(await restoresFrom("hot")).toBe(`snapshot-of-${pod}`);
      expect(opened).toMatchObject({ generation: 2, restored_from: { verified: true, missing: [] } });
      expect((await on.hangar.exec("hot", "git", "status", "--short")).stdout).toBe("A  kept.txt\n");
      // It holds the session's secrets, and was used.
      await expect.poll(kept, { timeout: 30_000 }).toEqual([]);
      const { namespace } = on.cluster;
      const by = `by system:serviceaccount:${namespace}:hangar-coordinator`;
      expect(new Set(snapshots.requests)).toEqual(
        new Set([
          `POST podsnapshotpolicies ${by}`,
          `POST podsnapshotmanualtriggers ${by}`,
          `GET podsnapshotmanualtriggers ${by}`,
          `GET podsnapshots ${by}`,
          `DELETE podsnapshots ${by}`,
        ]),
      );
    });

    test("one that fails costs nothing but itself", async () => {
      snapshots.ready = { status: "False", reason: "UploadFailed", message: "no such bucket" };
      await on.make("failed", { hot_resume: true });
      await on.hangar.turn("failed", "echo kept > kept.txt");
      await suspend("failed");
      expect(await on.hangar.turn("failed", "cat kept.txt", 120)).toMatchObject({ state: "done", summary: "kept" });
      expect(await restoresFrom("failed")).toBeUndefined();
    });

    test("the API server holds the coordinator to the Role: it sees no other snapshots, and ends no triggers", async () => {
      const config = new KubeConfig();
      config.loadFromFile(on.cluster.settings["HANGAR_KUBERNETES_CONFIG"]!);
      const custom = config.makeApiClient(CustomObjectsApi);
      const { namespace } = on.cluster;
      const before = snapshots.requests.length;
      const refused = { code: 403 };
      const all = { ...GROUP, namespace, plural: "podsnapshots" };
      await expect(custom.listNamespacedCustomObject(all)).rejects.toMatchObject(refused);
      const trigger = { ...GROUP, namespace, plural: "podsnapshotmanualtriggers", name: "x" };
      await expect(custom.deleteNamespacedCustomObject(trigger)).rejects.toMatchObject(refused);
      const elsewhere = { ...GROUP, namespace: "default", plural: "podsnapshots", name: "x" };
      await expect(custom.deleteNamespacedCustomObject(elsewhere)).rejects.toMatchObject(refused);
      expect(snapshots.requests).toHaveLength(before);
    });
  });
});
