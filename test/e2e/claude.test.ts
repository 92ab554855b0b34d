/** The real Claude Code CLI, against a stand-in model on loopback: what was said only in the first turn is known in the second, elsewhere. */
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { agentClis } from "../support/agent-clis.ts";
import { killAll, makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let model: Awaited<ReturnType<typeof startAnthropic>>;
const KEY = "sk-ant-api03-made-up-for-tests-0123456789";

beforeAll(async () => {
  model = await startAnthropic();
  const clis = await agentClis();
  hangar = await startHangar({
    PATH: [clis, process.env["PATH"] ?? ""].join(delimiter),
    HANGAR_IDLE_PASS_SECONDS: "1",
  });
  const remote = await makeRemote(hangar.dir);
  const file = join(hangar.dir, "env.yaml");
  await writeFile(
    file,
    [
      "name: web",
      `repo: ${remote}`,
      "harness: claude",
      "secrets: [ANTHROPIC_API_KEY]",
      "variables:",
      `  ANTHROPIC_BASE_URL: ${model.url}`,
      '  CLAUDE_CODE_MAX_RETRIES: "1"',
    ].join("\n"),
  );
  expect(await hangar.cli(["secret", "set", "ANTHROPIC_API_KEY"], { input: KEY })).toMatchObject({ code: 0 });
  expect(await hangar.cli(["env", "apply", "-f", file])).toMatchObject({ code: 0 });
  // the user's own configuration, which must be neither read nor written
  await mkdir(join(hangar.home, ".claude"), { recursive: true });
  await writeFile(join(hangar.home, ".claude/settings.json"), '{"env":{"ANTHROPIC_BASE_URL":"http://127.0.0.1:9"}}');
}, 600_000);
afterAll(async () => {
  await hangar.close();
  await model.close();
});

test("the second turn, in another sandbox, answers from what was said only in the first", async () => {
  const created = await hangar.cli([
    "session",
    "new",
    "onboarding",
    "--env",
    "web",
    "--wait",
    "please remember heliotrope",
  ]);
  expect(created).toMatchObject({ code: 0 });
  const first = await hangar.session("onboarding");
  expect(first.turns[0]).toMatchObject({ state: "done", exit_code: 0 });
  expect((await hangar.cli(["session", "suspend", "onboarding", "--wait"])).code).toBe(0);
  expect(await hangar.pids(/hangar-agent/)).toEqual([]);

  const sent = await hangar.cli(["session", "send", "onboarding", "--wait", "what did I ask you to remember?"]);
  expect(sent).toMatchObject({ code: 0, stdout: expect.stringContaining("heliotrope") });
  const session = await hangar.session("onboarding");
  expect(session.turns[1]).toMatchObject({ state: "done", conversation_lost: false, handoff: false });
  expect(session.turns[1]?.summary).toContain("heliotrope");
  expect(session.turns[1]?.harness_session).toBe(first.turns[0]?.harness_session);
  expect(session.generation).toBe(first.generation + 1);
  expect(session.turns[1]?.usage).toMatchObject({
    input_tokens: expect.any(Number),
    output_tokens: expect.any(Number),
  });
}, 180_000);

test("the key is in no checkpoint and no event, and the user's own ~/.claude is as it was", async () => {
  expect(await readdir(join(hangar.home, ".claude"))).toEqual(["settings.json"]);
  // Node's cache of compiled code is all that Hangar itself leaves there
  expect((await readdir(hangar.home)).toSorted()).toEqual([".cache", ".claude"]);
  const session = await hangar.session("onboarding");
  expect(JSON.stringify(session)).not.toContain(KEY);
  expect(JSON.stringify(await hangar.events("onboarding"))).not.toContain(KEY);
  expect(hangar.replica.log()).not.toContain(KEY);
  // every part, opened with the vault's identity, as the operator could
  const identity = join(hangar.dataDir, "vault/identity.txt");
  let opened = 0;
  const folder = join(hangar.dataDir, "store/sessions", session.id);
  for (const name of await readdir(folder, { recursive: true })) {
    if (!name.endsWith(".age")) continue;
    const plain = await run("sh", [
      "-c",
      'age -d -i "$1" "$2" > "$3" && { zstd -dcq "$3" 2>/dev/null || cat "$3"; } | grep -c -- "$4"',
      "sh",
      identity,
      join(folder, name),
      join(hangar.dir, "plain"),
      KEY,
    ]);
    expect(plain.stdout.trim()).toBe("0");
    opened++;
  }
  expect(opened).toBeGreaterThan(4);
  expect(await readFile(join(hangar.home, ".claude/settings.json"), "utf8")).toContain("127.0.0.1:9");
});

test("three forks answer from the shared history, and none from another's", async () => {
  const words = ["feldspar", "quartz", "basalt"];
  const forked = await hangar.cli(["session", "fork", "onboarding", "-n", "3", "--name", "try"]);
  expect(forked).toMatchObject({ code: 0 });
  const conversations = new Set([(await hangar.session("onboarding")).harness_session]);
  for (const [i, word] of words.entries()) {
    const name = `try-${i + 1}`;
    expect(await hangar.turn(name, `please remember ${word}`, 120)).toMatchObject({ state: "done", handoff: false });
    const answer = await hangar.turn(name, "what did I ask you to remember?", 120);
    expect(answer).toMatchObject({
      state: "done",
      conversation_lost: false,
      summary: `You asked me to remember heliotrope, ${word}.`,
    });
    conversations.add(answer.harness_session);
    await hangar.api("DELETE", `/api/sessions/${name}?force=true`);
  }
  expect(conversations.size).toBe(4);
  const parent = await hangar.turn("onboarding", "what did I ask you to remember?", 120);
  expect(parent).toMatchObject({ summary: "You asked me to remember heliotrope.", state: "done" });
}, 240_000);

test("an API error is said as what it is, and the session goes on after it", async () => {
  const failed = await hangar.turn("onboarding", "fail with 401");
  expect(failed).toMatchObject({ state: "failed", error: expect.stringMatching(/401|key/i) });
  const next = await hangar.turn("onboarding", "what did I ask you to remember?");
  expect(next).toMatchObject({ state: "done", summary: expect.stringContaining("heliotrope") });
}, 180_000);

test("kill -9 of the daemon during a Claude turn: interrupted, and the conversation goes on", async () => {
  const { turn } = await hangar.api<{ turn: { id: string } }>("POST", "/api/sessions/onboarding/send", {
    message: "run: perl -e 'sleep 300'",
  });
  await hangar.until("onboarding", "running", (s) => s.turns.some((t) => t.id === turn.id && t.state === "running"));
  for (let i = 0; (await hangar.pids(/^perl -e/)).length === 0; i++) {
    if (i > 300) throw new Error("the tool did not start");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const daemons = await hangar.pids(/hangar-agent\S* run/);
  expect(daemons).not.toEqual([]);
  killAll(daemons);
  await hangar.until("onboarding", "interrupted", (s) =>
    s.turns.some((t) => t.id === turn.id && t.state === "interrupted"),
  );
  const next = await hangar.turn("onboarding", "what did I ask you to remember?", 120);
  expect(next).toMatchObject({ state: "done", summary: expect.stringContaining("heliotrope") });
  expect(await hangar.pids(/^perl -e/)).toEqual([]);
}, 240_000);
