/** Commits: what is refused, what a crash leaves, what is pruned. */
import { newCheckpointId } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { markerKey, sessionPrefix } from "../../src/store/store.ts";
import type { Store } from "../../src/store/store.ts";
import type { Replica } from "./world.ts";
import { codeOf, Daemon, OWNER, World } from "./world.ts";

let world: World;
let one: Replica;
let id: string;
let daemon: Daemon;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
  const session = await one.sessions.create(OWNER, { name: "fix", repo: "/srv/repo.git", idle_minutes: 0 });
  id = session.id;
  await one.loops.runDue();
  daemon = await Daemon.ready(world, one, session.sandbox_id!);
});
afterEach(() => world.close());

const checkpoints = async () => (await one.sessions.get(OWNER, "fix")).checkpoints;

async function suspend(): Promise<void> {
  await one.sessions.suspend(OWNER, "fix", { push: false, force: false, accept_loss: false });
  await one.loops.runDue();
  await daemon.freeze();
  await one.loops.runDue();
}

async function keys(): Promise<string[]> {
  const found: string[] = [];
  for await (const key of one.deps.store.list(sessionPrefix(id))) found.push(key.slice(sessionPrefix(id).length));
  return found.sort();
}

it("is acknowledged again, with the same answer, when it is repeated", async () => {
  const ckp = newCheckpointId(world.now);
  const { commit } = await daemon.upload(ckp, "manual");
  const first = await one.agents.commit(daemon.agent, ckp, commit);
  expect(await one.agents.commit(daemon.agent, ckp, commit)).toEqual(first);
  expect(await checkpoints()).toHaveLength(1);
  const other = { ...commit, meta: { ...commit.meta, sha256: "0".repeat(64) } };
  expect(await codeOf(one.agents.commit(daemon.agent, ckp, other))).toBe("object_exists");
  expect(await codeOf(daemon.upload(ckp, "manual"))).toBe("object_exists");
});

it("that carries a conversation gives it to a session that knows of none, and to no other", async () => {
  expect((await one.sessions.get(OWNER, "fix")).harness_session).toBeNull();
  for (const conversation of ["begun-in-a-terminal", "another"]) {
    const ckp = newCheckpointId(world.now++);
    const { commit } = await daemon.upload(ckp, "manual");
    await one.agents.commit(daemon.agent, ckp, { ...commit, harness_session: conversation });
    expect((await one.sessions.get(OWNER, "fix")).harness_session).toBe("begun-in-a-terminal");
  }
});

it("of a stale generation is refused, though its objects are all there", async () => {
  const ckp = newCheckpointId(world.now + 50_000);
  const old = daemon;
  const { commit } = await old.upload(ckp, "manual");
  await suspend();
  const opened = await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  await Daemon.ready(world, one, opened.sandbox_id!);
  expect(await codeOf(one.agents.commit(old.agent, ckp, commit))).toBe("stale_generation");
  expect(await codeOf(one.agents.renew(old.agent, ckp, { files: [] }))).toBe("stale_generation");
  expect((await checkpoints()).map((checkpoint) => checkpoint.id)).not.toContain(ckp);
  expect(await keys()).not.toContain(`${ckp}/commit.json`);
});

it("that lost its generation between check and publication is not published", async () => {
  const ckp = newCheckpointId(world.now);
  const { commit } = await daemon.upload(ckp, "manual");
  const { store } = one.deps;
  // The newer sandbox starts at the worst moment: the marker is there, the publication is not.
  const slow: Store = {
    ...store,
    create: async (key, bytes) => {
      await store.create(key, bytes);
      world.driver.crash(daemon.agent.sandbox);
      await one.deps.sessions.change(id, {}, { set: { nonce: "f".repeat(32), generation: 2 } });
    },
  };
  const two = await world.replica({ store: slow });
  expect(await codeOf(two.agents.commit(daemon.agent, ckp, commit))).toBe("stale_generation");
  expect(await checkpoints()).toEqual([]);
});

