/** A session goes from Claude Code to Codex, back, and to pi: the real programs, each told what it cannot know. */
import { writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import type { Session, Turn } from "@hangar/shared";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { startOpenAi } from "../stand-ins/openai.ts";
import type { StandIn } from "../stand-ins/server.ts";
import { agentClis } from "../support/agent-clis.ts";
import { makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let anthropic: StandIn;
let openAi: StandIn;
const RECALL = "what did I ask you to remember?";
const KEY = "sk-ant-api03-made-up-for-tests-0123456789";

beforeAll(async () => {
  [anthropic, openAi] = [await startAnthropic(), await startOpenAi()];
  hangar = await startHangar({
    PATH: [await agentClis(), dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter),
    HANGAR_IDLE_PASS_SECONDS: "1",
  });
  const file = join(hangar.dir, "env.yaml");
  const lines = [
    "name: web",
    `repo: ${await makeRemote(hangar.dir)}`,
    "harness: claude",
    "check: echo it says $ANTHROPIC_API_KEY; cat src/f1.txt; test -e done.txt",
    "secrets: [ANTHROPIC_API_KEY, OPENAI_API_KEY]",
    "variables:",
    `  ANTHROPIC_BASE_URL: ${anthropic.url}`,
    `  OPENAI_BASE_URL: ${openAi.url}/v1`,
    '  CLAUDE_CODE_MAX_RETRIES: "1"',
  ];
  await writeFile(file, lines.join("\n"));
  for (const name of ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]) {
    expect(await hangar.cli(["secret", "set", name], { input: KEY })).toMatchObject({ code: 0 });
  }
  expect(await hangar.cli(["env", "apply", "-f", file])).toMatchObject({ code: 0 });
}, 600_000);
afterAll(async () => {
  await hangar.close();
  await Promise.all([anthropic.close(), openAi.close()]);
});

const turn = (message: string): Promise<Turn> => hangar.turn("s", message, 120);
const goOnWith = async (harness: string, model?: string): Promise<Session> => {
  const more = model === undefined ? {} : { model };
  return await hangar.api<Session>("POST", "/api/sessions/s/open", { harness, ...more });
};
/** What the model was asked last. */
const asked = (model: StandIn): string =>
  JSON.stringify(model.requests.findLast(({ method }) => method === "POST")?.body);

test("from Claude Code to Codex: the account holds the task, every turn, the branch and the last check", async () => {
  await hangar.api("POST", "/api/sessions", { name: "s", environment: "web", message: "remember heliotrope" });
  const first = (await hangar.until("s", "done", (s) => s.state === "IDLE" && s.turns[0]?.state === "done", 120))
    .turns[0]!;
  await turn("remember quartz");
  const checked = await hangar.cli(["session", "check", "s"]);
  expect(checked).toMatchObject({ code: 1 });
  expect(checked.stdout).toMatch(/^it says \*\*\*\nfile 1\n/);
  expect(checked.stdout).not.toContain(KEY);
  const before = await hangar.session("s");
  expect(before.last_check).toMatchObject({ exit_code: 1, timed_out: false, turn: before.turns[1]?.id });

  await goOnWith("codex", "gpt-5-stand-in");
  const answer = await turn(RECALL);
  expect(answer).toMatchObject({
    state: "done",
    harness: "codex",
    handoff: true,
    conversation_lost: false,
    summary: "You asked me to remember heliotrope, quartz.",
  });
  expect(answer.harness_session).not.toBe(first.harness_session);
  const account = asked(openAi);
  expect(account).toContain("[Hangar: handoff] You continue another agent's work.");
  expect(account).toContain("The original task:\\nremember heliotrope");
  expect(account).toContain("I will remember heliotrope.");
  expect(account).toContain("Then it was asked:\\nremember quartz");
  expect(account).toContain("Branch: hangar/session/s");
  expect(account).toMatch(/The last check of the work, at \S+, failed \(exit code 1\): /);
  expect(account).toContain("It printed:\\nit says ***");
  expect(account).not.toContain(KEY);
  // Only once: Codex resumes its own from then on.
  expect(await turn("remember feldspar")).toMatchObject({ handoff: false, harness_session: answer.harness_session });

  const shown = (await hangar.cli(["session", "get", "s"])).stdout;
  expect(shown).toContain("began with a handoff account, which is lossy");
  expect(shown).toMatch(/^usage +[\d,]+ tokens in, [\d,]+ out/m);
  expect(shown).toMatch(/lossy; [\d,]+ tokens in, [\d,]+ out/);
  expect(shown).toMatch(/check +failed, exit code 1: echo it says/);
}, 240_000);

test("back to Claude Code: its own conversation goes on, with what it missed", async () => {
  await goOnWith("claude");
  const answer = await turn(RECALL);
  const { turns } = await hangar.session("s");
  expect(answer).toMatchObject({ state: "done", harness: "claude", handoff: true, conversation_lost: false });
  expect(answer.harness_session).toBe(turns[0]?.harness_session);
  expect(answer.summary).toBe("You asked me to remember heliotrope, quartz, feldspar.");
  expect(asked(anthropic)).toContain("[Hangar: handoff] Work went on outside this conversation.");
}, 120_000);

test("and to pi, in another sandbox, by command", async () => {
  expect(await hangar.cli(["session", "check", "s", "true"])).toMatchObject({ code: 0 });
  expect(await hangar.cli(["session", "suspend", "s", "--wait"])).toMatchObject({ code: 0 });
  const opened = await hangar.cli([
    "session",
    "open",
    "s",
    "--harness",
    "pi",
    "--model",
    "anthropic/claude-opus-5-5",
    "--wait",
  ]);
  expect(opened, opened.stderr).toMatchObject({ code: 0 });
  const sent = await hangar.cli(["session", "send", "s", "--wait", RECALL]);
  expect(sent).toMatchObject({ code: 0, stdout: expect.stringContaining("remember heliotrope, quartz, feldspar.") });
  expect(sent.stderr).toContain("began with a handoff account, which is lossy");
  expect(asked(anthropic)).toMatch(/The last check of the work, at \S+, passed: \\"true\\"/);
  expect((await hangar.session("s")).turns.at(-1)).toMatchObject({ harness: "pi", handoff: true });
}, 120_000);

test("a conversation that is gone is said, and the next turn begins with the account", async () => {
  await hangar.api("POST", "/api/sessions", { name: "gone", environment: "web" });
  await hangar.until("gone", "ready", (s) => s.state === "IDLE");
  const first = await hangar.turn("gone", "remember basalt", 120);
  await hangar.exec("gone", "sh", "-c", 'rm -r "$CLAUDE_CONFIG_DIR/projects"');
  const lost = await hangar.turn("gone", "go on", 120);
  expect(lost).toMatchObject({ state: "failed", conversation_lost: true, harness_session: first.harness_session });
  const shown = (await hangar.cli(["session", "get", "gone"])).stdout;
  expect(shown).toContain("is not in this sandbox, so nothing was run: send again");
  expect(shown).toContain("the agent's conversation was lost");
  const next = await hangar.turn("gone", RECALL, 120);
  expect(next).toMatchObject({ state: "done", handoff: true, summary: "You asked me to remember basalt." });
  expect(next.harness_session).not.toBe(first.harness_session);
  expect(await hangar.turn("gone", "remember tuff", 120)).toMatchObject({
    handoff: false,
    conversation_lost: false,
    harness_session: next.harness_session,
  });
}, 120_000);

test("the account is bounded, whatever the session said, and a check that is nowhere is one line", async () => {
  await goOnWith("script");
  for (let i = 0; i < 8; i++) await turn(`: ${"x".repeat(9000)}; seq -s , 1 4000`);
  const much = await hangar.cli(["session", "check", "s", "seq 1 300000; exit 3", "--json"]);
  expect(much).toMatchObject({ code: 1 });
  expect(JSON.parse(much.stdout)).toMatchObject({
    exit_code: 3,
    output: expect.stringMatching(/its end is not here\)$/),
  });
  const late = await hangar.cli(["session", "check", "s", "echo begun; sleep 60", "--timeout", "1"]);
  expect(late).toMatchObject({ code: 1, stdout: "begun\n", stderr: expect.stringContaining("did not end in time") });
  expect(await hangar.cli(["session", "check", "s", "seq 1 9000"])).toMatchObject({ code: 0 });
  await goOnWith("codex", "gpt-5-stand-in");
  expect(await turn("hello")).toMatchObject({ state: "done", handoff: true });
  const account =
    /\[Hangar: handoff\][^]*End of the account/.exec(
      asked(openAi).slice(asked(openAi).lastIndexOf("[Hangar: handoff]")),
    )?.[0] ?? "";
  expect(account.length).toBeGreaterThan(4000);
  expect(account.length).toBeLessThan(20_000);
  expect(account).toContain("turns in between are left out");
  expect(account).toContain("9000");
  const body = { name: "plain", harness: "script" };
  await hangar.api("POST", "/api/sessions", body);
  await hangar.until("plain", "ready", (s) => s.state === "IDLE");
  const none = await hangar.cli(["session", "check", "plain"]);
  expect(none).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('"plain" has no check: give one, or set `check`'),
  });
}, 240_000);
