/** How long a suspended session keeps its checkpoints, by a clock that the tests move. */
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { Daemon, OWNER, World } from "./world.ts";

const DAY = 24 * 60;
let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
});
afterEach(() => world.close());

/** A session that is suspended, its work in a checkpoint. */
async function suspended(days: number): Promise<string> {
  world.settings = { ...world.settings, session_retention_days: days };
  one = await world.replica();
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git" });
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, session.sandbox_id!);
  await one.loops.runDue();
  await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
  await one.loops.runDue();
  await daemon.freeze();
  await one.loops.runDue();
  expect(await get()).toMatchObject({ state: "SUSPENDED" });
  return session.id;
}

const get = () => one.sessions.get(OWNER, "fix");
const pass = async (minutes: number): Promise<void> => {
  world.pass(minutes);
  await one.loops.runDue();
  await one.loops.runDue();
};

it("keeps them for ever by default: a suspended session's newest checkpoint is its only copy", async () => {
  await suspended(0);
  await pass(400 * DAY);
  const session = await get();
  expect(session.state).toBe("SUSPENDED");
  expect(session.checkpoints.length).toBeGreaterThan(0);
});

it("archives after as many days as were asked for, and not before", async () => {
  await suspended(30);
  await pass(30 * DAY - 1);
  expect(await get()).toMatchObject({ state: "SUSPENDED" });
  await pass(2);
  expect(await get()).toMatchObject({ state: "ARCHIVED", status: "Not opened for 30 days", checkpoints: [] });
});

it("counts from when the session was last suspended", async () => {
  await suspended(30);
  await pass(20 * DAY);
  const opened = await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  const daemon = await Daemon.ready(world, one, opened.sandbox_id!);
  await one.loops.runDue();
  await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
  await one.loops.runDue();
  await daemon.freeze();
  await one.loops.runDue();
  await pass(20 * DAY);
  expect(await get()).toMatchObject({ state: "SUSPENDED" });
});
