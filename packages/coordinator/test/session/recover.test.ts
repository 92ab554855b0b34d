/** Redis gone, its data gone: what was acknowledged is in the store. */
import { HangarError } from "@hangar/shared";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connectRedis } from "../../src/redis/connect.ts";
import type { Replica } from "./world.ts";
import { codeOf, Daemon, OWNER, World } from "./world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
});
afterEach(() => world.close());

async function forgetEverything(): Promise<void> {
  const redis = new Redis({ path: world.redis.url.slice("unix://".length) });
  await redis.flushall();
  redis.disconnect();
}

async function worked(): Promise<{ id: string; daemon: Daemon }> {
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git", title: "Fix it" });
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, session.sandbox_id!);
  await one.sessions.send(OWNER, "fix", { message: "build a boat" });
  await one.loops.runDue();
  await daemon.turn({ summary: "the hull" });
  await one.loops.runDue();
  return { id: session.id, daemon };
}

describe("data that was deleted", () => {
  it("is rebuilt: sessions with their checkpoints, turns and environment", async () => {
    const { id, daemon } = await worked();
    const turn = (await one.sessions.get(OWNER, id)).turns[0]!.id;
    const said = { check: "make test", exit_code: 2, timed_out: false, output: "no", turn };
    await one.deps.sessions.change(id, {}, { set: { last_check: { ...said, at: "2026-12-01T10:00:00.000Z" } } });
    await daemon.checkpoint("manual");
    const before = await one.sessions.get(OWNER, "fix");
    const environment = await one.deps.environments.get(OWNER, "fix");
    await forgetEverything();
    expect(await codeOf(one.agents.heartbeat(daemon.agent, {} as never))).toBe("redis_unavailable");
    await one.loops.start();
    await one.loops.stop();

    const after = await one.sessions.get(OWNER, id);
    expect(after).toMatchObject({
      state: "SUSPENDED",
      name: "fix",
      title: "Fix it",
      harness_session: "conversation-1",
    });
    expect(after.checkpoints).toEqual(before.checkpoints);
    expect(after.turns.map(({ message, summary }) => [message, summary])).toEqual([["build a boat", "the hull"]]);
    expect(after.usage).toEqual(before.usage);
    expect(after.last_check).toMatchObject(said);
    expect(await one.deps.environments.get(OWNER, "fix")).toMatchObject({ repo: environment!.repo, sessions: 1 });
    expect(world.logged.map(({ message }) => message)).toContain("a session was rebuilt");
  });

  it("leaves the sandbox that was running to be taken over, and no longer its owner", async () => {
    const { id, daemon } = await worked();
    await forgetEverything();
    await one.loops.start();
    await one.loops.stop();
    expect(await codeOf(daemon.say({ type: "notice", text: "x" }))).toBe("stale_generation");
    const opened = await one.sessions.open(OWNER, id, {});
    expect(opened.generation).toBe(2);
    await world.replica().then(({ loops }) => loops.runDue());
    const next = await Daemon.ready(world, one, opened.sandbox_id!);
    expect(next.boot).toMatchObject({ adopt: true });
    expect(next.boot.candidates).toHaveLength(1);
    expect(next.boot.identity).toMatch(/^AGE-SECRET-KEY-1/);
  });

  it("is noticed while running", async () => {
    const { id } = await worked();
    await one.loops.start();
    await forgetEverything();
    const state = async () => {
      // Anything that is due wakes the loops, which look whether the data is still there.
      await one.deps.due.nudge("ses-00000000", world.now);
      return (await one.deps.sessions.get(id))?.state;
    };
    await expect.poll(state, { timeout: 20_000 }).toBe("SUSPENDED");
    await one.loops.stop();
  });

  it("in part only gets back the checkpoints that are missing, and none that were pruned", async () => {
    world.settings = { ...world.settings, session_keep_checkpoints: 2 };
    one = await world.replica();
    const { id, daemon } = await worked();
    await daemon.through(one).checkpoint("manual");
    const last = await daemon.checkpoint("manual");
    const all = (await one.sessions.get(OWNER, id)).checkpoints;
    await one.deps.sessions.change(id, {}, { dropCheckpoints: [last] });
    await one.loops.start();
    await one.loops.stop();
    expect((await one.sessions.get(OWNER, id)).checkpoints).toEqual(all);
  });
});

describe("a Redis that cannot be reached", () => {
  it("is one clear error at start", async () => {
    await world.redis.kill();
    const starting = connectRedis({ url: world.redis.url, clock: Date.now });
    await expect(starting).rejects.toThrow(HangarError);
    await expect(starting).rejects.toMatchObject({ code: "redis_unavailable" });
  });

  it("is `redis_unavailable` while it is away; nothing acknowledged is lost and the loops go on", async () => {
    const { id, daemon } = await worked();
    await one.loops.start();
    const following = new AbortController();
    const seen: string[] = [];
    const follower = (async () => {
      for await (const { event } of one.sessions.events(OWNER, "fix", "$", following.signal)) {
        if (event.type === "notice") seen.push(event.text);
        if (event.type === "notice" && event.text === "after") following.abort();
      }
    })();
    const checkpoint = await daemon.checkpoint("manual");
    await world.redis.kill();
    expect(await codeOf(one.sessions.get(OWNER, "fix"))).toBe("redis_unavailable");
    await world.redis.start();
    await expect.poll(() => one.sessions.get(OWNER, "fix").catch(() => null), { timeout: 20_000 }).not.toBeNull();
    const session = await one.sessions.get(OWNER, "fix");
    expect(session.checkpoints.at(-1)!.id).toBe(checkpoint);
    expect(session).toMatchObject({ state: "IDLE", sandbox_id: daemon.agent.sandbox });
    await daemon.say({ type: "notice", text: "after" });
    await follower;
    expect(seen).toEqual(["after"]);

    await one.sessions.send(OWNER, "fix", { message: "go on" });
    await expect.poll(async () => (await one.deps.sessions.get(id))?.state, { timeout: 20_000 }).toBe("ACTIVE");
    expect((await daemon.command("turn")).command.message).toBe("go on");
    await one.loops.stop();
  });
});
