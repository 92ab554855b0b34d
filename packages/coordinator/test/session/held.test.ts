/** Files that a checkpoint leaves out keep their sandbox, until their hold ends or somebody accepts the loss. */
import type { SuspendSession } from "@hangar/shared";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { codeOf, Daemon, OWNER, World } from "./world.ts";

const HUGE = { leftOut: ["huge.bin"] };
const NAMED = [{ path: "huge.bin", size: 1 }];
let world: World;
let one: Replica;
let id: string;
let daemon: Daemon;

async function up(hours: number): Promise<void> {
  world.settings = { ...world.settings, left_out_hold_hours: hours };
  one = await world.replica();
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git", idle_minutes: 10 });
  await one.sessions.keep(OWNER, "fix", { ttl_minutes: 0 });
  id = session.id;
  await one.loops.runDue();
  daemon = await Daemon.ready(world, one, session.sandbox_id!);
  await one.loops.runDue();
}
beforeEach(async () => {
  world = await World.open();
});
afterEach(() => world.close());

const get = () => one.sessions.get(OWNER, "fix");
const suspend = (input: Partial<SuspendSession> = {}) =>
  one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false, ...input });
const quiet = async (minutes: number): Promise<void> => {
  world.pass(minutes);
  await daemon.heartbeat();
  await one.loops.runDue();
};
async function statuses(): Promise<(string | null)[]> {
  const found: (string | null)[] = [];
  const stop = AbortSignal.timeout(300);
  for await (const { event } of one.sessions.events(OWNER, "fix", "0", stop))
    if (event.type === "state") found.push(event.status);
  return found;
}

it("are shown, hold an idle session for as long as is set, and then go with their names", async () => {
  await up(24);
  expect((await get()).held).toBeNull();
  await daemon.checkpoint("manual", HUGE);
  const active = Date.parse((await get()).last_active_at);
  expect((await get()).held).toEqual({ files: NAMED, until: new Date(active + 24 * 3_600_000).toISOString() });
  await quiet(60);
  const session = await get();
  expect(session).toMatchObject({
    state: "IDLE",
    status: expect.stringMatching(/^Held until .*huge\.bin.*--accept-loss$/),
  });
  await quiet(60);
  expect((await statuses()).filter((status) => status?.startsWith("Held"))).toHaveLength(1);
  await quiet(24 * 60);
  expect(await get()).toMatchObject({ state: "SUSPENDING" });
  await daemon.freeze(HUGE);
  await one.loops.runDue();
  const ended = await get();
  expect(ended).toMatchObject({ state: "SUSPENDED", held: null });
  expect(ended.status).toMatch(/10 minutes without activity; left out and gone: huge\.bin/);
});

it("hold it also where the suspend's own checkpoint is the first to leave them out", async () => {
  await up(24);
  await daemon.checkpoint("manual");
  await quiet(60);
  expect(await get()).toMatchObject({ state: "SUSPENDING" });
  await daemon.freeze(HUGE);
  await one.loops.runDue();
  expect(await get()).toMatchObject({
    state: "IDLE",
    status: expect.stringMatching(/^Held until/),
    held: { files: NAMED },
  });
  expect(world.driver.destroyed).toEqual([]);
  expect((await daemon.command("thaw")).command.kind).toBe("thaw");
  await quiet(60);
  expect(await get()).toMatchObject({ state: "IDLE" });
});

it("are not thrown away by a plain suspend, which says what to do", async () => {
  await up(24);
  await daemon.checkpoint("manual", HUGE);
  expect(await codeOf(suspend())).toBe("would_lose");
  await expect(suspend()).rejects.toThrow(/huge\.bin .* in no checkpoint .*hangar session suspend fix --accept-loss$/);
  expect(await get()).toMatchObject({ state: "IDLE" });
  await suspend({ accept_loss: true });
  await one.loops.runDue();
  await daemon.freeze(HUGE);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED", status: "left out and gone: huge.bin (0.0 MB)" });
});

it("stop a plain suspend whose checkpoint finds them, once", async () => {
  await up(24);
  await suspend();
  await one.loops.runDue();
  await daemon.freeze(HUGE);
  await one.loops.runDue();
  const session = await get();
  expect(session).toMatchObject({ state: "IDLE", status: expect.stringMatching(/^Not suspended: huge\.bin/) });
  await quiet(5);
  expect(await get()).toMatchObject({ state: "IDLE", status: session.status });
});

it("hold nothing where no hours are set", async () => {
  await up(0);
  await daemon.checkpoint("manual", HUGE);
  expect((await get()).held).toBeNull();
  await quiet(11);
  expect(await get()).toMatchObject({ state: "SUSPENDING" });
  await daemon.freeze(HUGE);
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED", status: expect.stringContaining("huge.bin") });
});

it("hold nothing any more once they are lost: a restored workspace goes on naming them", async () => {
  await up(24);
  await suspend({ accept_loss: true });
  await one.loops.runDue();
  const checkpoint = await daemon.freeze(HUGE);
  await one.loops.runDue();
  const opened = await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  daemon = await Daemon.dial(world, one, opened.sandbox_id!);
  await daemon.say({ ...RESTORED, checkpoint });
  await daemon.say({ type: "phase", phase: "ready", detail: null });
  await one.loops.runDue();
  await daemon.checkpoint("manual", HUGE);
  expect(await get()).toMatchObject({ state: "IDLE", held: null, restored_from: { checkpoint } });
  await quiet(11);
  expect(await get()).toMatchObject({ state: "SUSPENDING" });
  expect(id).toBe((await get()).id);
});

const RESTORED = {
  type: "restored" as const,
  source: "checkpoint" as const,
  verified: true,
  missing: [],
  bad: [],
  warnings: [],
  seconds: {},
};
