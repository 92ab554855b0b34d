/** The coordinator or the API server is away while real pods start, work and end: one pod for each start, and nothing lost. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sleep, type TestHangar } from "../support/hangar.ts";
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

  const make = async (name: string) => {
    const kubernetes = { requests: { cpu: "20m", memory: "64Mi" } };
    await hangar.api("PUT", `/api/environments/${name}`, { name, repo: remote, harness: "script", kubernetes });
    await hangar.api("POST", "/api/sessions", { name, environment: name });
  };
  const idle = (name: string) => hangar.until(name, "idle", (s) => s.state === "IDLE", 120);
  const podsOf = async (name: string): Promise<string[]> => {
    const session = (await hangar.session(name)).id.slice(4);
    return (await cluster.podNames()).filter((pod) => pod.startsWith(`sbx-${session}-`));
  };

  test("killed and started again during a start: the same pod becomes ready", async () => {
    await make("killed");
    await expect.poll(() => podsOf("killed"), { timeout: 30_000, interval: 50 }).toHaveLength(1);
    await hangar.restart();
    const session = await idle("killed");
    expect(session.generation).toBe(1);
    expect(await podsOf("killed")).toEqual([session.sandbox_id]);
  });

  test("away for a turn: the turn runs on in its pod, and its end is told later", async () => {
    const { turn } = await hangar.api<{ turn: { id: string } }>("POST", "/api/sessions/killed/send", {
      message: "sleep 3; echo through",
    });
    await hangar.until("killed", "at work", (s) => s.turns[0]?.started_at !== null && s.state === "ACTIVE");
    await hangar.replica.kill("SIGKILL");
    await sleep(4000);
    await hangar.restart();
    const after = await hangar.until("killed", "through", (s) => s.state === "IDLE" && s.turns[0]?.state === "done");
    expect(after.turns[0]).toMatchObject({ id: turn.id, state: "done", summary: "through" });
  });

  test("two replicas start one session: one pod", async () => {
    const { redis } = await hangar.api<{ redis: string }>("GET", "/api/status");
    const second = await hangar.start({ HANGAR_REDIS_URL: redis });
    await make("both");
    await idle("both");
    await hangar.api("POST", "/api/sessions/both/suspend", {});
    await hangar.until("both", "suspended", (s) => s.state === "SUSPENDED");
    await Promise.all([
      hangar.api("POST", "/api/sessions/both/open", {}),
      hangar.api("POST", "/api/sessions/both/open", {}, second),
      hangar.api("POST", "/api/sessions/both/send", { message: "echo one" }, second),
      hangar.api("POST", "/api/sessions/both/send", { message: "echo two" }),
    ]);
    const session = await hangar.until(
      "both",
      "through",
      (s) => s.turns.every((turn) => turn.state === "done") && s.state === "IDLE",
      120,
    );
    expect(session.turns).toHaveLength(2);
    expect(session.generation).toBe(2);
    const sandboxes = (await podsOf("both")).filter((pod) => pod !== `${session.sandbox_id?.replace(/g2$/, "g1")}`);
    expect(sandboxes).toEqual([session.sandbox_id]);
    await second.kill("SIGTERM");
  });

  test.skipIf(!found?.isRig)(
    "the API server is away: turns run on; starts say so and go on; a suspend waits for it",
    async () => {
      await make("through-it");
      await idle("through-it");
      await make("suspends");
      await hangar.turn("suspends", "echo kept > kept.txt");
      await cluster.withoutApi(async () => {
        const turn = await hangar.turn("through-it", "echo while it is away");
        expect(turn).toMatchObject({ state: "done", summary: "while it is away" });
        await make("starts");
        const waiting = await hangar.until("starts", "told", (s) => (s.status ?? "").includes("API server"), 60);
        expect(waiting.state).toBe("STARTING");
        expect(waiting.status).toContain("the cluster's API server cannot be reached");
        await hangar.api("POST", "/api/sessions/suspends/suspend", {});
        await sleep(3000);
        expect((await hangar.session("suspends")).state).toBe("SUSPENDING");
        expect((await hangar.session("through-it")).state).toBe("IDLE");
      });
      expect((await idle("starts")).generation).toBe(1);
      await hangar.until("suspends", "suspended", (s) => s.state === "SUSPENDED", 90);
      await expect.poll(() => podsOf("suspends"), { timeout: 150_000, interval: 500 }).toEqual([]);
      await hangar.turn("suspends", "cat kept.txt", 120);
      expect((await hangar.session("through-it")).generation).toBe(1);
    },
  );
});
