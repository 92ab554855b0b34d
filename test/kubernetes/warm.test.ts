/** Warm pools of real pods: claimed by one session each, found again, ended with their sessions, replaced. */
import { WarmPoolStatus } from "@hangar/shared";
import { expect, test } from "vitest";
import { onCluster } from "./on-cluster.ts";

await onCluster({}, (on) => {
  const apply = (warm_pool: number, more: object = {}) =>
    on.hangar.api("PUT", "/api/environments/web", {
      name: "web",
      repo: on.remote,
      warm_pool,
      kubernetes: { requests: { cpu: "20m", memory: "64Mi" } },
      ...more,
    });
  const pool = async () => WarmPoolStatus.parse(await on.hangar.api("GET", "/api/environments/web/warm"));
  const full = (wanted: number) =>
    expect.poll(pool, { timeout: 90_000, interval: 250 }).toMatchObject({ wanted, ready: wanted, problem: null });
  const waiting = async () => (await on.cluster.podNames()).filter((name) => name.startsWith("wrm-"));
  const labels = async (name: string) =>
    (await on.cluster.api.core.readNamespacedPod({ namespace: on.cluster.namespace, name })).metadata?.labels ?? {};

  test("two opens at once get two different pods, each in seconds, and the pool is filled again", async () => {
    await apply(2);
    await full(2);
    const before = await waiting();
    expect(before).toHaveLength(2);
    const begun = performance.now();
    await Promise.all(
      ["a", "b"].map((name) => on.hangar.api("POST", "/api/sessions", { name, environment: "web", idle_minutes: 0 })),
    );
    const [a, b] = await Promise.all([on.idle("a"), on.idle("b")]);
    expect(performance.now() - begun).toBeLessThan(15_000);
    expect((await on.cluster.podNames()).filter((name) => name.startsWith("sbx-"))).toEqual([]);
    const sessions = await Promise.all(before.map(async (name) => (await labels(name))["hangar.dev/session"]));
    expect(new Set(sessions)).toEqual(new Set([a.id, b.id]));
    expect((await on.hangar.exec("a", "pwd")).stdout).toBe("/workspace/widgets\n");
    await full(2);
    expect(await waiting()).toHaveLength(4);
  });

  test("the claimed pod is found after a restart of the coordinator, and goes with its session", async () => {
    await on.hangar.turn("a", "echo kept > kept.txt");
    await on.hangar.restart();
    await on.idle("a");
    const turn = await on.hangar.turn("a", "cat kept.txt");
    expect(turn.summary).toContain("kept");
    const session = await on.hangar.session("a");
    await on.hangar.api("POST", "/api/sessions/a/suspend", {});
    await on.hangar.until("a", "suspended", (s) => s.state === "SUSPENDED");
    const ofSession = async () => {
      const names = await on.cluster.podNames();
      const all = await Promise.all(names.map((name) => labels(name).catch(() => null)));
      return all.filter((one) => one?.["hangar.dev/session"] === session.id);
    };
    await expect.poll(ofSession, { timeout: 150_000, interval: 500 }).toEqual([]);
    await on.hangar.turn("a", "true");
    const again = await on.hangar.session("a");
    expect(again.restored_from).toMatchObject({ verified: true });
    expect(again.generation).toBe(2);
    expect((await on.hangar.exec("a", "cat", "kept.txt")).stdout).toBe("kept\n");
  });

  test("a claimed pod that is deleted by hand takes its last checkpoint, and the session resumes", async () => {
    await on.hangar.exec("b", "sh", "-c", "echo later > later.txt");
    const { id } = await on.hangar.session("b");
    const pods = await on.cluster.api.core.listNamespacedPod({
      namespace: on.cluster.namespace,
      labelSelector: `hangar.dev/session=${id}`,
    });
    const name = pods.items[0]?.metadata?.name ?? "";
    expect(name).toMatch(/^wrm-/);
    await on.cluster.api.core.deleteNamespacedPod({ namespace: on.cluster.namespace, name });
    const after = await on.hangar.until("b", "down", (s) => s.state === "SUSPENDED", 120);
    expect(after.status).toContain("its pod was deleted");
    await on.hangar.turn("b", "true");
    expect((await on.hangar.exec("b", "cat", "later.txt")).stdout).toBe("later\n");
  });

  test("an image that changes has the pool recycled, one that cannot be pulled says so; without a pool there are none", async () => {
    await full(2);
    const before = await waiting();
    const kubernetes = { image: "localhost/no-such:image", image_pull_policy: "Never" };
    await apply(1, { kubernetes });
    await expect.poll(async () => (await pool()).problem, { timeout: 60_000, interval: 250 }).toContain("no-such");
    await apply(0);
    const left = async () => {
      const names = await waiting();
      const all = await Promise.all(names.map((name) => labels(name).catch(() => ({ "hangar.dev/session": "gone" }))));
      return all.filter((one) => one["hangar.dev/session"] === undefined);
    };
    await expect.poll(left, { timeout: 150_000, interval: 500 }).toEqual([]);
    expect(before.length).toBeGreaterThanOrEqual(2);
  });
});
