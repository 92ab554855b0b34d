/** Warm pools: kept at their size in their hours, claimed by one session each, handed over, replaced, retired. */
import { AGENT_ENV, Environment, HangarError } from "@hangar/shared";
import type { ToWarm } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Driver } from "../../src/driver/driver.ts";
import type { ImageBuilder } from "../../src/images/builder.ts";
import { buildingDriver } from "../../src/images/building-driver.ts";
import { makeWarmLoop } from "../../src/warm/loop.ts";
import { poolStatus } from "../../src/warm/pool.ts";
import { makeWarmSide } from "../../src/warm/warm-side.ts";
import { codeOf, Daemon, OWNER, type Replica, World } from "../session/world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
});
afterEach(() => world.close());

const pools = (replica = one) => makeWarmLoop(replica.deps, OWNER).runDue();
const side = (replica = one) => makeWarmSide(replica.deps);
const waiting = (): string[] => [...world.driver.waiting.keys()];

async function apply(more: object = {}): Promise<void> {
  const environment = Environment.parse({ name: "web", repo: "/srv/repo.git", warm_pool: 2, ...more });
  await one.deps.environments.put(OWNER, environment);
  await one.deps.pools.nudge(`${OWNER}/web`, world.now);
  await pools();
}
const token = (id: string): string => world.driver.waiting.get(id)!.env[AGENT_ENV.token]!;
async function ready(...ids: string[]): Promise<void> {
  for (const id of ids) {
    expect(await side().authenticate(token(id))).toBe(id);
    await side().report(id, "ready", null);
    world.now += 1;
  }
  await pools();
}
const create = (name: string, more: object = {}) =>
  one.sessions.create(OWNER, { name, environment: "web", idle_minutes: 30, ...more });
async function told(id: string, replica = one): Promise<ToWarm> {
  const done = new AbortController();
  for await (const frame of side(replica).follow(id, done.signal)) {
    done.abort();
    return frame;
  }
  throw new Error("nothing came");
}
const status = async () => poolStatus(one.deps, OWNER, (await one.deps.environments.get(OWNER, "web"))!);
const passes = async (minutes: number): Promise<void> => {
  world.pass(minutes);
  await pools();
};

