/** The coordinator or the API server is away while real pods start, work and end: one pod for each start, and nothing lost. */
import { expect, test } from "vitest";
import { sleep } from "../support/hangar.ts";
import { onCluster } from "./on-cluster.ts";

await onCluster({}, (on) => {
  test("killed and started again during a start: the same pod becomes ready", async () => {
    await on.make("killed");
    await expect.poll(() => on.podsOf("killed"), { timeout: 30_000, interval: 50 }).toHaveLength(1);
    await on.hangar.restart();
    const session = await on.idle("killed");
    expect(session.generation).toBe(1);
    expect(await on.podsOf("killed")).toEqual([session.sandbox_id]);
  });

  test("away for a turn: the turn runs on in its pod, and its end is told later", async () => {
    const { turn } = await on.hangar.api<{ turn: { id: string } }>("POST", "/api/sessions/killed/send", {
      message: "sleep 3; echo through",
    });
    await on.hangar.until("killed", "at work", (s) => s.turns[0]?.started_at !== null && s.state === "ACTIVE");
    await on.hangar.replica.kill("SIGKILL");
    await sleep(4000);
    await on.hangar.restart();
    const after = await on.hangar.until("killed", "through", (s) => s.state === "IDLE" && s.turns[0]?.state === "done");
    expect(after.turns[0]).toMatchObject({ id: turn.id, state: "done", summary: "through" });
  });

  test("two replicas start one session: one pod", async () => {
    const { redis } = await on.hangar.api<{ redis: string }>("GET", "/api/status");
    const second = await on.hangar.start({ HANGAR_REDIS_URL: redis });
    await on.make("both");
    await on.idle("both");
    await on.hangar.api("POST", "/api/sessions/both/suspend", {});
    await on.hangar.until("both", "suspended", (s) => s.state === "SUSPENDED");
    await Promise.all([
      on.hangar.api("POST", "/api/sessions/both/open", {}),
      on.hangar.api("POST", "/api/sessions/both/open", {}, second),
      on.hangar.api("POST", "/api/sessions/both/send", { message: "echo one" }, second),
      on.hangar.api("POST", "/api/sessions/both/send", { message: "echo two" }),
    ]);
    const session = await on.hangar.until(
      "both",
      "through",
      (s) => s.turns.every((turn) => turn.state === "done") && s.state === "IDLE",
      120,
    );
    expect(session.turns).toHaveLength(2);
    expect(session.generation).toBe(2);
    const sandboxes = (await on.podsOf("both")).filter((pod) => pod !== `${session.sandbox_id?.replace(/g2$/, "g1")}`);
    expect(sandboxes).toEqual([session.sandbox_id]);
    await second.kill("SIGTERM");
  });

  test.skipIf(!on.isRig)(
    "the API server is away: turns run on; starts say so and go on; a suspend waits for it",
    async () => {
      await on.make("through-it");
      await on.idle("through-it");
      await on.make("suspends");
      await on.hangar.turn("suspends", "echo kept > kept.txt");
      await on.cluster.withoutApi(async () => {
        const turn = await on.hangar.turn("through-it", "echo while it is away");
        expect(turn).toMatchObject({ state: "done", summary: "while it is away" });
        await on.make("starts");
        const waiting = await on.hangar.until("starts", "told", (s) => (s.status ?? "").includes("API server"), 60);
        expect(waiting.state).toBe("STARTING");
        expect(waiting.status).toContain("the cluster's API server cannot be reached");
        await on.hangar.api("POST", "/api/sessions/suspends/suspend", {});
        await sleep(3000);
        expect((await on.hangar.session("suspends")).state).toBe("SUSPENDING");
        expect((await on.hangar.session("through-it")).state).toBe("IDLE");
      });
      expect((await on.idle("starts")).generation).toBe(1);
      await on.hangar.until("suspends", "suspended", (s) => s.state === "SUSPENDED", 90);
      await expect.poll(() => on.podsOf("suspends"), { timeout: 150_000, interval: 500 }).toEqual([]);
      await on.hangar.turn("suspends", "cat kept.txt", 120);
      expect((await on.hangar.session("through-it")).generation).toBe(1);
    },
  );
});