describe("is refused", () => {
  it("when an object is missing, or is another than announced", async () => {
    const ckp = newCheckpointId(world.now);
    const { commit } = await daemon.upload(ckp, "manual");
    await one.deps.store.delete(`sessions/${id}/${ckp}/agent.tar.age`);
    expect(await codeOf(one.agents.commit(daemon.agent, ckp, commit))).toBe("checkpoint_invalid");
    await one.deps.store.create(`sessions/${id}/${ckp}/agent.tar.age`, new Uint8Array(32));
    expect(await codeOf(one.agents.commit(daemon.agent, ckp, commit))).toBe("digest_mismatch");
    expect(await checkpoints()).toEqual([]);
  });

  it("when it was not begun, or with other objects", async () => {
    const ckp = newCheckpointId(world.now);
    const { commit } = await daemon.upload(ckp, "manual");
    expect(await codeOf(one.agents.commit(daemon.agent, newCheckpointId(world.now + 1), commit))).toBe(
      "checkpoint_not_found",
    );
    expect(await codeOf(one.agents.commit(daemon.agent, ckp, { ...commit, parts: [] }))).toBe("checkpoint_invalid");
  });

  it("when it refers to what no committed checkpoint of the session has", async () => {
    const stray = { name: "x", file: "x.age", size: 1, sha256: "0".repeat(64), from: "ckp-0123456789abcdef0" };
    const ckp = newCheckpointId(world.now);
    const { commit } = await daemon.upload(ckp, "manual", { refer: [stray] });
    expect(await codeOf(one.agents.commit(daemon.agent, ckp, commit))).toBe("checkpoint_invalid");
  });

  it("before it begins, when it would write the marker itself", async () => {
    const objects = [{ file: "commit.json", size: 1, sha256: "0".repeat(64) }];
    const input = { checkpoint: newCheckpointId(world.now), parent: null, reason: "manual" as const, objects };
    expect(await codeOf(one.agents.begin(daemon.agent, input))).toBe("invalid_request");
  });

  it("a download of what is in no committed checkpoint", async () => {
    const ckp = newCheckpointId(world.now);
    const { commit } = await daemon.upload(ckp, "manual");
    const objects = [{ checkpoint: ckp, file: "agent.tar.age" }];
    expect(await codeOf(one.agents.downloads(daemon.agent, { objects }))).toBe("checkpoint_not_found");
    await one.agents.commit(daemon.agent, ckp, commit);
    const { downloads } = await one.agents.downloads(daemon.agent, { objects });
    expect(downloads[`${ckp}/agent.tar.age`]).toMatchObject({ method: "GET" });
  });
});

it("restores nothing whose marker was forged or damaged", async () => {
  const good = await daemon.checkpoint("manual");
  const forged = await daemon.checkpoint("manual");
  await suspend();
  const key = markerKey(id, forged);
  const marker = JSON.parse(new TextDecoder().decode((await one.deps.store.read(key))!)) as object;
  await one.deps.store.delete(key);
  await one.deps.store.create(key, new TextEncoder().encode(JSON.stringify({ ...marker, parts: [] })));
  const opened = await one.sessions.open(OWNER, "fix", {});
  await one.loops.runDue();
  const next = await Daemon.ready(world, one, opened.sandbox_id!);
  const candidates = next.boot.candidates.map(({ checkpoint }) => checkpoint);
  expect(candidates).toContain(good);
  expect(candidates).not.toContain(forged);
  expect(candidates).toHaveLength(2);
});

it("marks what did not restore, tries it last, and tells the next prompt what is missing", async () => {
  const old = await daemon.checkpoint("manual");
  const bad = await daemon.checkpoint("manual");
  world.driver.crash(daemon.agent.sandbox, false);
  await one.deps.due.nudge(id, world.now);
  await one.loops.runDue();
  const { session } = await one.sessions.send(OWNER, "fix", { message: "go on" });
  await one.loops.runDue();
  const next = await Daemon.dial(world, one, session.sandbox_id!);
  await next.say({
    type: "restored",
    source: "checkpoint",
    checkpoint: old,
    verified: true,
    missing: ["the stash"],
    bad: [{ checkpoint: bad, why: "its head is missing" }],
    warnings: [],
    seconds: {},
  });
  await next.say({ type: "phase", phase: "ready", detail: null });
  const shown = await one.sessions.get(OWNER, "fix");
  expect(shown).toMatchObject({ restored_from: { checkpoint: old }, status: expect.stringContaining(old) });
  expect(shown.checkpoints.map((checkpoint) => checkpoint.bad)).toEqual([null, "its head is missing"]);
  await one.loops.runDue();
  const { command } = await next.command("turn");
  expect(command.preamble).toContain("the stash");
  expect(command.preamble).toContain("older checkpoint");
  const boot = await one.agents.boot(next.agent);
  expect(boot.candidates.map(({ checkpoint }) => checkpoint)).toEqual([old, bad]);
});

