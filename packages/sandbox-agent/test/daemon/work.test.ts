import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CheckpointOutcome, ExecResult, newTurnId } from "@hangar/shared";
import type { AgentEvent } from "@hangar/shared";
import { expect, test } from "vitest";
import type { Answer, StandInCoordinator } from "./stand-in-coordinator.ts";
import { exec, git, stage, TestSandbox, turn } from "./support.ts";

const textOf = (events: readonly AgentEvent[], id: string): string =>
  events
    .map((event) =>
      event.type === "turn_output" && event.turn === id && event.output.kind === "text" ? event.output.text : "",
    )
    .join("");

test("a turn runs, tells what it says, and ends with a committed checkpoint", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const command = turn("echo hello from the turn; echo four >> app.txt; git add app.txt; echo five >> app.txt");
  expect(await coordinator.command(command)).toEqual({ ok: true, value: {} });
  const finished = await coordinator.event("turn_finished");
  expect(finished.result).toMatchObject({ state: "done", exit_code: 0, error: null });
  expect(finished.result.harness_session).not.toBeNull();
  const settled = await coordinator.event("turn_settled");
  expect(settled).toMatchObject({ turn: command.turn, error: null });
  expect(textOf(coordinator.events, command.turn)).toContain("hello from the turn");
  expect(coordinator.committed).toHaveLength(1);
  expect(coordinator.committed[0]).toMatchObject({
    id: settled.checkpoint,
    reason: "turn",
    request: { turn_id: command.turn, branch: "hangar/session/test", paired: true, proved: true, harness: "script" },
  });
  const order = coordinator.events
    .map(({ type }) => type)
    .filter((type) => type.startsWith("turn_") && type !== "turn_output");
  expect(order).toEqual(["turn_started", "turn_finished", "turn_settled"]);
});

test("a turn whose harness could not run leaves no checkpoint", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: false });
  await coordinator.command(turn("echo no", { harness: "no-such-harness" }));
  const { result } = await coordinator.event("turn_finished");
  expect(result).toMatchObject({
    state: "failed",
    error: expect.stringContaining('no harness "no-such-harness"') as string,
  });
  expect(await coordinator.event("turn_settled")).toMatchObject({ checkpoint: null, error: null });
});

test("what was frozen is there again in the next sandbox: commit, staged, unstaged, untracked and conversation", async () => {
  const { coordinator, sandbox, next } = await stage();
  sandbox.start();
  await coordinator.ready();
  const work =
    "git commit -qm Work --allow-empty; echo staged >> app.txt; git add app.txt; echo not >> app.txt; echo new > new.txt";
  await coordinator.command(turn(work));
  const { result } = await coordinator.event("turn_finished");
  await coordinator.event("turn_settled");
  const head = sandbox.git("rev-parse", "HEAD");
  const status = sandbox.git("status", "--porcelain=v2");
  const diff = sandbox.git("diff", "--cached");

  const frozen = await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(frozen).toMatchObject({ ok: true, value: { outcome: "unchanged", checkpoint: coordinator.committed[0]!.id } });

  const second = await next();
  second.start();
  await coordinator.ready();
  const restored = await coordinator.event("restored");
  expect(restored).toMatchObject({ source: "checkpoint", checkpoint: coordinator.committed[0]!.id, verified: true });
  expect(restored).toMatchObject({ missing: [], bad: [] });
  expect(second.git("rev-parse", "HEAD")).toBe(head);
  expect(second.git("status", "--porcelain=v2")).toBe(status);
  expect(second.git("diff", "--cached")).toBe(diff);
  expect(second.read("new.txt")).toBe("new\n");

  await coordinator.command(turn("echo again", { harness_session: result.harness_session }));
  const again = await coordinator.event("turn_finished");
  expect(again.result).toMatchObject({
    state: "done",
    harness_session: result.harness_session,
    conversation_lost: false,
  });
  await coordinator.event("turn_settled");
  expect(coordinator.committed).toHaveLength(2);
  const [first, later] = coordinator.committed;
  expect(later!.request.parts.filter(({ from }) => from === first!.id).length).toBeGreaterThan(0);
});

