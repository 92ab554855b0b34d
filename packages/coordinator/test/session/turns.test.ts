/** A session's turns through the two faces: sent, queued, begun, ended, cancelled. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Replica } from "./world.ts";
import { codeOf, OWNER, sessionUp, World } from "./world.ts";

let world: World;
let one: Replica;
beforeEach(async () => {
  world = await World.open();
  one = await world.replica();
});
afterEach(() => world.close());

const up = (name?: string, input?: object) => sessionUp(world, one, name, input);
const get = (ref: string) => one.sessions.get(OWNER, ref);

describe("turns", () => {
  it("run one after the other, in the order they were sent, and leave a record", async () => {
    const { id, daemon } = await up();
    const first = await one.sessions.send(OWNER, "fix", { message: "first" });
    const second = await one.sessions.send(OWNER, "fix", { message: "second" });
    await one.loops.runDue();
    expect(await get(id)).toMatchObject({ state: "ACTIVE" });
    const command = await daemon.turn({ summary: "one" });
    expect(command).toMatchObject({ turn: first.turn.id, message: "first", harness_session: null, preamble: null });
    await one.loops.runDue();
    const next = await daemon.turn({ summary: "two" });
    expect(next).toMatchObject({ turn: second.turn.id, harness_session: "conversation-1", handoff: false });
    await one.loops.runDue();

    const session = await get(id);
    expect(session.state).toBe("IDLE");
    expect(session.turns.map(({ state, summary }) => [state, summary])).toEqual([
      ["done", "one"],
      ["done", "two"],
    ]);
    expect(session.turns[1]!.checkpoint_id).toBe(session.checkpoints.at(-1)!.id);
    expect(session).toMatchObject({ last_summary: "two", usage: { input_tokens: 2, cost_usd: 1 } });
  });

  it("are made once for one idempotency key", async () => {
    await up();
    const two = await world.replica();
    const input = { message: "do it", idempotency_key: "k" };
    const sent = await Promise.all([one, two, one, two].map((replica) => replica.sessions.send(OWNER, "fix", input)));
    expect(new Set(sent.map(({ turn }) => turn.id)).size).toBe(1);
    expect((await get("fix")).turns).toHaveLength(1);
  });

  it("keep secrets out of their summaries", async () => {
    const { id, daemon } = await up();
    await one.deps.environments.put(OWNER, { ...(await one.deps.environments.get(OWNER, "fix"))!, secrets: ["KEY"] });
    await one.deps.secrets.put(
      OWNER,
      { name: "KEY", environment: null },
      { sealed: await one.deps.vault.seal(new TextEncoder().encode("hunter2hunter2")), file: null, mode: null },
    );
    await one.sessions.send(OWNER, "fix", { message: "say it" });
    await one.loops.runDue();
    await daemon.turn({ summary: "it is hunter2hunter2" });
    const session = await get(id);
    expect(session.turns[0]!.summary).not.toContain("hunter2");
    expect(session.last_summary).toBe(session.turns[0]!.summary);
    const events = await one.deps.events.read(id, "0", 1000);
    expect(JSON.stringify(events)).not.toContain("hunter2");
  });

  it("are cancelled while they wait, and by the daemon while they run", async () => {
    const { daemon } = await up();
    const running = await one.sessions.send(OWNER, "fix", { message: "long" });
    await one.loops.runDue();
    const waiting = await one.sessions.send(OWNER, "fix", { message: "never" });
    expect(await one.sessions.cancelTurn(OWNER, "fix", waiting.turn.id)).toMatchObject({ state: "cancelled" });
    expect(await one.sessions.cancelTurn(OWNER, "fix", running.turn.id)).toMatchObject({ state: "running" });
    expect((await daemon.command("cancel_turn")).command.turn).toBe(running.turn.id);
    expect(await codeOf(one.sessions.cancelTurn(OWNER, "fix", "trn-000000000000"))).toBe("turn_not_found");
  });

  it("fail when the daemon refuses them", async () => {
    const { daemon } = await up();
    await one.sessions.send(OWNER, "fix", { message: "x" });
    await one.loops.runDue();
    const { id } = await daemon.command("turn");
    await one.agents.failure(daemon.agent, id, "missing_cli", "claude is not installed");
    expect(await get("fix")).toMatchObject({
      state: "IDLE",
      turns: [{ state: "failed", error: "claude is not installed" }],
    });
  });

  it("begin with an account of the session when another harness takes over", async () => {
    const { daemon } = await up();
    await one.sessions.send(OWNER, "fix", { message: "build a boat" });
    await one.loops.runDue();
    await daemon.turn({ summary: "the hull is done" });
    await one.sessions.open(OWNER, "fix", { harness: "codex" });
    await one.sessions.send(OWNER, "fix", { message: "go on" });
    await one.loops.runDue();
    const { command } = await daemon.command("turn");
    expect(command).toMatchObject({ harness: "codex", harness_session: null, handoff: true, message: "go on" });
    expect(command.preamble).toContain("build a boat");
    expect(command.preamble).toContain("the hull is done");
  });

  it("go on with a harness's own conversation when it comes back, and are told what happened meanwhile", async () => {
    const { daemon } = await up("fix", { harness: "claude" });
    await one.sessions.send(OWNER, "fix", { message: "build a boat" });
    await one.loops.runDue();
    await daemon.turn({ harness_session: "claude-1" });
    await one.sessions.open(OWNER, "fix", { harness: "codex" });
    await one.sessions.send(OWNER, "fix", { message: "paint it" });
    await one.loops.runDue();
    await daemon.turn({ harness_session: "codex-1", summary: "it is blue" });
    await one.sessions.open(OWNER, "fix", { harness: "claude" });
    await one.sessions.send(OWNER, "fix", { message: "launch it" });
    await one.loops.runDue();
    const { command } = await daemon.command("turn");
    expect(command).toMatchObject({ harness: "claude", harness_session: "claude-1", handoff: true });
    expect(command.preamble).toContain("it is blue");
  });

  it.each([
    ["a new one that was begun instead", "conversation-2"],
    ["none, where nothing could be run", null],
  ])("after a lost conversation go on with %s, and begin with an account", async (_what, begun) => {
    const { daemon } = await up();
    for (const message of ["build a boat", "paint it"]) await one.sessions.send(OWNER, "fix", { message });
    await one.loops.runDue();
    await daemon.turn();
    await one.loops.runDue();
    await daemon.turn({ harness_session: begun, conversation_lost: true });
    expect(await get("fix")).toMatchObject({ harness_session: begun, turns: [{}, { conversation_lost: true }] });
    await one.sessions.send(OWNER, "fix", { message: "launch it" });
    await one.loops.runDue();
    const next = await daemon.turn();
    expect(next).toMatchObject({ harness_session: begun, handoff: true });
    expect(next.preamble).toContain("build a boat");
    await one.sessions.send(OWNER, "fix", { message: "sail" });
    await one.loops.runDue();
    expect((await daemon.command("turn")).command).toMatchObject({ handoff: false, preamble: null });
  });

  it("of a harness that was left while it ran do not give their conversation to the next one", async () => {
    const { daemon } = await up("fix", { harness: "claude" });
    await one.sessions.send(OWNER, "fix", { message: "build a boat" });
    await one.loops.runDue();
    await one.sessions.open(OWNER, "fix", { harness: "codex" });
    await daemon.turn({ harness_session: "claude-1" });
    await one.sessions.send(OWNER, "fix", { message: "paint it" });
    await one.loops.runDue();
    const { command } = await daemon.command("turn");
    expect(command).toMatchObject({ harness: "codex", harness_session: null, handoff: true });
  });

  it("of a harness that cannot resume each begin with an account", async () => {
    const { daemon } = await up();
    for (const message of ["build a boat", "paint it", "launch it"]) await one.sessions.send(OWNER, "fix", { message });
    await one.loops.runDue();
    expect(await daemon.turn({ harness_session: null })).toMatchObject({ handoff: false });
    for (const message of ["paint it", "launch it"]) {
      await one.loops.runDue();
      expect(await daemon.turn({ harness_session: null })).toMatchObject({ message, handoff: true });
    }
  });
});
