/** What a driver says of a sandbox beyond that it runs: what its start waits for, that others end it, that it was restarted. */
import { HangarError } from "@hangar/shared";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { Daemon, OWNER, World } from "./world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  world.driver.keepsFolders = false;
  one = await world.replica();
});
afterEach(() => world.close());

const get = () => one.sessions.get(OWNER, "fix");
const look = async (): Promise<void> => {
  await one.deps.due.nudge((await get()).id, world.now);
  await one.loops.runDue();
};
const events = async (type: string) =>
  (await one.deps.events.read((await get()).id, "0", 1000)).flatMap(({ event }) =>
    event.type === type ? [event] : [],
  );

async function starting(): Promise<string> {
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git" });
  await one.loops.runDue();
  return session.sandbox_id!;
}
async function up(): Promise<Daemon> {
  const daemon = await Daemon.ready(world, one, await starting());
  await one.loops.runDue();
  return daemon;
}

it("a start shows what it waits for, once each, until its daemon is heard", async () => {
  const id = await starting();
  world.driver.said.set(id, { start: { waits: "adding a node to the cluster" } });
  await look();
  await look();
  world.driver.said.set(id, { start: { waits: "pulling the image" } });
  await look();
  expect(await get()).toMatchObject({ state: "STARTING", phase: "starting", status: "pulling the image" });
  // It runs, and its daemon is not heard yet: that is no longer what it waits for.
  world.driver.said.set(id, { start: null });
  await look();
  expect(await get()).toMatchObject({ state: "STARTING", phase: "starting", status: "starting" });
  expect((await events("phase")).map((event) => "text" in event && event.text)).toEqual([
    "adding a node to the cluster",
    "pulling the image",
    "starting",
  ]);
  await Daemon.ready(world, one, id);
  await look();
  expect(await get()).toMatchObject({ state: "IDLE", status: null });
});

it("a start that takes too long names what it hung in: the cluster's part, or the daemon's", async () => {
  const id = await starting();
  world.driver.said.set(id, { start: { waits: "a quota is exhausted (SSD_TOTAL_GB)" } });
  await look();
  world.pass(16);
  await look();
  expect((await get()).status).toContain("hung in: a quota is exhausted (SSD_TOTAL_GB)");

  await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "STARTING", status: "starting" });
  const daemon = await Daemon.dial(world, one, (await get()).sandbox_id!);
  // What a daemon says is not put in other words by itself.
  await daemon.say({ type: "phase", phase: "cloning", detail: "/srv/repo.git", text: "something else" });
  expect(await get()).toMatchObject({ status: "cloning (/srv/repo.git)" });
  await daemon.say({ type: "phase", phase: "setup", detail: null });
  expect(await get()).toMatchObject({ status: "running setup" });
  expect((await events("phase")).slice(-2)).toMatchObject([
    { text: "cloning (/srv/repo.git)" },
    { text: "running setup" },
  ]);
  world.pass(16);
  await look();
  expect((await get()).status).toContain("hung in: running setup");
});

it("a start that cannot succeed fails at once with its line, and its sandbox is destroyed", async () => {
  const id = await starting();
  const failed = "The image cannot be pulled: no such tag";
  world.driver.said.set(id, { start: { code: "image_pull_failed", failed } });
  await look();
  expect(await get()).toMatchObject({ state: "FAILED", status: failed, sandbox_id: null });
  expect(world.driver.destroyed).toEqual([id]);
});

it("a start that the cluster refuses for now says why, is tried again, and makes one sandbox", async () => {
  let refuse = true;
  world.driver.beforeCreate = () =>
    refuse ? Promise.reject(new HangarError("quota_exhausted", "a quota is exhausted (pods)")) : Promise.resolve();
  await starting();
  expect(await get()).toMatchObject({ state: "STARTING", status: "a quota is exhausted (pods)" });
  refuse = false;
  await look();
  expect(world.driver.created).toHaveLength(1);
});

