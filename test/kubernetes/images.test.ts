/**
 * A session whose environment's image is to be built, with a real API server and real pods. The node pulls nothing from outside,
 * so BuildKit itself cannot run there: its Job is real, and a stand-in marks it done and puts an image by its name.
 */
import { BatchV1Api, KubeConfig, PatchStrategy, setHeaderOptions } from "@kubernetes/client-node";
import { WarmPoolStatus } from "@hangar/shared";
import { beforeAll, expect, test } from "vitest";
import { ctr } from "./cluster.ts";
import { onCluster } from "./on-cluster.ts";

await onCluster(
  {
    rigOnly: "an image can be put",
    timeout: 300_000,
    settings: ({ found, cluster }) => ({
      // What it may do to Jobs, manifests/buildkit says and test/manifests checks; here it is the cluster's administrator.
      HANGAR_KUBERNETES_CONFIG: found.kubeconfig,
      HANGAR_IMAGE_BUILDER: "buildkit",
      HANGAR_IMAGE_REGISTRY: "localhost",
      HANGAR_IMAGE_BUILD_NAMESPACE: cluster.namespace,
    }),
  },
  (on) => {
    let batch: BatchV1Api;
    beforeAll(() => {
      const config = new KubeConfig();
      config.loadFromFile(on.found.kubeconfig);
      batch = config.makeApiClient(BatchV1Api);
    });

    const environment = async (name: string, script: string, more: object = {}): Promise<void> => {
      const requests = { cpu: "20m", memory: "64Mi" };
      const kubernetes = { build: { script }, image_pull_policy: "Never", requests };
      await on.hangar.api("PUT", `/api/environments/${name}`, { name, repo: on.remote, kubernetes, ...more });
    };
    const session = async (name: string, script: string): Promise<void> => {
      await environment(name, script);
      await on.hangar.api("POST", "/api/sessions", { name, environment: name });
    };
    /** The one that is not over. */
    const job = async () =>
      (await batch.listNamespacedJob({ namespace: on.cluster.namespace })).items.find(
        ({ status }) => (status?.conditions ?? []).length === 0,
      );
    /** As if it had been pushed: the job's name, and the image's. */
    const finish = async (): Promise<{ name: string; image: string }> => {
      const name = (await job())?.metadata?.name ?? "";
      const image = `localhost/hangar-environment:${name.replace("hangar-build-", "")}`;
      await ctr("images", "tag", "--force", on.cluster.settings["HANGAR_SANDBOX_IMAGE"]!, image);
      await end(name, "Complete", "");
      return { name, image };
    };
    const forget = async ({ name, image }: { name: string; image: string }): Promise<void> => {
      await batch.deleteNamespacedJob({ namespace: on.cluster.namespace, name, propagationPolicy: "Background" });
      await ctr("images", "rm", image);
    };
    const end = async (name: string, type: string, message: string): Promise<void> => {
      const body = { status: { conditions: [{ type, status: "True", message }] } };
      const merge = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
      await batch.patchNamespacedJobStatus({ namespace: on.cluster.namespace, name, body }, merge);
    };

    test("a start says that it builds, makes one Job, and goes on in a pod of the built image", async () => {
      await session("built", "true");
      await on.hangar.until("built", "building", (s) => s.status === "building the image", 60);
      expect(await on.cluster.podNames()).not.toContain((await on.hangar.session("built")).sandbox_id);
      const made = await finish();
      await on.hangar.until("built", "up", (s) => s.state === "IDLE", 120);
      const { sandbox_id: id } = await on.hangar.session("built");
      const pod = await on.cluster.api.core.readNamespacedPod({ namespace: on.cluster.namespace, name: id ?? "" });
      expect(pod.spec?.containers[0]?.image).toBe(made.image);
      await forget(made);
    });

    test("a warm pool waits for its image, and says so; then its pods are of that image", async () => {
      await environment("warm", "echo warm", { warm_pool: 2 });
      const pool = async () => WarmPoolStatus.parse(await on.hangar.api("GET", "/api/environments/warm/warm"));
      const waiting = async () => (await on.cluster.podNames()).filter((name) => name.startsWith("wrm-"));
      const building = { ready: 0, starting: 1, phase: "building the image", problem: null };
      await expect.poll(pool, { timeout: 60_000, interval: 250 }).toMatchObject(building);
      // It has been asked for more than once by then.
      await new Promise((resolve) => setTimeout(resolve, 12_000));
      expect(await pool()).toMatchObject(building);
      expect(await waiting()).toEqual([]);
      const made = await finish();
      await expect.poll(pool, { timeout: 120_000, interval: 250 }).toMatchObject({ ready: 2, phase: null });
      const names = await waiting();
      const pods = names.map((name) =>
        on.cluster.api.core.readNamespacedPod({ namespace: on.cluster.namespace, name }),
      );
      const images = (await Promise.all(pods)).map(({ spec }) => spec?.containers[0]?.image);
      expect(images).toEqual([made.image, made.image]);
      await environment("warm", "echo warm");
      await forget(made);
    });

    test("a build that fails says why in the session, and the next open tries it again", async () => {
      await session("broken", "exit 3");
      await on.hangar.until("broken", "building", (s) => s.status === "building the image", 60);
      const name = (await job())?.metadata?.name ?? "";
      await end(name, "Failed", "the script ended with 3");
      const failed = await on.hangar.until("broken", "failed", (s) => s.state === "FAILED", 60);
      expect(failed.status).toContain("The image cannot be built: ");
      await on.hangar.api("POST", "/api/sessions/broken/open", {});
      await on.hangar.until("broken", "building again", (s) => s.status === "building the image", 60);
    });
  },
);
