/** Idle sessions, time limits and lost sandboxes, by a clock that the tests move. */
import { HangarError } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { codeOf, Daemon, OWNER, sessionUp, World } from "./world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
});
afterEach(() => world.close());

const up = (name?: string, input?: object) => sessionUp(world, one, name, input);
const get = (ref: string) => one.sessions.get(OWNER, ref);

describe("idle", () => {
  it("suspends after its idle minutes without activity, and not before", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 10 });
    world.pass(9);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE" });
    world.pass(2);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDING" });
    await daemon.freeze();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", status: "Suspended after 10 minutes without activity" });
  });

  it.each([
    ["an open terminal", { terminals_open: 1 }],
    ["an attached tmux client", { tmux_clients: 1 }],
  ])("is put off by %s", async (_, activity) => {
    const { id, daemon } = await up("fix", { idle_minutes: 10 });
    for (let i = 0; i < 6; i++) {
      world.pass(5);
      await daemon.heartbeat(activity);
      await one.loops.runDue();
    }
    const session = await get(id);
    expect(session.state).toBe("IDLE");
    expect(session.kept_awake_by).toHaveLength(1);
    expect(Date.parse(session.expires_at!)).toBe(world.now + 1440 * 60_000);
  });

  it("counts a terminal from when it is opened, before the daemon reports it", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 1 });
    const opening = one.sessions.openTerminal(OWNER, "fix", { what: "shell", cols: 80, rows: 24, url: "ws://x" });
    const { id: command } = await daemon.command("terminal");
    await daemon.answer(command, {});
    await opening;
    world.pass(2);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE", kept_awake_by: ["1 open terminal"] });
  });

  it("is not decided on a report from before the limit", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 2 });
    world.pass(1);
    await daemon.heartbeat();
    world.pass(1.5);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE" });
    await daemon.heartbeat({ tmux_clients: 1 });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE" });
  });

  it("is put off by a use for 90 seconds", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 10 });
    await one.sessions.touch(OWNER, "fix");
    expect((await get(id)).kept_awake_by).toEqual(["used 0 s ago"]);
    world.pass(9);
    await one.sessions.touch(OWNER, "fix");
    world.pass(9);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE", kept_awake_by: [] });
  });

  it("never suspends with 0 idle minutes", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 10 });
    await one.sessions.keep(OWNER, "fix", { idle_minutes: 0, ttl_minutes: 0 });
    world.pass(100_000);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE", expires_at: null });
  });

  it("checkpoints before the time limit takes the sandbox, after a warning", async () => {
    const { id, daemon } = await up("fix", { idle_minutes: 0 });
    await one.sessions.keep(OWNER, "fix", { ttl_minutes: 60 });
    world.pass(55);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE", status: expect.stringContaining("time limit") });
    world.pass(6);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect((await daemon.command("freeze")).command.reason).toBe("destroy");
    expect(world.driver.destroyed).toEqual([]);
    await daemon.freeze();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", status: "Suspended at its time limit of 60 minutes" });
  });
});

