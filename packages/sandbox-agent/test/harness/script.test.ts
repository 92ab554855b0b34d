import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { TurnOutput } from "@hangar/shared";
import { LIMITS } from "../../src/harness/harness.ts";
import { script } from "../../src/harness/script.ts";
import { eventually, makeSandbox, running, type Sandbox, say, type Saying, type Told } from "./support.ts";

const tell = (sandbox: Sandbox, message: string, more: Partial<Saying> = {}): Promise<Told> =>
  say(script, sandbox, { message, ...more });
const sessions = join(".hangar-script", "sessions");

test("a message runs in the workspace and its last lines are the summary", async () => {
  await using sandbox = await makeSandbox();
  const { result, text } = await tell(sandbox, "pwd\necho\nprintf 'no line end é'");
  const id = result.harness_session;
  expect(result).toMatchObject({ state: "done", exit_code: 0, error: null, usage: null, conversation_lost: false });
  expect(result.summary).toBe(`${sandbox.cwd}\nno line end é`);
  expect(text()).toBe(`began conversation ${id}, turn 1\n${sandbox.cwd}\n\nno line end é\n`);
});

test("the conversation goes on in another home that has its transcript", async () => {
  await using first = await makeSandbox();
  await using second = await makeSandbox(first.cwd);
  const id = (await tell(first, "echo the word is heliotrope")).result.harness_session ?? "";
  await cp(join(first.home, sessions), join(second.home, sessions), { recursive: true });
  const two = await tell(
    second,
    'grep -o "heliotrope" "$HANGAR_TRANSCRIPT" | head -1; echo $HANGAR_CONVERSATION $HANGAR_TURN',
    {
      harnessSession: id,
    },
  );
  expect(two.result).toMatchObject({ state: "done", harness_session: id, summary: `heliotrope\n${id} 2` });
  expect(two.text()).toContain(`resumed conversation ${id}, turn 2\n`);
  const records = (await readFile(join(second.home, sessions, `${id}.jsonl`), "utf8")).trim().split("\n");
  expect(records.map((line) => JSON.parse(line))).toMatchObject([
    { type: "user", turn: 1, text: "echo the word is heliotrope" },
    { type: "assistant", turn: 1, text: "the word is heliotrope\n", exit_code: 0 },
    { type: "user", turn: 2 },
    { type: "assistant", turn: 2, exit_code: 0 },
  ]);
});

test("a conversation that is not there is lost, and nothing runs", async () => {
  await using sandbox = await makeSandbox();
  const { result } = await tell(sandbox, "touch ran", { harnessSession: "18b5c77b-01e9-4f89-8c71-173ccfe012ba" });
  expect(result).toMatchObject({ state: "failed", conversation_lost: true, harness_session: null });
  await expect(readFile(join(sandbox.cwd, "ran"))).rejects.toThrow("ENOENT");
});

test("a transcript with a torn last line goes on behind it", async () => {
  await using sandbox = await makeSandbox();
  const id = (await tell(sandbox, "true")).result.harness_session ?? "";
  const path = join(sandbox.home, sessions, `${id}.jsonl`);
  await writeFile(path, '{"type":"assist', { flag: "a" });
  expect((await tell(sandbox, "echo $HANGAR_TURN", { harnessSession: id })).result.summary).toBe("2");
  const lines = (await readFile(path, "utf8")).trim().split("\n");
  expect(lines.map((line) => line.slice(0, 10))).toEqual([
    '{"type":"u',
    '{"type":"a',
    '{"type":"a',
    '{"type":"u',
    '{"type":"a',
  ]);
});

test("a failing script fails with its exit code and last word", async () => {
  await using sandbox = await makeSandbox();
  const { result, text } = await tell(sandbox, "echo half; echo 'no such thing' >&2; exit 7");
  expect(result).toMatchObject({ state: "failed", exit_code: 7, summary: "half" });
  expect(result.error).toBe("The script ended with exit code 7: no such thing");
  expect(text("stderr")).toBe("no such thing\n");
});

test("a preamble is told, not run", async () => {
  await using sandbox = await makeSandbox();
  const { result } = await tell(sandbox, "echo ran", { preamble: "exit 9\nexit 8" });
  expect(result).toMatchObject({ state: "done", summary: "ran" });
});

test("reads nothing from stdin, and takes a script longer than an argument may be", async () => {
  await using sandbox = await makeSandbox();
  const { result } = await tell(sandbox, `cat; echo ${"x".repeat(300_000)} | wc -c`);
  expect(result).toMatchObject({ state: "done", summary: "300001" });
});

