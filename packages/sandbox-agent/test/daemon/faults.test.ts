import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCommandId, newTurnId } from "@hangar/shared";
import type { AgentEvent } from "@hangar/shared";
import { expect, test } from "vitest";
import { exec, stage, turn } from "./support.ts";

const texts = (events: readonly AgentEvent[]): string =>
  events
    .map((event) => (event.type === "turn_output" && event.output.kind === "text" ? event.output.text : ""))
    .join("");

test("a turn goes on while the link is cut, and what it said arrives later, once and in order", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const release = join(sandbox.root, "release");
  const message = `echo before; while ! test -e ${release}; do sleep 0.05; done; for i in 1 2 3 4 5; do echo line $i; done; touch done.txt`;
  await coordinator.command(turn(message));
  await coordinator.until(() => texts(coordinator.events).includes("before"), "the turn's first output");
  coordinator.cut();
  writeFileSync(release, "");
  await coordinator.until(() => existsSync(join(sandbox.repo, "done.txt")), "the end of the script");
  coordinator.heal();
  const settled = await coordinator.event("turn_settled");
  expect(settled.error).toBeNull();
  expect(coordinator.committed.map(({ id }) => id)).toEqual([settled.checkpoint]);
  expect(texts(coordinator.events).match(/line \d/g)).toEqual(["line 1", "line 2", "line 3", "line 4", "line 5"]);
  expect(coordinator.events.filter(({ type }) => type === "turn_finished")).toHaveLength(1);
});

test("cut off for longer than the lease, it stops the turn and keeps a checkpoint until the link is back", async () => {
  const { coordinator, sandbox } = await stage();
  coordinator.leaseSeconds = 1;
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(turn("echo work > a.txt; echo before; sleep 600"));
  await coordinator.until(() => texts(coordinator.events).includes("before"), "the turn's first output");
  coordinator.cut();
  const kept = (): boolean => existsSync(join(sandbox.state, "pending"));
  await coordinator.until(() => sandbox.processes().length === 0 && kept(), "the stop and a kept checkpoint", 20_000);
  expect(coordinator.committed).toEqual([]);
  coordinator.heal();
  expect((await coordinator.event("turn_finished")).result.state).toBe("interrupted");
  expect((await coordinator.event("turn_settled")).checkpoint).toBe(coordinator.committed[0]?.id);
});

test("a daemon killed during a turn says interrupted when it is back, and does not run it again", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const command = turn("echo ran >> runs.txt; echo begun; sleep 600");
  const id = newCommandId();
  await coordinator.command(command, id);
  await coordinator.until(() => texts(coordinator.events).includes("begun"), "the turn's output");
  sandbox.kill("SIGKILL");
  await sandbox.ended();
  const told = coordinator.events.length;
  sandbox.start();
  const finished = await coordinator.event("turn_finished");
  expect(finished).toMatchObject({ turn: command.turn, result: { state: "interrupted" } });
  const settled = await coordinator.event("turn_settled");
  expect(settled).toMatchObject({ turn: command.turn, checkpoint: coordinator.committed[0]!.id });
  expect(sandbox.read("runs.txt")).toBe("ran\n");
  expect(coordinator.events.slice(told).map(({ type }) => type)).toEqual(["phase", "turn_finished", "turn_settled"]);
  // The very same command delivered again is answered, and not done.
  coordinator.push({ type: "command", id, command });
  await coordinator.until(() => coordinator.answers.filter((each) => each.id === id).length > 1, "the answer again");
  await coordinator.command(exec("true"));
  expect(sandbox.read("runs.txt")).toBe("ran\n");
  expect(sandbox.processes()).toEqual([]);
});

test("a daemon killed while it starts begins anew and comes up whole", async () => {
  const { coordinator, sandbox } = await stage({ setup: "echo once >> setup.txt; test -e ../go || sleep 600" });
  sandbox.start();
  await coordinator.until(() => sandbox.read("setup.txt"), "the setup to be running");
  sandbox.kill("SIGKILL");
  await sandbox.ended();
  writeFileSync(join(sandbox.workspace, "go"), "");
  sandbox.start();
  await coordinator.ready();
  expect(sandbox.read("setup.txt")).toBe("once\n");
  expect((await coordinator.event("restored")).source).toBe("fresh");
});

test("a daemon restarted in place keeps the workspace and does not restore again", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "kept.txt"), "in the first checkpoint\n");
  await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: false });
  writeFileSync(join(sandbox.repo, "a.txt"), "not in any checkpoint\n");
  sandbox.kill("SIGKILL");
  await sandbox.ended();
  sandbox.start();
  await coordinator.until(() => coordinator.committed.length === 2, "a checkpoint of what was not in one");
  expect(sandbox.read("a.txt")).toBe("not in any checkpoint\n");
  expect(coordinator.events.filter(({ type }) => type === "restored")).toHaveLength(1);
  const [first, second] = coordinator.committed;
  expect(second!.request.parts.some(({ from }) => from === first!.id)).toBe(true);
});