test("round after round, what each turn added is there, and only what is new is sent", async () => {
  const { coordinator, sandbox, next } = await stage();
  let here = sandbox;
  let session: string | null = null;
  for (let round = 1; round <= 6; round++) {
    here.start();
    await coordinator.ready();
    const message = `git commit -qm R${round} --allow-empty; echo ${round} >> app.txt; echo ${round} > new-${round}.txt; git add new-${round}.txt`;
    await coordinator.command(turn(message, { harness_session: session }));
    const { result } = await coordinator.event("turn_finished");
    expect(result).toMatchObject({ state: "done", conversation_lost: false });
    session = result.harness_session;
    expect((await coordinator.event("turn_settled")).error).toBeNull();
    expect(await coordinator.command({ kind: "freeze", reason: "suspend", push: false })).toMatchObject({ ok: true });
    here = await next();
  }
  here.start();
  await coordinator.ready();
  expect(await coordinator.event("restored")).toMatchObject({ verified: true, missing: [], bad: [] });
  expect(here.git("log", "--format=%s", "origin/main..").split("\n")).toEqual(["R6", "R5", "R4", "R3", "R2", "R1"]);
  expect(here.read("app.txt")).toBe("one\ntwo\nthree\n1\n2\n3\n4\n5\n6\n");
  expect(here.read("new-1.txt")).toBe("1\n");
  expect(here.git("diff", "--cached", "--name-only")).toBe("new-6.txt");
  expect(here.git("diff", "--name-only")).toBe("app.txt");
  const last = coordinator.committed.at(-1)!.request.parts;
  expect(last.some(({ from }) => from === coordinator.committed[0]!.id)).toBe(true);
});

test("a damaged newest checkpoint is reported and the older one restored", async () => {
  const { coordinator, sandbox, next } = await stage();
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "first\n");
  await checkpoint(coordinator);
  writeFileSync(join(sandbox.repo, "b.txt"), "second\n");
  await checkpoint(coordinator);
  const [older, newest] = coordinator.committed;
  const { file } = newest!.request.parts.find(({ from }) => from === undefined)!;
  const path = coordinator.object(newest!.id, file);
  writeFileSync(
    path,
    readFileSync(path).map((byte, at) => (at === 300 ? byte ^ 1 : byte)),
  );

  const second = await next();
  second.start();
  await coordinator.ready();
  const restored = await coordinator.event("restored");
  expect(restored).toMatchObject({ checkpoint: older!.id, verified: true, bad: [{ checkpoint: newest!.id }] });
  expect(restored.missing.join()).toMatch(/newer checkpoint was damaged/);
  expect(second.read("a.txt")).toBe("first\n");
  expect(second.read("b.txt")).toBeNull();
});

test("when no checkpoint can be restored the start fails and says why", async () => {
  const { coordinator, sandbox, next } = await stage();
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "first\n");
  await checkpoint(coordinator);
  rmSync(coordinator.object(coordinator.committed[0]!.id, coordinator.committed[0]!.request.meta.file));
  const second = await next();
  second.start();
  const failed = await coordinator.event("start_failed");
  expect(failed.code).toBe("checkpoint_invalid");
  expect(failed.error).toContain(coordinator.committed[0]!.id);
});

test("a base branch that is gone does not keep a checkpoint from being restored", async () => {
  const { coordinator, sandbox, remote, next } = await stage({ base_branch: "develop" });
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "first\n");
  await checkpoint(coordinator);
  git(remote, "branch", "-D", "develop");
  const second = await next();
  second.start();
  await coordinator.ready();
  expect((await coordinator.event("restored")).warnings.join()).toContain("develop is no longer at the remote");
  expect(second.read("a.txt")).toBe("first\n");
});

