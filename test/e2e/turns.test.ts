/** Turns through the command line: seen while they run, queued, cancelled, timed out, made once for one key. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Turn } from "@hangar/shared";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CLI, makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
beforeAll(async () => {
  hangar = await startHangar({ HANGAR_IDLE_PASS_SECONDS: "1" });
  const repo = await makeRemote(hangar.dir);
  await hangar.api("POST", "/api/sessions", { name: "s", repo, harness: "script" });
  await hangar.until("s", "ready", (s) => s.state === "IDLE");
}, 120_000);
afterAll(() => hangar.close());

/** Goes on until a file of this name is there. */
const until = (file: string): string => `while [ ! -e ${file} ]; do sleep 0.1; done`;
const send = async (...args: string[]): Promise<Turn> => {
  const ran = await hangar.cli(["session", "send", "s", ...args, "--json", "--no-wait"]);
  expect(ran, ran.stderr).toMatchObject({ code: 0 });
  return JSON.parse(ran.stdout) as Turn;
};
const ended = async (id: string): Promise<Turn> => {
  const isOver = (turn: Turn): boolean => turn.id === id && !["queued", "running"].includes(turn.state);
  const session = await hangar.until("s", `done with ${id}`, (s) => s.state === "IDLE" && s.turns.some(isOver));
  return session.turns.find((turn) => turn.id === id) as Turn;
};

test("what the agent says is shown while it still runs", async () => {
  const child = spawn(
    process.execPath,
    [CLI, "session", "send", "s", "--wait", `echo halfway; ${until("on")}; echo over`],
    {
      env: hangar.env,
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let seen = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (seen += text));
  await expect.poll(() => seen, { timeout: 30_000 }).toContain("halfway");
  expect((await hangar.session("s")).turns.at(-1)).toMatchObject({ state: "running" });
  const exited = once(child, "exit");
  await hangar.exec("s", "touch", "on");
  expect(await exited).toEqual([0, null]);
  expect(seen).toMatch(/halfway\n[^]*over/);
});

test("messages queue while a turn runs, keep their order, and are cancelled before and during their run", async () => {
  const first = await send(`${until("one")}; echo first >> order`);
  await hangar.until("s", "at work", (s) => s.state === "ACTIVE");
  const second = await send("echo second >> order");
  const never = await send("echo never >> order");
  const last = await send(`echo last >> order; ${until("forever")}`);
  expect((await hangar.cli(["session", "get", "s"])).stdout).toContain("3 waiting: ");
  expect(await hangar.cli(["session", "cancel", "s", never.id])).toMatchObject({ code: 0 });
  await hangar.exec("s", "touch", "one");
  await hangar.until("s", "at its last turn", (s) =>
    s.turns.some(({ id, state }) => id === last.id && state === "running"),
  );
  await expect.poll(async () => (await hangar.exec("s", "cat", "order")).stdout).toBe("first\nsecond\nlast\n");
  expect(await hangar.cli(["session", "cancel", "s", last.id])).toMatchObject({ code: 0 });
  expect(await ended(last.id)).toMatchObject({ state: "cancelled" });
  expect((await ended(never.id)).started_at).toBeNull();
  for (const { id } of [first, second]) expect(await ended(id)).toMatchObject({ state: "done" });
  expect(await hangar.pids(/sleep 0\.1/)).toEqual([]);
});

test("a turn over its time is ended, says so, and the next one goes on", async () => {
  const turn = await ended((await send("--timeout", "1", `echo begun > begun; ${until("forever")}`)).id);
  expect(turn).toMatchObject({ state: "failed" });
  expect(turn.error).toBe("The turn was stopped: it took longer than 1 s. Send again to go on, or allow more time");
  expect((await hangar.cli(["session", "get", "s"])).stdout).toContain("it took longer than 1 s");
  expect(await hangar.turn("s", "cat begun")).toMatchObject({ state: "done", summary: "begun" });
});

test("one key is one turn, also after the coordinator was killed and after a suspend", async () => {
  const message = "echo ran >> runs; cat runs";
  const first = await send("--key", "once", `sleep 1; ${message}`);
  await hangar.restart();
  expect((await send("--key", "once", `sleep 1; ${message}`)).id).toBe(first.id);
  expect(await ended(first.id)).toMatchObject({ state: "done", summary: "ran" });
  expect(await hangar.cli(["session", "suspend", "s", "--wait"])).toMatchObject({ code: 0 });
  expect((await send("--key", "once", "something else")).id).toBe(first.id);
  expect(await hangar.turn("s", message)).toMatchObject({ summary: "ran\nran" });
}, 120_000);