it("a sandbox that was made and is gone before it was heard is not made again: the next generation is", async () => {
  const id = await starting();
  world.driver.crash(id, false);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED", status: expect.stringContaining("it is started again") });
  world.pass(1);
  await one.loops.runDue();
  expect(world.driver.created).toEqual([id, id.replace(/g1$/, "g2")]);
});

it("while others end it nothing new is given to it; what waits runs in the next one", async () => {
  const daemon = await up();
  const id = daemon.agent.sandbox;
  world.driver.said.set(id, { state: "ending", detail: "evicted, as by a node drain" });
  await look();
  expect((await get()).status).toBe(
    "The sandbox is being ended (evicted, as by a node drain): a last checkpoint is taken",
  );
  await one.sessions.send(OWNER, "fix", { message: "go on" });
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "IDLE", turns: [{ state: "queued" }] });
  const last = await daemon.checkpoint("destroy");

  world.driver.said.delete(id);
  world.driver.crash(id, false);
  await one.loops.runDue();
  const next = await Daemon.ready(world, one, (await get()).sandbox_id!);
  expect(next.boot.candidates[0]?.checkpoint).toBe(last);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "ACTIVE", generation: 2, turns: [{ state: "running" }] });
});

const refuse = async (daemon: Daemon) => {
  const { id, command } = await daemon.command("turn");
  await one.agents.failure(daemon.agent, id, "wrong_state", "The sandbox is being suspended: no turn can be started");
  return command;
};

it("a turn that an ending sandbox would not begin runs in the next one, before those sent later, told the same", async () => {
  const daemon = await up();
  await daemon.checkpoint("manual");
  world.driver.said.set(daemon.agent.sandbox, { restarts: { count: 1, why: "out of memory" } });
  await look();
  await one.sessions.send(OWNER, "fix", { message: "first" });
  await one.loops.runDue();
  const given = await refuse(daemon);
  await one.sessions.send(OWNER, "fix", { message: "second" });
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "ACTIVE", turns: [{ state: "running" }, { state: "queued" }] });

  world.driver.crash(daemon.agent.sandbox, false);
  await one.loops.runDue();
  const next = await Daemon.ready(world, one, (await get()).sandbox_id!);
  await one.loops.runDue();
  const { command } = await next.command("turn");
  expect(command).toMatchObject({ turn: given.turn, message: "first" });
  expect(command.preamble).toContain("The machine was restarted (out of memory)");
  expect((await get()).turns).toMatchObject([{ state: "running" }, { state: "queued" }]);
});

it("a turn that a sandbox would not begin fails where that sandbox does not end", async () => {
  const daemon = await up();
  await one.sessions.send(OWNER, "fix", { message: "first" });
  await one.loops.runDue();
  await refuse(daemon);
  world.pass(2);
  await daemon.heartbeat();
  await look();
  expect(await get()).toMatchObject({ state: "ACTIVE" });
  world.pass(2);
  await daemon.heartbeat();
  await look();
  expect(await get()).toMatchObject({ state: "IDLE", turns: [{ state: "failed" }] });
});

it("a restart in place is told, also to the agent, and the session goes on", async () => {
  const daemon = await up();
  world.driver.said.set(daemon.agent.sandbox, { restarts: { count: 1, why: "out of memory" } });
  await look();
  await look();
  expect(await get()).toMatchObject({
    state: "IDLE",
    generation: 1,
    status: expect.stringContaining("(out of memory)"),
  });
  expect(await events("notice")).toHaveLength(1);
  await one.sessions.send(OWNER, "fix", { message: "go on" });
  await one.loops.runDue();
  const { command } = await daemon.command("turn");
  expect(command.preamble).toContain("The machine was restarted (out of memory)");
});

it("what ended is destroyed where its folder is of no use", async () => {
  const daemon = await up();
  await daemon.checkpoint("turn");
  world.driver.crash(daemon.agent.sandbox);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED", sandbox_id: null, leftover_sandbox: null });
  expect(world.driver.destroyed).toEqual([daemon.agent.sandbox]);
});