test("a command delivered twice is done once and answered twice", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const id = newCommandId();
  const command = exec("sh", "-c", "echo done >> count.txt");
  await coordinator.command(command, id);
  coordinator.push({ type: "command", id, command });
  await coordinator.until(() => coordinator.answers.filter((each) => each.id === id).length === 2, "the second answer");
  expect(coordinator.answers[0]).toEqual(coordinator.answers[1]);
  expect(sandbox.read("count.txt")).toBe("done\n");
});

test("an answer given while the link is cut arrives when it is back", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const marker = join(sandbox.root, "ended");
  const answer = coordinator.command(exec("sh", "-c", `echo begun > begun.txt; sleep 1; echo out; touch ${marker}`));
  await coordinator.until(() => sandbox.read("begun.txt"), "the program to run");
  coordinator.cut();
  await coordinator.until(() => existsSync(marker), "the program's end");
  coordinator.heal();
  expect(await answer).toMatchObject({ ok: true, value: { stdout: btoa("out\n") } });
});

test("an exec that a killed daemon left unfinished is not run again", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const answer = coordinator.command(exec("sh", "-c", "echo ran >> runs.txt; sleep 600"));
  await coordinator.until(() => sandbox.read("runs.txt"), "the program to run");
  sandbox.kill("SIGKILL");
  await sandbox.ended();
  sandbox.start();
  expect(await answer).toMatchObject({ ok: false, code: "sandbox_lost" });
  expect(sandbox.read("runs.txt")).toBe("ran\n");
});

test("superseded, it ends everything, touches nothing and exits with 0", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(turn("echo begun; sleep 600", { turn: newTurnId() }));
  await coordinator.until(() => texts(coordinator.events).includes("begun"), "the turn's output");
  const { boot } = coordinator;
  coordinator.push({ type: "superseded", generation: boot.generation + 1 });
  expect(await sandbox.ended()).toBe(0);
  expect(sandbox.processes()).toEqual([]);
  expect(coordinator.committed).toEqual([]);
});

test("several URLs are tried in turn", async () => {
  const { coordinator, sandbox } = await stage();
  const { env } = sandbox;
  const dead = "http://127.0.0.1:9";
  Object.defineProperty(sandbox, "env", {
    value: { ...env, HANGAR_AGENT_COORDINATOR_URL: `${dead} ${coordinator.url}` },
  });
  sandbox.start();
  await coordinator.ready();
  expect(await coordinator.command(exec("true"))).toMatchObject({ ok: true });
});

test("on a full disk it says so, loses no event and goes on once there is room", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start({ stateBytes: 8 * 1024 * 1024 });
  await coordinator.ready();
  const fill = join(sandbox.state, "fill");
  await coordinator.command(exec("sh", "-c", `head -c 100000000 /dev/zero > ${fill}`));
  await coordinator.command(turn("echo worked; echo a > a.txt"));
  expect((await coordinator.event("turn_finished")).result).toMatchObject({ state: "done" });
  const settled = await coordinator.event("turn_settled");
  expect(settled.checkpoint).toBeNull();
  expect(settled.error).toMatch(/disk .*full/i);
  expect(texts(coordinator.events)).toContain("worked");
  const frozen = await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(frozen).toMatchObject({ ok: true, value: { outcome: "failed", code: "disk_full" } });
  await coordinator.command(exec("rm", fill));
  const again = await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  expect(again).toMatchObject({ ok: true, value: { outcome: "committed" } });
  expect(coordinator.events.filter(({ type }) => type === "turn_finished")).toHaveLength(1);
});

test("a link over which nothing comes back is cut and dialled again", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  coordinator.stall();
  await coordinator.until(() => coordinator.hellos.length === 2, "another link");
  expect(await coordinator.command(exec("true"))).toMatchObject({ ok: true });
});

test("a checkpoint whose parent is not known any more is made again, whole", async () => {
  const { coordinator, sandbox, next } = await stage();
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "first\n");
  await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: false });
  coordinator.refuseParents = true;
  writeFileSync(join(sandbox.repo, "b.txt"), "second\n");
  const answer = await coordinator.command({ kind: "checkpoint", reason: "manual", if_changed: true });
  expect(answer).toMatchObject({ ok: true, value: { outcome: "committed" } });
  expect(coordinator.committed.at(-1)!.request.parts.filter(({ from }) => from !== undefined)).toEqual([]);
  const second = await next({ candidates: [coordinator.candidate(coordinator.committed.at(-1)!.id)] });
  second.start();
  await coordinator.ready();
  expect([second.read("a.txt"), second.read("b.txt")]).toEqual(["first\n", "second\n"]);
});