describe("a pool", () => {
  it("is filled to its size, with tokens of its own and no secrets, and says how it is", async () => {
    await apply({ secrets: ["API_KEY"] });
    expect(waiting()).toHaveLength(2);
    expect(await status()).toMatchObject({ wanted: 2, ready: 0, starting: 2, problem: null });
    await ready(...waiting());
    expect(await status()).toMatchObject({ wanted: 2, ready: 2, starting: 0 });
    await passes(0.1);
    expect(waiting()).toHaveLength(2);
    const [first = ""] = waiting();
    expect(await side().welcome(first)).toMatchObject({
      type: "welcome",
      boot: { repo: "/srv/repo.git", cwd: "/workspace/repo", setup: null },
    });
    expect(JSON.stringify(await side().welcome(first))).not.toContain("API_KEY");
    expect(await codeOf(side().authenticate(`${token(first).slice(0, -1)}x`))).toBe("unauthorized");
    expect(await codeOf(one.agents.authenticate(token(first)))).toBe("unauthorized");
  });

  it("shrinks and is drained outside of its hours, and filled again when they begin", async () => {
    await apply({ warm_pool_hours: "Tue 08:00-12:00 UTC" });
    expect(await status()).toMatchObject({ wanted: 2, changes_at: "2026-12-01T12:00:00.000Z" });
    const [first = ""] = waiting();
    await ready(first);
    await apply({ warm_pool: 1, warm_pool_hours: "Tue 08:00-12:00 UTC" });
    expect(waiting()).toEqual([first]);
    await ready(first);
    world.now = Date.parse("2026-12-01T11:59:59Z");
    await one.deps.warm.heard(first, world.now);
    await pools();
    expect(waiting()).toEqual([first]);
    world.now = Date.parse("2026-12-01T12:00:00Z");
    await pools();
    expect(waiting()).toEqual([]);
    expect(await one.deps.pools.next()).toBe(Date.parse("2026-12-08T08:00:00Z"));
    world.now = Date.parse("2026-12-08T08:00:00Z");
    await pools();
    expect(waiting()).toHaveLength(1);
  });

  it.each([
    ["the setup", { setup: "make deps" }, ""],
    ["the image", {}, "registry.example/sandbox:2"],
  ])("is recycled when %s changes", async (_, more, image) => {
    await apply();
    const before = waiting();
    await ready(...before);
    world.driver.image = image;
    await apply(more);
    expect(waiting()).toHaveLength(2);
    expect(waiting().some((id) => before.includes(id))).toBe(false);
    expect(await told(before[0]!)).toEqual({ type: "retired" });
  });

  it("replaces one that is gone, stale, or not heard of", async () => {
    await apply({ warm_pool: 3 });
    const [gone = "", stale = "", silent = ""] = waiting();
    await ready(gone, stale, silent);
    world.driver.waiting.delete(gone);
    await side().report(stale, "stale", "history was rewritten");
    await passes(0);
    expect(waiting()).toHaveLength(3);
    expect(waiting()).toContain(silent);
    expect(waiting()).not.toContain(stale);
    await passes(4);
    expect(waiting()).not.toContain(silent);
  });

  it("says why one failed, and tries another only after a while", async () => {
    await apply({ warm_pool: 1 });
    const [first = ""] = waiting();
    await side().report(first, "failed", "The setup script ended with 1: no such package");
    await pools();
    expect(waiting()).toEqual([]);
    expect((await status()).problem).toContain("no such package");
    await passes(1);
    expect(waiting()).toEqual([]);
    await passes(5);
    expect(waiting()).toHaveLength(1);
    const [second = ""] = waiting();
    world.driver.said.set(second, { start: { failed: "The image cannot be pulled: no", code: "image_pull_failed" } });
    await passes(0.1);
    expect((await status()).problem).toContain("cannot be pulled");
  });

  it("has nobody's sandboxes ended: of a Redis that lost its data, or a replica that was killed", async () => {
    await apply();
    const [first = "", second = ""] = waiting();
    const record = (await one.deps.warm.get(first))!;
    await one.deps.warm.change(record, null);
    const loop = makeWarmLoop(one.deps, OWNER);
    await loop.start();
    await expect.poll(waiting).not.toContain(first);
    expect(waiting()).toContain(second);
    await loop.stop();
  });

  describe("whose image is to be built", () => {
    type Built = Awaited<ReturnType<ImageBuilder["ensure"]>>;
    let built: Built;
    let asked: string[];
    beforeEach(() => {
      built = "building";
      asked = [];
      const ensure = ({ name }: { name: string }): Promise<Built> => {
        asked.push(name);
        return Promise.resolve(built);
      };
      const images = { builder: { ensure }, registry: "registry.example", base: "sandbox:1" };
      const plain = { warm: { ...world.driver.warm } } as unknown as Driver;
      const { warm } = buildingDriver(plain, images);
      world.driver.warm.create = (spec) => warm!.create(spec);
    });
    const image = () => [...world.driver.waiting.values()].map(({ kubernetes }) => kubernetes?.image);
    const kubernetes = (script: string) => ({ kubernetes: { build: { script } } });

    it("has no sandboxes before it is there, says so, and is filled then", async () => {
      await apply({ warm_pool: 3, ...kubernetes("true") });
      expect(waiting()).toEqual([]);
      expect(await status()).toEqual({
        wanted: 3,
        ready: 0,
        starting: 1,
        phase: "building the image",
        changes_at: null,
        problem: null,
      });
      // Longer than any start may take: it is asked for now and then, once for all of them.
      for (let minutes = 0; minutes < 40; minutes += 5) await passes(5);
      expect(asked).toHaveLength(9);
      expect(waiting()).toEqual([]);
      expect(await status()).toMatchObject({ starting: 1, phase: "building the image", problem: null });
      expect(world.logged.filter(({ level }) => level === "warn")).toEqual([]);
      built = "ready";
      await passes(0.1);
      expect(image()).toEqual([asked[0], asked[0], asked[0]]);
      expect(await status()).toMatchObject({ wanted: 3, starting: 3, phase: "starting" });
      await ready(...waiting());
      expect(await status()).toMatchObject({ ready: 3, starting: 0, phase: null });
      await passes(1);
      expect(image()).toHaveLength(3);
    });

    it("says what the build said, and has it tried again after a while, not for each of its sandboxes", async () => {
      await apply({ warm_pool: 3, ...kubernetes("exit 3") });
      built = { failed: "the script ended with 3" };
      await passes(0.1);
      expect(asked).toHaveLength(2);
      expect(await status()).toMatchObject({
        starting: 0,
        phase: null,
        problem: "The image cannot be built: the script ended with 3",
      });
      for (let minutes = 0; minutes < 4; minutes++) await passes(1);
      expect(asked).toHaveLength(2);
      built = "building";
      await passes(1);
      expect(await status()).toMatchObject({ starting: 1, phase: "building the image", problem: null });
      // Another script is another image: nothing is left of the first.
      built = "ready";
      await apply({ warm_pool: 1, ...kubernetes("true") });
      expect(new Set(asked).size).toBe(2);
      expect(image()).toEqual([asked.at(-1)]);
    });

    it("takes what a daemon said before its record did", async () => {
      await apply({ warm_pool: 1, ...kubernetes("true") });
      built = "ready";
      const create = world.driver.warm.create.bind(world.driver.warm);
      world.driver.warm.create = async (spec) => {
        await create(spec);
        await side().report(spec.id, "ready", null);
      };
      await passes(0.1);
      expect(await status()).toMatchObject({ ready: 1, starting: 0 });
      await passes(0.1);
      expect(asked).toHaveLength(2);
    });
  });

  it("ends with its environment", async () => {
    await apply();
    await one.deps.environments.remove(OWNER, "web");
    await one.deps.pools.nudge(`${OWNER}/web`, world.now);
    await pools();
    expect(waiting()).toEqual([]);
    expect(await one.deps.pools.next()).toBeNull();
  });
});

