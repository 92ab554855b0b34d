/** A session's life through the two faces: new, suspend, open, archive, remove. */
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

describe("new", () => {
  it("starts a sandbox and is IDLE once that is ready", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git", harness: "claude" });
    expect(session).toMatchObject({ state: "STARTING", phase: "starting", generation: 1, environment: "fix" });
    expect(session).toMatchObject({ branch: "hangar/session/fix", harness: "claude", idle_minutes: 30 });
    await one.loops.runDue();
    const daemon = await Daemon.ready(world, one, session.sandbox_id!);
    expect(daemon.boot).toMatchObject({ cwd: "/workspace/repo", candidates: [], identity: null, adopt: false });
    expect(daemon.boot.recipients).toHaveLength(2);
    expect(await get("fix")).toMatchObject({ state: "IDLE", phase: "ready" });
  });

  it("refuses a name that is taken, and an environment that is not there", async () => {
    await one.sessions.create(OWNER, { name: "fix" });
    expect(await codeOf(one.sessions.create(OWNER, { name: "fix" }))).toBe("name_taken");
    expect(await codeOf(one.sessions.create(OWNER, { name: "other", environment: "none" }))).toBe(
      "environment_not_found",
    );
    expect(await codeOf(get("none"))).toBe("session_not_found");
  });

  it("refuses a name that looks like an id, and leaves nothing of a session that was refused", async () => {
    expect(await codeOf(one.sessions.create(OWNER, { name: "ses-00000000" }))).toBe("invalid_request");
    const made = await Promise.allSettled([1, 2, 3, 4].map(() => one.sessions.create(OWNER, { name: "fix" })));
    expect(made.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await keysOf("ses-")).toHaveLength(1);
    expect(await one.deps.environments.list(OWNER)).toMatchObject([{ name: "fix", sessions: 1 }]);
  });

  it("makes one of two sessions of one name", async () => {
    const two = await world.replica();
    const made = await Promise.allSettled(
      [one, two, one, two].map((replica) => replica.sessions.create(OWNER, { name: "fix", environment: "shared" })),
    );
    expect(made.every(({ status }) => status === "rejected")).toBe(true);
    const { harness } = await one.deps.environments.put(OWNER, {
      name: "shared",
      repo: null,
      base_branch: null,
      harness: "script",
      model: null,
      setup: null,
      check: null,
      variables: {},
      secrets: [],
      idle_minutes: 30,
      ttl_minutes: 60,
      keep_ignored: [],
      warm_pool: 0,
      warm_pool_hours: null,
      harnesses: [],
      kubernetes: null,
    });
    expect(harness).toBe("script");
    const again = await Promise.allSettled(
      [one, two, one, two].map((replica) => replica.sessions.create(OWNER, { name: "fix", environment: "shared" })),
    );
    expect(again.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await one.sessions.list(OWNER, { all: true })).toHaveLength(1);
    expect(await codeOf(one.deps.environments.remove(OWNER, "shared"))).toBe("environment_in_use");
  });

  it("fails the start with the name of a secret that is not set", async () => {
    const environment = {
      name: "env",
      repo: null,
      base_branch: null,
      harness: "script",
      model: null,
      harnesses: [],
      setup: null,
      check: null,
    };
    const more = {
      variables: {},
      secrets: ["API_KEY"],
      idle_minutes: 30,
      ttl_minutes: 0,
      keep_ignored: [],
      warm_pool: 0,
      warm_pool_hours: null,
      kubernetes: null,
    };
    await one.deps.environments.put(OWNER, { ...environment, ...more });
    const session = await one.sessions.create(OWNER, { name: "fix", environment: "env" });
    await one.loops.runDue();
    const daemon = await Daemon.dial(world, one, session.sandbox_id!);
    expect(await codeOf(one.agents.boot(daemon.agent))).toBe("missing_secret");
    expect(await get("fix")).toMatchObject({ state: "FAILED", status: expect.stringContaining("API_KEY") });
    await one.loops.runDue();
    expect(world.driver.sandboxes.size).toBe(0);

    await one.deps.secrets.put(
      OWNER,
      { name: "API_KEY", environment: null },
      { sealed: await one.deps.vault.seal(new TextEncoder().encode("s3cret")), file: null, mode: null },
    );
    const again = await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    const next = await Daemon.ready(world, one, again.sandbox_id!);
    expect(next.boot.secrets).toEqual({ API_KEY: "s3cret" });
  });

  it("gives a start up after its time-out and destroys what there is of it", async () => {
    const session = await one.sessions.create(OWNER, { name: "fix" });
    await one.loops.runDue();
    expect(world.driver.sandboxes.size).toBe(1);
    world.pass(16);
    await one.loops.runDue();
    expect(await get(session.id)).toMatchObject({ state: "FAILED", status: expect.stringContaining("15 min") });
    expect(world.driver.sandboxes.size).toBe(0);
  });
});

