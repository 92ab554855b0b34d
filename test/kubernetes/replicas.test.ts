/** Two coordinator replicas on one Redis and one cluster; one is killed in the middle of opens and of suspends, or its node is drained. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Session } from "@hangar/shared";
import type { TestHangar } from "../support/hangar.ts";
import { findCluster, openCluster, type TestCluster } from "./cluster.ts";

const found = await findCluster();
const NAMES = ["one", "two", "three", "four"];

describe.skipIf(found === null)("on a cluster", { timeout: 240_000 }, () => {
  let cluster: TestCluster;
  let hangar: TestHangar;
  let remote: string;

  beforeAll(async () => {
    cluster = await openCluster(found!);
    // What a killed replica had claimed is another's after this.
    ({ hangar, remote } = await cluster.hangar({ HANGAR_CLAIM_SECONDS: "4" }));
    const kubernetes = { requests: { cpu: "20m", memory: "64Mi" } };
    await hangar.api("PUT", "/api/environments/env", { name: "env", repo: remote, harness: "script", kubernetes });
    for (const name of NAMES) {
      await hangar.api("POST", "/api/sessions", { name, environment: "env", message: `echo ${name} > own.txt` });
    }
    await all("through", (s) => s.state === "IDLE" && s.turns[0]?.state === "done");
  }, 300_000);
  afterAll(() => cluster?.close(), 120_000);

  const all = (what: string, is: (s: Session) => boolean) =>
    Promise.all(NAMES.map((name) => hangar.until(name, what, is, 150)));
  const second = async () => {
    const { redis } = await hangar.api<{ redis: string }>("GET", "/api/status");
    return hangar.start({ HANGAR_REDIS_URL: redis });
  };
  const podsOf = async (session: string): Promise<string[]> =>
    (await cluster.podNames()).filter((pod) => pod.startsWith(`sbx-${session.slice(4)}-`));

  test("one is killed during suspends: the other ends them, and nothing is lost", async () => {
    const other = await second();
    await Promise.all(NAMES.map((name) => hangar.api("POST", `/api/sessions/${name}/suspend`, {}, other)));
    await hangar.until("one", "suspending", (s) => s.state === "SUSPENDING" || s.state === "SUSPENDED");
    await other.kill("SIGKILL");
    const after = await all("suspended", (s) => s.state === "SUSPENDED");
    expect(after.every(({ checkpoints }) => checkpoints.at(-1)?.bad === null)).toBe(true);
  });

  test("one is killed during opens: the other goes on with them, and each has one pod", async () => {
    const other = await second();
    await Promise.all(NAMES.map((name) => hangar.api("POST", `/api/sessions/${name}/open`, {}, other)));
    const begun = async () => (await cluster.podNames()).filter((pod) => pod.endsWith("-g2")).length;
    await expect.poll(begun, { timeout: 30_000, interval: 20 }).toBeGreaterThan(0);
    await other.kill("SIGKILL");
    const after = await all("idle", (s) => s.state === "IDLE");
    for (const session of after) {
      expect(session).toMatchObject({ generation: 2, restored_from: { verified: true } });
      const pods = (await podsOf(session.id)).filter((pod) => !pod.endsWith("-g1"));
      expect(pods).toEqual([session.sandbox_id]);
      expect((await hangar.exec(session.name, "cat", "own.txt")).stdout).toBe(`${session.name}\n`);
    }
  });

  test.skipIf(!found?.isRig)(
    "its node is drained: a last checkpoint, a start that waits for a node, and the session as it was",
    async () => {
      await hangar.exec("one", "sh", "-c", "echo drained > later.txt");
      const node = (await cluster.api.core.listNode()).items[0]?.metadata?.name ?? "";
      const { sandbox_id: name } = await hangar.session("one");
      await cluster.cordon(node, true);
      try {
        const metadata = { name: name ?? "", namespace: cluster.namespace };
        const body = { apiVersion: "policy/v1beta1", kind: "Eviction", metadata };
        await cluster.api.core.createNamespacedPodEviction({ namespace: cluster.namespace, name: name ?? "", body });
        const down = await hangar.until("one", "down", (s) => s.state === "SUSPENDED", 120);
        expect(down.status).toMatch(/evicted|deleted/);
        await hangar.api("POST", "/api/sessions/one/send", { message: "cat later.txt" });
        const waits = await hangar.until("one", "told", (s) => /waiting for a node/.test(s.status ?? ""), 60);
        expect(waits.state).toBe("STARTING");
      } finally {
        await cluster.cordon(node, false);
      }
      const after = await hangar.until("one", "through", (s) => s.turns[1]?.state === "done", 120);
      expect(after.turns[1]?.summary).toContain("drained");
    },
  );
});
