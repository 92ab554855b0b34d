/** What ends a pod, or keeps it from starting, on real pods: the session says what happened and goes on or resumes. */
import { expect, test } from "vitest";
import { onCluster } from "./on-cluster.ts";

await onCluster({}, (on) => {
  const down = (name: string) =>
    on.hangar.until(name, "down", (s) => s.state === "SUSPENDED" || s.state === "FAILED", 120);
  const pod = async (name: string): Promise<string> => (await on.hangar.session(name)).sandbox_id!;
  const read = async (name: string, file: string) => (await on.hangar.exec(name, "cat", file)).stdout;

  test("deleted by hand: a last checkpoint is taken inside the grace period, and nothing is lost", async () => {
    await on.make("by-hand");
    await on.hangar.turn("by-hand", "echo first > first.txt");
    // After the turn's checkpoint, so that only the last one can hold it.
    await on.hangar.exec("by-hand", "sh", "-c", "echo later > later.txt; git add later.txt; echo more >> later.txt");
    await on.cluster.api.core.deleteNamespacedPod({ namespace: on.cluster.namespace, name: await pod("by-hand") });
    const after = await down("by-hand");
    expect(after.state).toBe("SUSPENDED");
    expect(after.status).toContain("its pod was deleted");
    expect(after.checkpoints.at(-1)).toMatchObject({ reason: "destroy" });
    await on.hangar.turn("by-hand", "true");
    expect(await read("by-hand", "later.txt")).toBe("later\nmore\n");
    const { stdout } = await on.hangar.exec("by-hand", "git", "status", "--porcelain");
    expect(stdout).toContain("AM later.txt");
  });

  test("evicted under a turn: the turn is interrupted, what it did is kept, what waits runs in the next pod", async () => {
    await on.make("evicted");
    await on.idle("evicted");
    const sent = await on.hangar.api<{ turn: { id: string } }>("POST", "/api/sessions/evicted/send", {
      message: "echo begun > begun.txt; sleep 600",
    });
    await on.hangar.until("evicted", "at work", (s) => s.state === "ACTIVE" && s.turns[0]?.started_at !== null);
    await expect.poll(() => read("evicted", "begun.txt"), { timeout: 30_000 }).toBe("begun\n");
    const name = await pod("evicted");
    const body = {
      apiVersion: "policy/v1beta1",
      kind: "Eviction",
      metadata: { name, namespace: on.cluster.namespace },
    };
    await on.cluster.api.core.createNamespacedPodEviction({ namespace: on.cluster.namespace, name, body });
    await on.hangar.api("POST", "/api/sessions/evicted/send", { message: "cat begun.txt" });
    const after = await on.hangar.until(
      "evicted",
      "through",
      (s) => s.turns[1]?.state === "done" && s.state === "IDLE",
      150,
    );
    expect(after.generation).toBe(2);
    expect(after.turns[0]).toMatchObject({ id: sent.turn.id, state: "interrupted" });
    expect(after.turns[1]?.summary).toContain("begun");
  });

  test("deleted by force: the session resumes from its last checkpoint and says what happened", async () => {
    await on.make("forced");
    await on.hangar.turn("forced", "echo kept > kept.txt");
    await on.cluster.api.core.deleteNamespacedPod({
      namespace: on.cluster.namespace,
      name: await pod("forced"),
      gracePeriodSeconds: 0,
    });
    const after = await down("forced");
    expect(after).toMatchObject({ state: "SUSPENDED" });
    expect(after.status).toMatch(/its pod was deleted.*the next open restores the last checkpoint/);
    await on.hangar.turn("forced", "true");
    expect(await read("forced", "kept.txt")).toBe("kept\n");
  });

  test("out of memory: the container is started again in place, files stay, and the session says why", async () => {
    await on.make("hungry", { limits: { memory: "400Mi" } });
    await on.hangar.turn("hungry", "true");
    // With cgroup v2 everything in the container is killed together. With v1 only the largest process is, so the daemon
    // is killed by hand after it.
    const hog = `echo unsaved > unsaved.txt
sh -c 'head -c 3000000000 /dev/zero | tail > /dev/null'
sleep 2
kill -9 $(pgrep -f hangar-agent.mjs)`;
    const turn = await on.hangar.turn("hungry", hog, 120);
    expect(turn.state).toBe("interrupted");
    const after = await on.hangar.until(
      "hungry",
      "told",
      (s) => s.state === "IDLE" && /memory/.test(s.status ?? ""),
      60,
    );
    expect(after.generation).toBe(1);
    expect(after.status).toMatch(/started again in place \(out of memory/);
    const next = await on.hangar.turn("hungry", "cat unsaved.txt", 120);
    expect(next.summary).toContain("unsaved");
  });

  test("an image that is not there fails the start with its name; with another one the session opens", async () => {
    await on.make("no-image", { image: "localhost/no-such:image", image_pull_policy: "Never" });
    const failed = await down("no-image");
    expect(failed.state).toBe("FAILED");
    expect(failed.status).toMatch(/The image cannot be pulled: .*localhost\/no-such:image/);
    await expect
      .poll(() => on.cluster.podNames(), { timeout: 150_000, interval: 500 })
      .not.toContain(failed.sandbox_id);
    await on.hangar.api("PUT", "/api/environments/no-image", { name: "no-image", repo: on.remote, harness: "script" });
    await on.hangar.api("POST", "/api/sessions/no-image/open", {});
    await on.idle("no-image");
  });

  test("a registry that does not answer: the start says so while it is tried again", async () => {
    await on.make("no-registry", { image: "127.0.0.1:9/nothing:1" });
    const waiting = await on.hangar.until(
      "no-registry",
      "at the pull",
      (s) => /pulling the image/.test(s.status ?? ""),
      60,
    );
    expect(waiting.state).toBe("STARTING");
    const said = await on.hangar.until(
      "no-registry",
      "told why",
      (s) => /tried again \(.*127\.0\.0\.1:9/.test(s.status ?? ""),
      60,
    );
    expect(said.status).toContain("connection refused");
    await on.hangar.api("DELETE", "/api/sessions/no-registry?force=1");
    await expect
      .poll(() => on.cluster.podNames(), { timeout: 150_000, interval: 500 })
      .not.toContain(waiting.sandbox_id);
  });

  test("a quota: the start says which one, and goes on once there is room", async () => {
    const hard = { pods: String((await on.cluster.podNames()).length) };
    const metadata = { name: "few-pods" };
    await on.cluster.api.core.createNamespacedResourceQuota({
      namespace: on.cluster.namespace,
      body: { metadata, spec: { hard } },
    });
    await expect
      .poll(
        async () =>
          (await on.cluster.api.core.readNamespacedResourceQuota({ namespace: on.cluster.namespace, name: "few-pods" }))
            .status?.hard,
        { timeout: 30_000 },
      )
      .toBeDefined();
    await on.make("over-quota");
    const waiting = await on.hangar.until("over-quota", "refused", (s) => (s.status ?? "").includes("quota"), 60);
    expect(waiting).toMatchObject({ state: "STARTING" });
    expect(waiting.status).toContain("a quota is exhausted (few-pods)");
    await on.cluster.api.core.deleteNamespacedResourceQuota({ namespace: on.cluster.namespace, name: "few-pods" });
    expect((await on.idle("over-quota")).generation).toBe(1);
  });

  test("a pod that no node takes: the time-out names what it hung in", async () => {
    await on.hangar.restart({ HANGAR_START_TIMEOUT_MINUTES: "0.2" });
    await on.make("nowhere", { node_selector: { "no-such": "node" } });
    const failed = await down("nowhere");
    expect(failed.state).toBe("FAILED");
    expect(failed.status).toMatch(/hung in: waiting for a node with room \(.*(?:selector|affinity)/);
    await on.hangar.restart();
  });
});