test("frozen, it refuses turns, exec and terminals until it is thawed", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const frozen = await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(frozen).toMatchObject({ ok: true, value: { outcome: "committed" } });
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.frozen, "a heartbeat that says frozen");
  const refused = { ok: false, code: "wrong_state", error: expect.stringContaining("is being suspended") as string };
  expect(await coordinator.command(turn("echo no"))).toEqual(refused);
  expect(await coordinator.command(exec("true"))).toEqual(refused);
  const url = `${coordinator.url}/agent/terminals/x`.replace("http", "ws");
  expect(
    await coordinator.command({
      kind: "terminal",
      url,
      what: "shell",
      harness: "script",
      harness_session: null,
      model: null,
      cols: 80,
      rows: 24,
    }),
  ).toEqual(refused);
  expect(await coordinator.command({ kind: "thaw" })).toEqual({ ok: true, value: {} });
  expect(await coordinator.command(exec("true"))).toMatchObject({ ok: true, value: { exit_code: 0 } });
});

test("a freeze stops the turn and everything it left running, then takes what is there", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const id = newTurnId();
  const message =
    "setsid sh -c 'while sleep 0.05; do date >> ticking.txt; done' >/dev/null 2>&1 & echo begun; sleep 600";
  await coordinator.command(turn(message, { turn: id }));
  await coordinator.until(() => textOf(coordinator.events, id).includes("begun"), "the turn's output");
  const frozen = await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(frozen).toMatchObject({ ok: true, value: { outcome: "committed" } });
  expect((await coordinator.event("turn_finished")).result.state).toBe("interrupted");
  const { checkpoint: settled } = await coordinator.event("turn_settled");
  expect(settled).toBe(coordinator.committed[0]!.id);
  expect(sandbox.processes()).toEqual([]);
  expect(coordinator.committed[0]).toMatchObject({ reason: "suspend", request: { paired: true, turn_id: id } });
});

test("in a process namespace of its own nothing outlives a freeze, however it hides", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start({ namespace: true });
  await coordinator.ready();
  const seconds = `8${process.pid}.25`;
  await coordinator.command(
    exec("sh", "-c", `env -i setsid sh -c 'sleep ${seconds} & sleep ${seconds} &' >/dev/null 2>&1 &`),
  );
  await coordinator.until(() => TestSandbox.running(`sleep ${seconds} `) > 1, "the hidden processes");
  await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(TestSandbox.running(`sleep ${seconds} `)).toBe(0);
  expect(coordinator.committed).toHaveLength(1);
});

test("a freeze can push the branch, and says when it cannot", async () => {
  const { coordinator, sandbox, remote } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(exec("git", "commit", "-q", "--allow-empty", "-m", "Work"));
  await coordinator.command({ kind: "freeze", reason: "suspend", push: true });
  expect(git(remote, "rev-parse", "hangar/session/test")).toBe(sandbox.git("rev-parse", "HEAD"));
  await coordinator.command({ kind: "thaw" });
  await coordinator.command(exec("git", "commit", "-q", "--amend", "--allow-empty", "-m", "Other"));
  const frozen = await coordinator.command({ kind: "freeze", reason: "suspend", push: true });
  expect(frozen).toMatchObject({ ok: true, value: { outcome: "committed" } });
  expect((await coordinator.event("notice")).text).toMatch(/could not be pushed: .*rejected/);
});

test("a turn is cancelled on request", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const command = turn("echo begun; sleep 600");
  await coordinator.command(command);
  await coordinator.until(() => textOf(coordinator.events, command.turn).includes("begun"), "the turn's output");
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.turn_running, "a heartbeat during the turn");
  expect(await coordinator.command(turn("echo second"))).toMatchObject({ ok: false, code: "wrong_state" });
  expect(await coordinator.command({ kind: "cancel_turn", turn: command.turn })).toEqual({ ok: true, value: {} });
  expect((await coordinator.event("turn_finished")).result.state).toBe("cancelled");
  await coordinator.event("turn_settled");
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.turn_running === false, "a quiet heartbeat");
});

