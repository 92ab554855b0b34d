/** Hot resume: a suspend that keeps the memory too, a start that goes on with it, and every way in which that does not come about. */
import { AGENT_ENV, Environment, KubernetesPod } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { codeOf, Daemon, OWNER, type Replica, World } from "./world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
  world.driver.keepsFolders = false;
  world.driver.memory = "pending";
  const kubernetes = KubernetesPod.parse({ hot_resume: true });
  await one.deps.environments.put(OWNER, Environment.parse({ name: "web", repo: "/srv/repo.git", kubernetes }));
});
afterEach(() => world.close());

const get = () => one.sessions.get(OWNER, "fix");
const suspend = () => one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
const g = (id: string, generation: number): string => `sbx-${id.slice(4)}-g${generation}`;
const tokenOf = (sandbox: string): string => world.driver.sandboxes.get(sandbox)!.env[AGENT_ENV.token]!;

/** A session that is up and is told to suspend; its token, and how its freeze was asked for. */
async function suspending() {
  const { id } = await one.sessions.create(OWNER, { name: "fix", environment: "web" });
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, g(id, 1));
  const token = tokenOf(g(id, 1));
  await suspend();
  await one.loops.runDue();
  const { command } = await daemon.command("freeze");
  await daemon.freeze();
  await one.loops.runDue();
  return { id, token, command };
}

async function suspended() {
  const made = await suspending();
  world.driver.memory = { ready: "snap-1" };
  world.pass(0.1);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED" });
  return made;
}

async function opened() {
  const made = await suspended();
  await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  return made;
}

describe("a suspend", () => {
  it("stops what runs, keeps the memory once the checkpoint is committed, and destroys then", async () => {
    const { id, command } = await suspending();
    expect(command.keep_processes).toBe(true);
    expect(await get()).toMatchObject({ state: "SUSPENDING" });
    expect(world.driver.destroyed).toEqual([]);
    world.driver.memory = { ready: "snap-1" };
    world.pass(0.1);
    await one.loops.runDue();
    expect(await get()).toMatchObject({ state: "SUSPENDED" });
    expect(world.driver.destroyed).toEqual([g(id, 1)]);
  });

  it.each([
    ["fails", { failed: "no room in the bucket" } as const, 0.1],
    ["takes too long", "pending" as const, 4],
  ])("goes on with its checkpoint alone where the snapshot %s", async (_, memory, minutes) => {
    const { id } = await suspending();
    world.driver.memory = memory;
    world.pass(minutes);
    await one.loops.runDue();
    expect(await get()).toMatchObject({ state: "SUSPENDED" });
    await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    expect(world.driver.sandboxes.get(g(id, 2))?.snapshot).toBeNull();
  });

  it("keeps no memory where the environment does not ask for it", async () => {
    await one.deps.environments.put(OWNER, Environment.parse({ name: "web", repo: "/srv/repo.git" }));
    const { command } = await suspending();
    expect(command.keep_processes).toBeUndefined();
    expect(await get()).toMatchObject({ state: "SUSPENDED" });
  });
});

describe("an open", () => {
  it("tries the snapshot: the daemon that wakes in it goes on as the new sandbox, and the snapshot is dropped", async () => {
    const { id, token } = await opened();
    expect(world.driver.sandboxes.get(g(id, 2))?.snapshot).toBe("snap-1");
    expect(await codeOf(one.agents.authenticate(token))).toBe("stale_generation");
    const successor = await one.agents.successor(token);
    expect(successor.sandbox).toBe(g(id, 2));
    expect(await one.agents.successor(token)).toEqual(successor);
    const agent = await one.agents.authenticate(successor.token);
    await one.agents.connected(agent, { protocol: 1, sandbox: agent.sandbox, last_command: null }, "one");
    const boot = await one.agents.boot(agent);
    expect(boot).toMatchObject({ adopt: true, sandbox: g(id, 2) });
    expect(boot.candidates).toHaveLength(1);
    // From here on nobody else goes on as it.
    expect(await codeOf(one.agents.successor(token))).toBe("stale_generation");
    const none = { missing: [], bad: [], warnings: [], seconds: {} };
    await one.agents.event(agent, 1, {
      type: "restored",
      source: "adopted",
      checkpoint: null,
      verified: false,
      ...none,
    });
    await one.agents.event(agent, 2, { type: "phase", phase: "ready", detail: null });
    await one.loops.runDue();
    expect(await get()).toMatchObject({ state: "IDLE", generation: 2 });
    expect(world.driver.removed).toEqual(["snap-1"]);
  });

  it("falls back: a pod that begins from nothing restores the checkpoint, and the old token is worth nothing", async () => {
    const { id, token } = await opened();
    const daemon = await Daemon.ready(world, one, g(id, 2));
    expect(daemon.boot).toMatchObject({ adopt: false });
    expect(daemon.boot.candidates).toHaveLength(1);
    expect(await codeOf(one.agents.successor(token))).toBe("stale_generation");
    await one.loops.runDue();
    expect(await get()).toMatchObject({ state: "IDLE", generation: 2, restored_from: { verified: true } });
    expect(world.driver.removed).toEqual(["snap-1"]);
  });

  it("falls back: a restore that is never heard of is given up, and the next start does not try it", async () => {
    const { id, token } = await opened();
    world.pass(2.1);
    await one.loops.runDue();
    world.pass(1);
    await one.loops.runDue();
    expect(await get()).toMatchObject({ state: "STARTING", generation: 3 });
    expect(world.driver.sandboxes.get(g(id, 3))?.snapshot).toBeNull();
    expect(await codeOf(one.agents.successor(token))).toBe("stale_generation");
  });

  it("does not try it where the sandbox would be another, or another state is wanted", async () => {
    const { id } = await suspended();
    world.driver.image = "registry.example/sandbox:2";
    await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    expect(world.driver.sandboxes.get(g(id, 2))?.snapshot).toBeNull();
  });

  it("gives nobody a successor who has no token of the sandbox that was kept", async () => {
    const { token } = await opened();
    expect(await codeOf(one.agents.successor(`${token.slice(0, -2)}00`))).toBe("unauthorized");
    expect(await codeOf(one.agents.successor("hat1.nothing"))).toBe("unauthorized");
  });
});

it("a session that is removed takes its snapshot along", async () => {
  await suspended();
  await one.sessions.remove(OWNER, "fix", { force: false });
  await one.loops.runDue();
  expect(world.driver.removed).toEqual(["snap-1"]);
});