describe("a claim", () => {
  it("gives two opens at once two sandboxes, by any replica, and hands over each session's token", async () => {
    const two = await world.replica();
    await apply();
    const ids = waiting();
    await ready(...ids);
    const [a, b] = await Promise.all([create("a"), create("b")]);
    await Promise.all([one.loops.runDue(), two.loops.runDue(), one.loops.runDue()]);
    expect(world.driver.created).toEqual([]);
    expect(waiting()).toEqual([]);
    expect(new Set(world.driver.sandboxes.keys())).toEqual(new Set([a.sandbox_id, b.sandbox_id]));
    const handed = await Promise.all(ids.map((id) => told(id, two)));
    const claims = handed.map((frame) => (frame.type === "claimed" ? frame : null));
    expect(new Set(claims.map((claim) => claim?.sandbox))).toEqual(new Set([a.sandbox_id, b.sandbox_id]));
    const agent = await one.agents.authenticate(claims[0]!.token);
    expect(agent.sandbox).toBe(claims[0]!.sandbox);
    expect((await one.agents.boot(agent)).sandbox).toBe(claims[0]!.sandbox);
    // Replaced in the background, and forgotten once the sessions' daemons were heard.
    await pools();
    expect(waiting()).toHaveLength(2);
    await one.agents.connected(agent, { protocol: 1, sandbox: agent.sandbox, last_command: null }, "one");
    await passes(0.1);
    const left = (await one.deps.warm.list()).filter(({ claimed_by }) => claimed_by !== null);
    expect(left.map(({ claimed_by }) => claimed_by)).toEqual([claims[1]!.sandbox]);
  });

  it("makes none where a replica has decided to make one, and makes none beside a claimed one", async () => {
    await apply({ warm_pool: 1 });
    const session = await create("cold");
    await one.loops.runDue();
    expect(world.driver.created).toEqual([session.sandbox_id]);
    await ready(...waiting());
    // Its start is gone on with by somebody who finds a ready one now.
    world.driver.sandboxes.clear();
    await one.deps.sessions.change(session.id, {}, { set: { sandbox_made: false }, dueBy: world.now });
    await one.loops.runDue();
    expect(world.driver.created).toEqual([session.sandbox_id, session.sandbox_id]);
    expect(waiting()).toHaveLength(1);
  });

  it("whose answer never came is gone on with, and makes no second sandbox", async () => {
    await apply({ warm_pool: 2 });
    const [first = ""] = waiting();
    await ready(...waiting());
    const { warm } = world.driver;
    const claim = warm.claim.bind(warm);
    let calls = 0;
    warm.claim = async (id, as) => {
      await claim(id, as);
      if (calls++ === 0) throw new HangarError("cluster_unavailable", "no answer came");
      return true;
    };
    const session = await create("cut");
    await one.loops.runDue();
    world.pass(0.1);
    await one.loops.runDue();
    expect(calls).toBe(2);
    expect(world.driver.created).toEqual([]);
    expect([...world.driver.sandboxes.keys()]).toEqual([session.sandbox_id]);
    expect(await told(first)).toMatchObject({ type: "claimed", sandbox: session.sandbox_id });
  });

  it("passes over one that is not ready, not heard of, or made for another repo or environment", async () => {
    await apply({ warm_pool: 1 });
    await create("busy");
    await one.loops.runDue();
    expect(world.driver.created).toHaveLength(1);
    await ready(...waiting());
    await create("other", { repo: "/srv/other.git" });
    await one.loops.runDue();
    expect(world.driver.created).toHaveLength(2);
    world.pass(1);
    await create("silent");
    await one.loops.runDue();
    expect(world.driver.created).toHaveLength(3);
    expect(waiting()).toHaveLength(1);
  });

  it("of one that has just gone starts again, without it", async () => {
    await apply({ warm_pool: 1 });
    const [first = ""] = waiting();
    await ready(first);
    world.driver.waiting.get(first)!.state = "left";
    const session = await create("late");
    await one.loops.runDue();
    world.pass(1);
    await one.loops.runDue();
    const after = await one.sessions.get(OWNER, "late");
    expect(after).toMatchObject({ state: "STARTING", generation: 2 });
    expect(world.driver.created).toEqual([`sbx-${session.id.slice(4)}-g2`]);
  });

  it("that its daemon does not take in a lease's time is given up for another start", async () => {
    await apply({ warm_pool: 1 });
    await ready(...waiting());
    await create("mute");
    await one.loops.runDue();
    world.pass(1.1);
    await one.loops.runDue();
    world.pass(1);
    await one.loops.runDue();
    const events: string[] = [];
    for (const { event } of await one.deps.events.read((await one.sessions.get(OWNER, "mute")).id, "0", 100)) {
      if (event.type === "state") events.push(event.status ?? "");
    }
    expect(events.join()).toContain("The warm sandbox did not take the session");
    expect((await one.sessions.get(OWNER, "mute")).generation).toBe(2);
  });

  it("serves a resume as well as a first start", async () => {
    await apply({ warm_pool: 1 });
    const session = await create("back");
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    await one.sessions.suspend(OWNER, "back", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await daemon.freeze();
    await one.loops.runDue();
    const [first = ""] = waiting();
    await ready(first);
    await one.sessions.open(OWNER, "back", {});
    await one.loops.runDue();
    const frame = await told(first);
    const agent = await one.agents.authenticate(frame.type === "claimed" ? frame.token : "");
    expect(agent.generation).toBe(2);
    expect((await one.agents.boot(agent)).candidates).toHaveLength(1);
  });
});