describe("pruning", () => {
  it("counts interval checkpoints apart from the others", async () => {
    world.settings = { ...world.settings, session_keep_checkpoints: 2 };
    one = await world.replica();
    daemon.through(one);
    const made: string[] = [];
    for (const reason of ["turn", "manual", "interval", "turn", "interval", "interval", "interval"] as const) {
      made.push(await daemon.checkpoint(reason));
    }
    const kept = [made[1], made[3], made[5], made[6]];
    expect((await checkpoints()).map((checkpoint) => checkpoint.id)).toEqual(kept);
    const folders = new Set((await keys()).filter((key) => key.includes("/")).map((key) => key.split("/")[0]));
    expect(folders).toEqual(new Set(kept));
  });

  it("keeps an object that a kept checkpoint refers to, until none does", async () => {
    world.settings = { ...world.settings, session_keep_checkpoints: 1 };
    one = await world.replica();
    daemon.through(one);
    const first = await daemon.checkpoint("manual");
    const [part] = (await checkpoints())[0]!.parts;
    const refer = [{ ...part!, name: "agent.base", from: first }];
    const second = await daemon.checkpoint("manual", { refer });
    expect((await checkpoints()).map((checkpoint) => checkpoint.id)).toEqual([second]);
    expect((await keys()).filter((key) => key.startsWith(first))).toEqual([`${first}/agent.tar.age`]);

    // A third may still refer to it, through the second alone.
    const third = await daemon.checkpoint("manual", { refer });
    expect((await keys()).filter((key) => key.startsWith(first))).toEqual([`${first}/agent.tar.age`]);
    await daemon.checkpoint("manual");
    expect((await keys()).filter((key) => key.startsWith(first) || key.startsWith(third))).toEqual([]);
  });

  it("goes on where a crash cut it off", async () => {
    world.settings = { ...world.settings, session_keep_checkpoints: 1 };
    const { store } = one.deps;
    const broken = await world.replica({ store: { ...store, delete: () => Promise.reject(new Error("cut off")) } });
    daemon.through(broken);
    const first = await daemon.checkpoint("manual");
    await daemon.checkpoint("manual");
    expect((await keys()).filter((key) => key.startsWith(first))).not.toEqual([]);
    daemon.through(await world.replica());
    await daemon.checkpoint("manual");
    expect((await keys()).filter((key) => key.startsWith(first))).toEqual([]);
  });
});

describe("what was begun and never committed", () => {
  it("is swept once it has expired, and nothing else is", async () => {
    const committed = await daemon.checkpoint("manual");
    const begun = newCheckpointId(world.now + 10);
    await daemon.upload(begun, "manual");
    world.pass(60);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect((await keys()).filter((key) => key.startsWith(begun))).toHaveLength(2);
    world.pass(61);
    await daemon.heartbeat();
    await one.loops.runDue();
    expect((await keys()).filter((key) => key.startsWith(begun))).toEqual([]);
    expect((await keys()).filter((key) => key.startsWith(committed))).toHaveLength(3);
  });

  it("is published when its marker was written and only the publication is missing", async () => {
    const { store } = one.deps;
    const dying: Store = {
      ...store,
      create: async (key, bytes) => {
        await store.create(key, bytes);
        throw new Error("the replica died");
      },
    };
    const two = await world.replica({ store: dying });
    const ckp = newCheckpointId(world.now);
    const { commit } = await daemon.upload(ckp, "manual");
    await expect(two.agents.commit(daemon.agent, ckp, commit)).rejects.toThrow("died");
    expect(await checkpoints()).toEqual([]);
    world.driver.crash(daemon.agent.sandbox, false);
    await one.deps.due.nudge(id, world.now);
    await one.loops.runDue();
    const session = await one.sessions.get(OWNER, "fix");
    expect(session).toMatchObject({ state: "SUSPENDED", checkpoints: [{ id: ckp }] });
  });
});