describe("suspend and open", () => {
  it("destroys the sandbox only when its checkpoint is committed; the next one restores it", async () => {
    const { id, daemon } = await up();
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDING" });
    expect(world.driver.sandboxes.size).toBe(1);
    const checkpoint = await daemon.freeze();
    await one.loops.runDue();
    expect(world.driver.sandboxes.size).toBe(0);
    expect(await get(id)).toMatchObject({ state: "SUSPENDED", sandbox_id: null, kept_awake_by: [] });

    const { session } = await one.sessions.send(OWNER, "fix", { message: "go on" });
    expect(session).toMatchObject({ state: "STARTING", generation: 2 });
    await one.loops.runDue();
    const next = await Daemon.ready(world, one, session.sandbox_id!);
    expect(next.boot.candidates.map((candidate) => candidate.checkpoint)).toEqual([checkpoint]);
    expect(next.boot.identity).toMatch(/^AGE-SECRET-KEY-1/);
    await one.loops.runDue();
    const { command } = await next.command("turn");
    expect(command).toMatchObject({ message: "go on", harness_session: "conversation-1", preamble: null });
  });

  it("goes back to IDLE when nothing could be committed, and tries again later", async () => {
    const { id, daemon } = await up();
    await one.sessions.suspend(OWNER, "fix", { push: true, force: false, accept_loss: false });
    await one.loops.runDue();
    const { id: first, command } = await daemon.command("freeze");
    expect(command).toMatchObject({ reason: "suspend", push: true });
    await daemon.answer(first, { outcome: "failed", code: "disk_full", error: "the disk is full" });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE", status: expect.stringContaining("the disk is full") });
    expect((await daemon.command("thaw")).id).toMatch(/^cmd-thaw-/);
    expect(world.driver.destroyed).toEqual([]);

    world.pass(2);
    await daemon.heartbeat();
    await one.loops.runDue();
    const { id: second } = await daemon.command("freeze");
    expect(second).not.toBe(first);
    await daemon.freeze();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "SUSPENDED" });
  });

  it("does not believe a checkpoint that is not committed", async () => {
    const { id, daemon } = await up();
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    const { id: command } = await daemon.command("freeze");
    await daemon.answer(command, { outcome: "unchanged", checkpoint: "ckp-0123456789abcdef0" });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "IDLE" });
    expect(world.driver.destroyed).toEqual([]);
  });

  it("destroys all the same when forced, and names the loss", async () => {
    const { id, daemon } = await up();
    await one.sessions.suspend(OWNER, "fix", { push: false, force: true, accept_loss: false });
    await one.loops.runDue();
    const { id: command } = await daemon.command("freeze");
    await daemon.answer(command, { outcome: "failed", code: "disk_full", error: "the disk is full" });
    await one.loops.runDue();
    const session = await get(id);
    expect(session).toMatchObject({ state: "SUSPENDED", status: expect.stringMatching(/disk is full.*lost/) });
    expect(world.driver.sandboxes.size).toBe(0);
  });

  it("stops a running turn, which is not run again", async () => {
    const { id, daemon } = await up();
    await one.sessions.send(OWNER, "fix", { message: "long" });
    await one.loops.runDue();
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await daemon.freeze();
    await one.loops.runDue();
    const session = await get(id);
    expect(session).toMatchObject({ state: "SUSPENDED", turns: [{ state: "interrupted" }] });

    await one.sessions.send(OWNER, "fix", { message: "and now?" });
    await one.loops.runDue();
    const next = await Daemon.ready(world, one, (await get(id)).sandbox_id!);
    await one.loops.runDue();
    const { command } = await next.command("turn");
    expect(command).toMatchObject({ message: "and now?" });
    expect(command.preamble).toContain("cut short");
  });

  it("starts again for a message that came while it suspended", async () => {
    const { id, daemon } = await up();
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await one.sessions.send(OWNER, "fix", { message: "wait" });
    await daemon.freeze();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "STARTING", generation: 2 });
  });

  it("goes back to an older checkpoint after keeping what is there now", async () => {
    const { id, daemon } = await up();
    const old = await daemon.checkpoint("manual");
    const restoring = one.sessions.restore(OWNER, "fix", { checkpoint: old });
    const { id: command } = await daemon.command("checkpoint");
    const kept = await daemon.checkpoint("manual");
    await daemon.answer(command, { outcome: "committed", checkpoint: kept });
    expect(await restoring).toMatchObject({ state: "SUSPENDING" });
    await one.loops.runDue();
    // Something changed once more: that is kept too, and gone back all the same.
    await daemon.freeze();
    await one.loops.runDue();
    const next = await Daemon.ready(world, one, (await get(id)).sandbox_id!);
    expect(next.boot.candidates.map(({ checkpoint }) => checkpoint)).toEqual([old]);
    expect(await get(id)).toMatchObject({ restored_from: { checkpoint: old } });

    // Until something newer is committed, that checkpoint is the one to go on from; then the newest is.
    await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
    await one.loops.runDue();
    await next.answer((await next.command("freeze")).id, { outcome: "unchanged", checkpoint: old });
    await one.loops.runDue();
    await one.sessions.open(OWNER, "fix", {});
    await one.loops.runDue();
    const third = await Daemon.ready(world, one, (await get(id)).sandbox_id!);
    expect(third.boot.candidates.map(({ checkpoint }) => checkpoint)).toEqual([old]);
    const newer = await third.checkpoint("manual");
    expect((await one.agents.boot(third.agent)).candidates[0]?.checkpoint).toBe(newer);
    expect(await codeOf(one.sessions.restore(OWNER, "fix", { checkpoint: "ckp-0123456789abcdef0" }))).toBe(
      "checkpoint_not_found",
    );
  });
});