describe("a lost sandbox", () => {
  it("interrupts its turn and is taken over by the next start", async () => {
    const { id, daemon } = await up();
    await one.sessions.send(OWNER, "fix", { message: "long" });
    await one.loops.runDue();
    await daemon.command("turn");
    world.driver.crash(daemon.agent.sandbox);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    const session = await get(id);
    expect(session).toMatchObject({ state: "SUSPENDED", leftover_sandbox: daemon.agent.sandbox });
    expect(session.turns).toMatchObject([{ state: "interrupted", error: expect.stringContaining("not run again") }]);
    expect(await codeOf(daemon.say({ type: "notice", text: "still here" }))).toBe("stale_generation");

    const opened = await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    expect(world.driver.sandboxes.get(opened.sandbox_id!)?.adopt).toBe(daemon.agent.sandbox);
    const next = await Daemon.ready(world, one, opened.sandbox_id!);
    expect(next.boot.adopt).toBe(true);
    expect(await get(id)).toMatchObject({ state: "IDLE", leftover_sandbox: null });
    await one.loops.runDue();
    expect((await get(id)).turns).toMatchObject([{ state: "interrupted" }]);
  });

  it("that never became ready is no work of the session's: it goes, and the checkpoint is restored", async () => {
    const { id, daemon } = await up();
    const checkpoint = await daemon.checkpoint("manual");
    world.driver.crash(daemon.agent.sandbox, false);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    const second = await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    const starting = await Daemon.dial(world, one, second.sandbox_id!);
    await starting.say({ type: "phase", phase: "cloning", detail: null });
    world.driver.crash(second.sandbox_id!);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", leftover_sandbox: null });
    expect(world.driver.sandboxes.size).toBe(0);

    world.pass(1);
    await one.loops.runDue();
    const third = await get(id);
    expect(third).toMatchObject({ state: "STARTING", generation: 3 });
    const next = await Daemon.ready(world, one, third.sandbox_id!);
    expect(next.boot).toMatchObject({ adopt: false, candidates: [{ checkpoint }] });
  });

  it("that was taken over is kept when the start that took it over fails", async () => {
    const { id, daemon } = await up();
    world.driver.crash(daemon.agent.sandbox);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    const second = await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    const starting = await Daemon.dial(world, one, second.sandbox_id!);
    await starting.say({ type: "start_failed", code: "missing_cli", error: "claude is not installed" });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "FAILED", leftover_sandbox: second.sandbox_id });
    expect(world.driver.destroyed).toEqual([]);
    expect(world.driver.sandboxes.get(second.sandbox_id!)?.state).toBe("left");

    const third = await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    expect(world.driver.sandboxes.get(third.sandbox_id!)?.adopt).toBe(second.sandbox_id);
  });

  it("is not taken over by a sandbox that could not be made", async () => {
    const { id, daemon } = await up();
    world.driver.crash(daemon.agent.sandbox);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    world.driver.beforeCreate = () => Promise.reject(new HangarError("missing_cli", "bubblewrap is not installed"));
    await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({
      state: "FAILED",
      status: "bubblewrap is not installed",
      leftover_sandbox: daemon.agent.sandbox,
    });
  });

  it("starts no more by itself when it keeps ending before it is ready", async () => {
    const { id, daemon } = await up();
    await daemon.checkpoint("manual");
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await daemon.freeze();
    await one.loops.runDue();
    await one.sessions.send(OWNER, "fix", { message: "go on" });
    for (let i = 0; i < 10; i++) {
      world.pass(1);
      await one.loops.runDue();
      const { sandbox_id } = await get(id);
      if (sandbox_id === null) continue;
      world.driver.crash(sandbox_id);
      await one.deps.due.nudge(id, world.now);
      await one.loops.runDue();
    }
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", generation: 4, turns: [{ state: "queued" }] });
  });

  it("leaves the session FAILED where nothing can be resumed", async () => {
    const { id, daemon } = await up();
    world.driver.crash(daemon.agent.sandbox, false);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "FAILED" });
    expect(await one.sessions.open(OWNER, "fix", {})).toMatchObject({ state: "STARTING", generation: 2 });
  });

  it("goes on with messages that wait", async () => {
    const { id, daemon } = await up();
    await daemon.checkpoint("manual");
    await one.sessions.send(OWNER, "fix", { message: "one" });
    await one.sessions.send(OWNER, "fix", { message: "two" });
    await one.loops.runDue();
    world.driver.crash(daemon.agent.sandbox, false);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    const session = await get(id);
    expect(session).toMatchObject({ state: "STARTING", generation: 2 });
    await one.loops.runDue();
    const next = await Daemon.ready(world, one, session.sandbox_id!);
    await one.loops.runDue();
    expect((await next.command("turn")).command.message).toBe("two");
  });

  it("is stopped, not destroyed, when it was silent for longer than its lease", async () => {
    const { id, daemon } = await up();
    await one.agents.disconnected(daemon.agent, "one");
    world.pass(2);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE" });
    world.pass(2);
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", leftover_sandbox: daemon.agent.sandbox });
    expect(world.driver.sandboxes.get(daemon.agent.sandbox)?.state).toBe("left");
    expect(world.driver.destroyed).toEqual([]);
  });
});