test("exec gives raw bytes, exit codes and limits", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const result = async (...argv: string[]): Promise<ExecResult> =>
    ExecResult.parse(valueOf(await coordinator.command(exec(...argv))));
  expect(await result("printf", String.raw`\377\000`)).toMatchObject({
    exit_code: 0,
    stdout: "/wA=",
    truncated: false,
  });
  expect(await result("sh", "-c", "echo wrong >&2; exit 7")).toMatchObject({ exit_code: 7, stderr: btoa("wrong\n") });
  expect(await result("no-such-program")).toMatchObject({ exit_code: 127 });
  expect(await result("sh", "-c", "kill -9 $$")).toMatchObject({ exit_code: 137 });

  const long = { ...exec("sh", "-c", "head -c 200000 /dev/zero"), max_bytes: 1000 };
  const cut = ExecResult.parse(valueOf(await coordinator.command(long)));
  expect([Buffer.from(cut.stdout, "base64").length, cut.truncated, cut.exit_code]).toEqual([1000, true, 0]);

  const slow = { ...exec("sh", "-c", "sleep 600 & sleep 600"), timeout_seconds: 1 };
  expect(valueOf(await coordinator.command(slow))).toMatchObject({ timed_out: true });

  const inside = { ...exec("pwd"), cwd: ".git" };
  expect(atob(ExecResult.parse(valueOf(await coordinator.command(inside))).stdout).trim()).toBe(
    join(sandbox.repo, ".git"),
  );
  const nowhere = { ...exec("pwd"), cwd: "no/such" };
  expect(await coordinator.command(nowhere)).toMatchObject({ ok: false, code: "invalid_request" });
  await coordinator.until(
    () => coordinator.heartbeats.at(-1)?.activity.last_used_at,
    "a heartbeat that says it was used",
  );
});

test("a checkpoint on request says when nothing changed", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const first = await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: false });
  expect(first).toMatchObject({ ok: true, value: { outcome: "committed" } });
  const outcome = first.ok ? CheckpointOutcome.parse(first.value) : null;
  const same = await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: true });
  expect(same).toEqual({ ok: true, value: { ...outcome, outcome: "unchanged" } });
});

test("at intervals it takes a checkpoint of what changed, and none of a fresh clone", async () => {
  const settings = { checkpoint_minutes: 0.01, max_untracked_bytes: 1e6, max_part_bytes: 1e8 };
  const { coordinator, sandbox } = await stage({ settings });
  sandbox.start();
  await coordinator.ready();
  await coordinator.until(() => coordinator.heartbeats.length > 12, "more than one interval");
  expect(coordinator.committed).toEqual([]);
  writeFileSync(join(sandbox.repo, "a.txt"), "work\n");
  await coordinator.until(() => coordinator.committed.length > 0, "an interval checkpoint");
  expect(coordinator.committed[0]!.reason).toBe("interval");
  expect(coordinator.heartbeats.at(-1)!.activity).toMatchObject({ turn_running: false, last_used_at: null });
});

test("SIGTERM takes a last checkpoint and ends", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(turn("echo work > a.txt; echo begun; sleep 600"));
  await coordinator.until(() => existsSync(join(sandbox.repo, "a.txt")), "the turn's file");
  sandbox.kill("SIGTERM");
  expect(await sandbox.ended()).toBe(0);
  expect(coordinator.committed).toMatchObject([{ reason: "destroy", request: { proved: false } }]);
  expect((await coordinator.event("turn_finished")).result.state).toBe("interrupted");
  expect((await coordinator.event("turn_settled")).checkpoint).toBe(coordinator.committed[0]!.id);
});

test("SIGTERM said again, as by a preStop hook and the orchestrator after it, does not cut the last checkpoint short", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "work\n");
  const hook = sandbox.beside("end");
  await coordinator.until(() => readFileSync(sandbox.log, "utf8").includes("SIGTERM: ending"), "the hook's word");
  sandbox.kill("SIGTERM");
  expect(await sandbox.ended()).toBe(0);
  expect(coordinator.committed).toMatchObject([{ reason: "destroy" }]);
  await hook;
});

async function checkpoint(coordinator: StandInCoordinator): Promise<void> {
  const answer = await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: false });
  expect(answer).toMatchObject({ ok: true, value: { outcome: "committed" } });
}

function valueOf(answer: Answer): unknown {
  if (answer.ok) return answer.value;
  throw new Error(`${answer.code}: ${answer.error}`);
}