describe("the end", () => {
  it("archives: the record and its summary stay, the checkpoints go", async () => {
    const { id, daemon } = await up();
    await one.sessions.send(OWNER, "fix", { message: "x" });
    await one.loops.runDue();
    await daemon.turn({ summary: "all done" });
    await one.sessions.archive(OWNER, "fix");
    await one.loops.runDue();
    await daemon.freeze();
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "ARCHIVED", checkpoints: [], last_summary: "all done" });
    expect(await keysOf(id)).toEqual([]);
    expect(world.driver.sandboxes.size).toBe(0);
    expect(await codeOf(one.sessions.send(OWNER, "fix", { message: "y" }))).toBe("session_archived");
    expect(await one.sessions.list(OWNER, { all: false })).toEqual([]);
    expect(await one.sessions.list(OWNER, { all: true })).toHaveLength(1);
  });

  it("removes everything", async () => {
    const { id, daemon } = await up();
    await daemon.checkpoint("manual");
    await one.sessions.remove(OWNER, "fix", { force: false });
    expect(await codeOf(get("fix"))).toBe("session_not_found");
    expect(await keysOf(id)).toEqual([]);
    expect(world.driver.sandboxes.size).toBe(0);
    expect(await codeOf(daemon.say({ type: "notice", text: "x" }))).toBe("stale_generation");
    await one.sessions.create(OWNER, { name: "fix" });
  });

  it("ends its event stream", async () => {
    await up();
    const following = (async () => {
      for await (const event of one.sessions.events(OWNER, "fix", "$", new AbortController().signal)) void event;
    })();
    await one.sessions.remove(OWNER, "fix", { force: false });
    await following;
  });

  it("is refused while a turn runs, unless forced", async () => {
    await up();
    await one.sessions.send(OWNER, "fix", { message: "x" });
    await one.loops.runDue();
    expect(await codeOf(one.sessions.remove(OWNER, "fix", { force: false }))).toBe("wrong_state");
    await one.sessions.remove(OWNER, "fix", { force: true });
    expect(await codeOf(get("fix"))).toBe("session_not_found");
  });
});

async function keysOf(id: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const key of one.deps.store.list("sessions/")) if (key.startsWith(`sessions/${id}`)) keys.push(key);
  return keys;
}
