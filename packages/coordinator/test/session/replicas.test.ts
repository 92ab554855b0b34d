/** Two replicas on one Redis: races, and one that dies in the middle. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { Daemon, OWNER, World } from "./world.ts";

let world: World;
let one: Replica;
let two: Replica;
beforeEach(async () => {
  world = await World.open();
  [one, two] = [await world.replica(), await world.replica()];
});
afterEach(() => world.close());

async function suspended(): Promise<string> {
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git" });
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, session.sandbox_id!);
  await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
  await one.loops.runDue();
  await daemon.freeze();
  await one.loops.runDue();
  return session.id;
}

const never = (): Promise<never> => new Promise(() => {});
const bothDue = () => Promise.all([one.loops.runDue(), two.loops.runDue()]);

describe("opens", () => {
  it("at once join: one generation, one sandbox", async () => {
    const id = await suspended();
    const opened = await Promise.all(
      [one, two, one, two, one, two].map((replica) => replica.sessions.open(OWNER, "fix", {})),
    );
    expect(new Set(opened.map(({ generation }) => generation))).toEqual(new Set([2]));
    await bothDue();
    await bothDue();
    expect(world.driver.created).toEqual([`sbx-${id.slice(4)}-g1`, `sbx-${id.slice(4)}-g2`]);
  });

  it("cut off before the sandbox is made are finished by the other replica", async () => {
    await suspended();
    world.driver.beforeCreate = never;
    const { sandbox_id } = await one.sessions.open(OWNER, "fix", {});
    void one.loops.runDue();
    await expect.poll(() => one.deps.due.next()).toBeGreaterThan(world.now);

    world.driver.beforeCreate = () => Promise.resolve();
    expect(await two.loops.runDue()).toBe(0);
    world.pass(1);
    await two.loops.runDue();
    const daemon = await Daemon.ready(world, two, sandbox_id!);
    expect(daemon.boot.candidates).toHaveLength(1);
    expect(await two.sessions.get(OWNER, "fix")).toMatchObject({ state: "IDLE", generation: 2 });
  });
});

describe("suspends", () => {
  it("cut off after the freeze was given are finished by the other replica, with the same command", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    const { id } = await daemon.command("freeze");
    // The first replica is gone; the daemon dials the second.
    daemon.through(two);
    await two.deps.due.nudge(session.id, world.now);
    await two.loops.runDue();
    expect((await daemon.command("freeze")).id).toBe(id);
    await daemon.freeze();
    await two.loops.runDue();
    expect(await two.sessions.get(OWNER, "fix")).toMatchObject({ state: "SUSPENDED" });
    expect(world.driver.destroyed).toEqual([daemon.agent.sandbox]);
  });

  it("cut off while the sandbox is destroyed are finished by the other replica", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    world.driver.beforeDestroy = never;
    await daemon.freeze();
    void one.loops.runDue();
    await expect.poll(() => one.deps.due.next()).toBeGreaterThan(world.now);
    expect(await two.sessions.get(OWNER, "fix")).toMatchObject({ state: "SUSPENDING" });

    world.driver.beforeDestroy = () => Promise.resolve();
    world.pass(1);
    await two.loops.runDue();
    const after = await two.sessions.get(OWNER, "fix");
    expect(after).toMatchObject({ state: "SUSPENDED", checkpoints: [{ reason: "suspend" }] });
  });

  it("cut off after the sandbox is gone are not taken for a lost sandbox", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await daemon.freeze();
    await world.driver.destroy(daemon.agent.sandbox);
    await two.loops.runDue();
    expect(await two.sessions.get(OWNER, "fix")).toMatchObject({ state: "SUSPENDED", status: null });
  });
});

describe("events", () => {
  it("sent twice, through two replicas, are stored once", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    const event = { type: "notice", text: "only once" } as const;
    await Promise.all([one, two, one, two].map((replica) => daemon.through(replica).sayAs(100, event)));
    await daemon.sayAs(99, { type: "notice", text: "late" });
    const log = await one.deps.events.read(session.id, "0", 1000);
    expect(log.filter((entry) => entry.event.type === "notice").map((entry) => entry.event)).toEqual([event]);
    const welcome = await two.agents.connected(
      daemon.agent,
      { protocol: 1, sandbox: daemon.agent.sandbox, last_command: null },
      "two",
    );
    expect(welcome.acked).toBe(100);
  });

  it("of one turn's end, repeated, add its use once", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix", message: "go" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    await bothDue();
    const { command } = await daemon.command("turn");
    const usage = { input_tokens: 5, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, cost_usd: null };
    const result = { state: "done", exit_code: 0, summary: "s", error: null, harness_session: "c" } as const;
    const rest = { conversation_lost: false, handoff: false, usage };
    const finished = { type: "turn_finished", turn: command.turn, at: new Date(world.now).toISOString() } as const;
    const event = { ...finished, result: { ...result, ...rest } };
    await Promise.all([one, two, one].map((replica) => daemon.through(replica).sayAs(50, event)));
    expect(await one.sessions.get(OWNER, "fix")).toMatchObject({ usage: { input_tokens: 5 } });
  });

  it("reach a follower at the other replica, from where it left off", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    const seen: string[] = [];
    let last = "";
    const follow = async (from: string, until: string): Promise<void> => {
      const done = new AbortController();
      for await (const { id, event } of two.sessions.events(OWNER, "fix", from, done.signal)) {
        last = id;
        if (event.type === "notice") seen.push(event.text);
        if (event.type === "notice" && event.text === until) done.abort();
      }
    };
    const following = follow("0", "b");
    await daemon.say({ type: "notice", text: "a" });
    await daemon.say({ type: "notice", text: "b" });
    await following;
    await daemon.say({ type: "notice", text: "c" });
    await follow(last, "c");
    expect(seen).toEqual(["a", "b", "c"]);
  });
});

it("gives a waiting message to a sandbox once, whoever looks", async () => {
  const session = await one.sessions.create(OWNER, { name: "fix" });
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, session.sandbox_id!);
  await one.sessions.send(OWNER, "fix", { message: "a" });
  await one.sessions.send(OWNER, "fix", { message: "b" });
  for (let i = 0; i < 5; i++) {
    await two.deps.due.nudge(session.id, world.now);
    await bothDue();
  }
  const { commands } = one.redis;
  const given: string[] = [];
  const done = new AbortController();
  setTimeout(() => done.abort(), 300);
  for await (const { command } of commands.follow(daemon.agent.sandbox, done.signal)) given.push(command.kind);
  expect(given).toEqual(["turn"]);
});

it("looks again at what something happened to while it was looked at", async () => {
  await one.loops.start();
  let entered = (): void => {};
  let go = (): void => {};
  const inCreate = new Promise<void>((done) => (entered = done));
  world.driver.beforeCreate = () =>
    new Promise<void>((done) => {
      go = done;
      entered();
    });
  const session = await one.sessions.create(OWNER, { name: "fix" });
  await inCreate;
  await one.sessions.suspend(OWNER, "fix", { push: false, force: true, accept_loss: false });
  // Others are looked at meanwhile.
  world.driver.beforeCreate = () => Promise.resolve();
  await one.sessions.create(OWNER, { name: "other" });
  await expect.poll(() => world.driver.created.length).toBe(1);
  go();
  await expect.poll(async () => (await one.sessions.get(OWNER, "fix")).state).toBe("FAILED");
  await expect.poll(() => world.driver.sandboxes.has(session.sandbox_id!)).toBe(false);
  await one.loops.stop();
});

it("takes time limits side by side: one slow checkpoint delays no other", async () => {
  const daemons = new Map<string, Daemon>();
  for (const name of ["a", "b", "c"]) {
    const session = await one.sessions.create(OWNER, { name, idle_minutes: 0 });
    await one.loops.runDue();
    daemons.set(name, await Daemon.ready(world, one, session.sandbox_id!));
  }
  world.pass(1441);
  for (const daemon of daemons.values()) await daemon.heartbeat();
  await bothDue();
  for (const name of ["b", "c"]) await daemons.get(name)!.freeze();
  await bothDue();
  const states = (await one.sessions.list(OWNER, { all: true })).map(({ name, state }) => `${name} ${state}`);
  expect(states.sort()).toEqual(["a SUSPENDING", "b SUSPENDED", "c SUSPENDED"]);
});
