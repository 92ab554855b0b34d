/** Warm pools of real pods: claimed by one session each, found again, ended with their sessions, replaced. */
import { WarmPoolStatus } from "@hangar/shared";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TestHangar } from "../support/hangar.ts";
import { findCluster, openCluster, type TestCluster } from "./cluster.ts";

const found = await findCluster();

describe.skipIf(found === null)("on a cluster", { timeout: 240_000 }, () => {
  let cluster: TestCluster;
  let hangar: TestHangar;
  let remote: string;

  beforeAll(async () => {
    cluster = await openCluster(found!);
    ({ hangar, remote } = await cluster.hangar());
  }, 300_000);
  afterAll(() => cluster?.close(), 120_000);

  const apply = (warm_pool: number, more: object = {}) =>
    hangar.api("PUT", "/api/environments/web", {
      name: "web",
      repo: remote,
      warm_pool,
      kubernetes: { requests: { cpu: "20m", memory: "64Mi" } },
      ...more,
    });
  const pool = async () => WarmPoolStatus.parse(await hangar.api("GET", "/api/environments/web/warm"));
  const full = (wanted: number) =>
    expect.poll(pool, { timeout: 90_000, interval: 250 }).toMatchObject({ wanted, ready: wanted, problem: null });
  const idle = (name: string) => hangar.until(name, "idle", (s) => s.state === "IDLE", 120);
  const waiting = async () => (await cluster.podNames()).filter((name) => name.startsWith("wrm-"));
  const labels = async (name: string) =>
    (await cluster.api.core.readNamespacedPod({ namespace: cluster.namespace, name })).metadata?.labels ?? {};

  test("two opens at once get two different pods, each in seconds, and the pool is filled again", async () => {
    await apply(2);
    await full(2);
    const before = await waiting();
    expect(before).toHaveLength(2);
    const begun = performance.now();
    await Promise.all(
      ["a", "b"].map((name) => hangar.api("POST", "/api/sessions", { name, environment: "web", idle_minutes: 0 })),
    );
    const [a, b] = await Promise.all([idle("a"), idle("b")]);
    expect(performance.now() - begun).toBeLessThan(15_000);
    expect((await cluster.podNames()).filter((name) => name.startsWith("sbx-"))).toEqual([]);
    const sessions = await Promise.all(before.map(async (name) => (await labels(name))["hangar.dev/session"]));
    expect(new Set(sessions)).toEqual(new Set([a.id, b.id]));
    expect((await hangar.exec("a", "pwd")).stdout).toBe("/workspace/widgets\n");
    await full(2);
    expect(await waiting()).toHaveLength(4);
  });

  test("the claimed pod is found after a restart of the coordinator, and goes with its session", async () => {
    await hangar.turn("a", "echo kept > kept.txt");
    await hangar.restart();
    await idle("a");
    const turn = await hangar.turn("a", "cat kept.txt");
    expect(turn.summary).toContain("kept");
    const session = await hangar.session("a");
    await hangar.api("POST", "/api/sessions/a/suspend", {});
    await hangar.until("a", "suspended", (s) => s.state === "SUSPENDED");
    const ofSession = async () => {
      const names = await cluster.podNames();
      const all = await Promise.all(names.map((name) => labels(name).catch(() => null)));
      return all.filter((one) => one?.["hangar.dev/session"] === session.id);
    };
    await expect.poll(ofSession, { timeout: 150_000, interval: 500 }).toEqual([]);
    await hangar.turn("a", "true");
    const again = await hangar.session("a");
    expect(again.restored_from).toMatchObject({ verified: true });
    expect(again.generation).toBe(2);
    expect((await hangar.exec("a", "cat", "kept.txt")).stdout).toBe("kept\n");
  });

  test("a claimed pod that is deleted by hand takes its last checkpoint, and the session resumes", async () => {
    await hangar.exec("b", "sh", "-c", "echo later > later.txt");
    const { id } = await hangar.session("b");
    const pods = await cluster.api.core.listNamespacedPod({
      namespace: cluster.namespace,
      labelSelector: `hangar.dev/session=${id}`,
    });
    const name = pods.items[0]?.metadata?.name ?? "";
    expect(name).toMatch(/^wrm-/);
    await cluster.api.core.deleteNamespacedPod({ namespace: cluster.namespace, name });
    const after = await hangar.until("b", "down", (s) => s.state === "SUSPENDED", 120);
    expect(after.status).toContain("its pod was deleted");
    await hangar.turn("b", "true");
    expect((await hangar.exec("b", "cat", "later.txt")).stdout).toBe("later\n");
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
