/** Two coordinator replicas on one Redis and one cluster; one is killed in the middle of opens and of suspends, or its node is drained. */
import { beforeAll, expect, test } from "vitest";
import type { Session } from "@hangar/shared";
import { onCluster } from "./on-cluster.ts";

const NAMES = ["one", "two", "three", "four"];

// What a killed replica had claimed is another's after this.
const settings = () => ({ HANGAR_CLAIM_SECONDS: "4" });

await onCluster({ settings }, (on) => {
  beforeAll(async () => {
    const kubernetes = { requests: { cpu: "20m", memory: "64Mi" } };
    await on.hangar.api("PUT", "/api/environments/env", {
      name: "env",
      repo: on.remote,
      harness: "script",
      kubernetes,
    });
    for (const name of NAMES) {
      await on.hangar.api("POST", "/api/sessions", { name, environment: "env", message: `echo ${name} > own.txt` });
    }
    await all("through", (s) => s.state === "IDLE" && s.turns[0]?.state === "done");
  }, 300_000);

  const all = (what: string, is: (s: Session) => boolean) =>
    Promise.all(NAMES.map((name) => on.hangar.until(name, what, is, 150)));
  const second = async () => {
    const { redis } = await on.hangar.api<{ redis: string }>("GET", "/api/status");
    return on.hangar.start({ HANGAR_REDIS_URL: redis });
  };

  test("one is killed during suspends: the other ends them, and nothing is lost", async () => {
    const other = await second();
    await Promise.all(NAMES.map((name) => on.hangar.api("POST", `/api/sessions/${name}/suspend`, {}, other)));
    await on.hangar.until("one", "suspending", (s) => s.state === "SUSPENDING" || s.state === "SUSPENDED");
    await other.kill("SIGKILL");
    const after = await all("suspended", (s) => s.state === "SUSPENDED");
    expect(after.every(({ checkpoints }) => checkpoints.at(-1)?.bad === null)).toBe(true);
  });

  test("one is killed during opens: the other goes on with them, and each has one pod", async () => {
    const other = await second();
    await Promise.all(NAMES.map((name) => on.hangar.api("POST", `/api/sessions/${name}/open`, {}, other)));
    const begun = async () => (await on.cluster.podNames()).filter((pod) => pod.endsWith("-g2")).length;
    await expect.poll(begun, { timeout: 30_000, interval: 20 }).toBeGreaterThan(0);
    await other.kill("SIGKILL");
    const after = await all("idle", (s) => s.state === "IDLE");
    for (const session of after) {
      expect(session).toMatchObject({ generation: 2, restored_from: { verified: true } });
      const pods = (await on.podsOf(session.name)).filter((pod) => !pod.endsWith("-g1"));
      expect(pods).toEqual([session.sandbox_id]);
      expect((await on.hangar.exec(session.name, "cat", "own.txt")).stdout).toBe(`${session.name}\n`);
    }
  });

  test.skipIf(!on.isRig)(
    "its node is drained: a last checkpoint, a start that waits for a node, and the session as it was",
    async () => {
      await on.hangar.exec("one", "sh", "-c", "echo drained > later.txt");
      const node = (await on.cluster.api.core.listNode()).items[0]?.metadata?.name ?? "";
      const { sandbox_id: name } = await on.hangar.session("one");
      await on.cluster.cordon(node, true);
      try {
        const metadata = { name: name ?? "", namespace: on.cluster.namespace };
        const body = { apiVersion: "policy/v1beta1", kind: "Eviction", metadata };
        await on.cluster.api.core.createNamespacedPodEviction({
          namespace: on.cluster.namespace,
          name: name ?? "",
          body,
        });
        const down = await on.hangar.until("one", "down", (s) => s.state === "SUSPENDED", 120);
        expect(down.status).toMatch(/evicted|deleted/);
        await on.hangar.api("POST", "/api/sessions/one/send", { message: "cat later.txt" });
        const waits = await on.hangar.until("one", "told", (s) => /waiting for a node/.test(s.status ?? ""), 60);
        expect(waits.state).toBe("STARTING");
      } finally {
        await on.cluster.cordon(node, false);
      }
      const after = await on.hangar.until("one", "through", (s) => s.turns[1]?.state === "done", 120);
      expect(after.turns[1]?.summary).toContain("drained");
    },
  );
});