test("output comes while the script runs", async () => {
  await using sandbox = await makeSandbox();
  const go = join(sandbox.cwd, "go");
  let written = false;
  const onOutput = (output: TurnOutput): void => {
    if (output.kind !== "text" || !output.text.includes("waiting")) return;
    written = true;
    void writeFile(go, "");
  };
  const { result } = await tell(sandbox, "echo waiting; until [ -e go ]; do sleep 0.05; done; echo gone on", {
    onOutput,
  });
  expect(written).toBe(true);
  expect(result.summary).toBe("waiting\ngone on");
});

test("endless lines and endless output stay within bounds", async () => {
  await using sandbox = await makeSandbox();
  const { result, outputs } = await tell(
    sandbox,
    "head -c 50000000 /dev/zero | tr '\\0' x; echo; yes | head -c 60000000; echo end",
  );
  expect(result).toMatchObject({ state: "done" });
  expect(result.summary?.endsWith("end")).toBe(true);
  const sizes = outputs.map((output) => JSON.stringify(output).length);
  expect(Math.max(...sizes)).toBeLessThan(3 * LIMITS.event);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(LIMITS.turn + 3 * LIMITS.event);
  expect(outputs.at(-1)).toEqual({ kind: "stderr", text: expect.stringContaining("not shown") });
});

test("a server that a finished turn leaves behind neither holds the turn nor dies of its output", async () => {
  await using sandbox = await makeSandbox();
  const server =
    "i=0; while [ ! -e stop ]; do echo tick; sleep 0.02; i=$((i+1)); echo $i > ticks; done; echo over > stopped";
  const { result } = await tell(sandbox, `( ${server} ) & echo started`);
  expect(result).toMatchObject({ state: "done" });
  const ticks = async (): Promise<number> =>
    Number(await readFile(join(sandbox.cwd, "ticks"), "utf8").catch(() => "0"));
  const then = await ticks();
  await eventually(async () => (await ticks()) > then + 5);
  await writeFile(join(sandbox.cwd, "stop"), "");
  await eventually(() => readFile(join(sandbox.cwd, "stopped"), "utf8").catch(() => null));
});

test("stopping ends what left the group, what ignores SIGTERM and what was orphaned before", async () => {
  await using sandbox = await makeSandbox();
  const stop = new AbortController();
  const mark = `stopping-${process.pid}`;
  const deaf = `perl -e '$SIG{TERM}="IGNORE"; sleep 300 # ${mark}'`;
  const turn = tell(sandbox, `( setsid ${deaf} & )\nsetsid ${deaf} &\n${deaf}`, { signal: stop.signal, graceMs: 200 });
  await eventually(async () => (await running(`sleep 300 # ${mark}`)).filter(Boolean).length >= 3);
  stop.abort();
  const { result } = await turn;
  expect(result).toMatchObject({ state: "cancelled", error: null, conversation_lost: false });
  expect(await running(`sleep 300 # ${mark}`)).toEqual([]);
  const next = await tell(sandbox, "echo $HANGAR_TURN", { harnessSession: result.harness_session });
  expect(next.result.summary).toBe("2");
});

test("a turn over its time is ended with everything it started", async () => {
  await using sandbox = await makeSandbox();
  const mark = `over-time-${process.pid}`;
  const { result } = await tell(sandbox, `( setsid perl -e 'sleep 300 # ${mark}' & )\nsleep 300`, {
    timeoutSeconds: 1,
  });
  expect(result).toMatchObject({ state: "failed", conversation_lost: false });
  expect(result.error).toContain("longer than 1 s");
  expect(await running(`sleep 300 # ${mark}`)).toEqual([]);
  expect((await tell(sandbox, "echo on", { harnessSession: result.harness_session })).result.summary).toBe("on");
});

test("stopped before it starts, nothing runs", async () => {
  await using sandbox = await makeSandbox();
  const signal = AbortSignal.abort("interrupted");
  const { result } = await tell(sandbox, "touch ran", { signal });
  expect(result).toMatchObject({ state: "interrupted", exit_code: null });
  await expect(readFile(join(sandbox.cwd, "ran"))).rejects.toThrow("ENOENT");
});

test("a workspace that is not there fails in one line", async () => {
  await using sandbox = await makeSandbox();
  const { result } = await tell(sandbox, "true", { cwd: join(sandbox.cwd, "nowhere") });
  expect(result).toMatchObject({ state: "failed", exit_code: null });
  expect(result.error).toContain("could not run");
  expect(result.error).toContain(join(sandbox.cwd, "nowhere"));
});
