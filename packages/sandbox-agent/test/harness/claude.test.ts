/** The real Claude Code, pinned, against a stand-in model on loopback. */
import { cp, mkdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { delimiter, dirname, join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ANTHROPIC_USAGE, startAnthropic } from "../../../../test/stand-ins/anthropic.ts";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { agentClis } from "../../../../test/support/agent-clis.ts";
import { claude } from "../../src/harness/claude.ts";
import { eventually, inTerminal, makeSandbox, running, type Sandbox, say, type Saying, type Told } from "./support.ts";

const KEY = "sk-ant-api03-made-up-for-tests-0123456789";
let model: StandIn;
let env: Record<string, string>;

beforeAll(async () => {
  model = await startAnthropic();
  env = {
    PATH: [await agentClis("claude"), process.env["PATH"] ?? ""].join(delimiter),
    ANTHROPIC_BASE_URL: model.url,
    ANTHROPIC_API_KEY: KEY,
    CLAUDE_CODE_MAX_RETRIES: "1",
  };
}, 300_000);
afterAll(() => model.close());

const tell = (sandbox: Sandbox, message: string, more: Partial<Saying> = {}): Promise<Told> =>
  say(claude, sandbox, { message, ...more, env: { ...env, ...more.env } });

/** Copies nothing but the transcript, as a checkpoint's smallest restore would. */
async function copyTranscript(from: Sandbox, to: Sandbox, id: string): Promise<string> {
  const found = await claude.transcript({ ...from, env }, id);
  if (found === null) throw new Error("there is no transcript");
  const path = join(to.home, relative(from.home, found.path));
  await mkdir(dirname(path), { recursive: true });
  await cp(found.path, path);
  return path;
}

describe("a conversation", () => {
  test("goes on in another sandbox that has only its transcript, with each turn's own use", async () => {
    await using first = await makeSandbox();
    const one = await tell(first, "- please remember heliotrope");
    expect(one.result).toMatchObject({
      state: "done",
      exit_code: 0,
      error: null,
      summary: "I will remember heliotrope.",
      conversation_lost: false,
      usage: { ...ANTHROPIC_USAGE, cache_read_tokens: 0, cache_write_tokens: 0 },
    });
    expect(one.text()).toBe("I will remember heliotrope.");
    const id = one.result.harness_session ?? "";
    expect(claude.validConversation(id)).toBe(true);

    await using second = await makeSandbox(first.cwd);
    const path = await copyTranscript(first, second, id);
    const old = new Date(Date.now() - 90 * 86_400_000);
    await utimes(path, old, old);
    const two = await tell(second, "What did I ask you to remember?", { harnessSession: id });
    expect(two.result).toMatchObject({
      state: "done",
      summary: "You asked me to remember heliotrope.",
      harness_session: id,
      conversation_lost: false,
      usage: ANTHROPIC_USAGE,
    });
    // The CLI reports the cost of the whole conversation; a turn's own is what it added.
    expect(one.result.usage?.cost_usd).toBeGreaterThan(0);
    expect(two.result.usage?.cost_usd).toBeCloseTo(one.result.usage?.cost_usd ?? 0, 9);
    expect((await readFile(path)).includes("heliotrope")).toBe(true);
  });

  test("is found and moved when the workspace is elsewhere", async () => {
    await using first = await makeSandbox();
    await using second = await makeSandbox();
    const id = (await tell(first, "remember quartz")).result.harness_session ?? "";
    const old = await copyTranscript(first, second, id);
    const two = await tell(second, "what did I ask you to remember?", { harnessSession: id });
    expect(two.result).toMatchObject({
      state: "done",
      summary: "You asked me to remember quartz.",
      harness_session: id,
    });
    const now = await claude.transcript({ ...second, env }, id);
    expect(now?.path).not.toBe(old);
    await expect(stat(old)).rejects.toThrow("ENOENT");
  });

  test("survives a torn last line", async () => {
    await using sandbox = await makeSandbox();
    const id = (await tell(sandbox, "remember basalt")).result.harness_session ?? "";
    const { path } = (await claude.transcript({ ...sandbox, env }, id)) ?? { path: "" };
    await writeFile(path, '{"type":"assistant","message":{"role":"assis', { flag: "a" });
    const two = await tell(sandbox, "what did I ask you to remember?", { harnessSession: id });
    expect(two.result).toMatchObject({
      state: "done",
      summary: "You asked me to remember basalt.",
      harness_session: id,
    });
  });

  test("that is not there is reported lost, and nothing is run", async () => {
    await using sandbox = await makeSandbox();
    const id = (await tell(sandbox, "remember gneiss")).result.harness_session ?? "";
    await rm(join(sandbox.home, ".claude", "projects"), { recursive: true });
    const asked = model.requests.length;
    const lost = await tell(sandbox, "go on", { harnessSession: id });
    expect(lost.result).toMatchObject({
      state: "failed",
      conversation_lost: true,
      harness_session: null,
      exit_code: null,
    });
    expect(lost.result.error).toContain("is not in this sandbox");
    expect(model.requests.length).toBe(asked);
    const odd = await tell(sandbox, "go on", { harnessSession: "--help" });
    expect(odd.result).toMatchObject({ state: "failed", conversation_lost: true });
  });

  test("takes a message of 300 KB, and a preamble before it", async () => {
    await using sandbox = await makeSandbox();
    const long = await tell(sandbox, `${"x".repeat(300_000)} remember obsidian`, { preamble: "2 files are missing." });
    expect(long.result).toMatchObject({ state: "done", summary: "I will remember obsidian." });
    expect(JSON.stringify(model.requests.at(-1)?.body)).toContain("2 files are missing.");
  });
});

describe("what is streamed", () => {
  test("text, tool calls and their results, as they come", async () => {
    await using sandbox = await makeSandbox();
    const { outputs, result } = await tell(sandbox, "run: pwd; echo $HOME; exit 3");
    expect(outputs).toEqual([
      { kind: "tool_call", name: "Bash", input: expect.stringContaining("pwd; echo $HOME") },
      { kind: "tool_result", name: "Bash", is_error: true, output: expect.stringContaining(sandbox.cwd) },
      { kind: "text", text: expect.stringContaining("The command printed:") },
    ]);
    expect(result).toMatchObject({ state: "done", usage: { input_tokens: 200, output_tokens: 20 } });
    expect(result.summary).toContain(sandbox.home);
  });
});

describe("an API error is shown as what it is", () => {
  test.each([
    [401, "hangar secret set"],
    [403, "hangar secret set"],
    [429, "wait, then send again"],
    [529, "send again in a while"],
  ])("%i", async (status, advice) => {
    await using sandbox = await makeSandbox();
    const { result, outputs } = await tell(sandbox, `fail with ${status}`);
    expect(result).toMatchObject({ state: "failed", exit_code: 1, conversation_lost: false });
    expect(result.error).toContain(String(status));
    expect(result.error).toContain(advice);
    expect(result.error).not.toContain("\n");
    expect(outputs.filter(({ kind }) => kind === "text")).toEqual([]);
    const next = await tell(sandbox, "remember jasper", { harnessSession: result.harness_session });
    expect(next.result).toMatchObject({ state: "done", harness_session: result.harness_session });
  });

  test("a prompt that is too long", async () => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, "overflow");
    expect(result.state).toBe("failed");
    expect(result.error).toContain("too long for the model");
  });

  test("retries are told", async () => {
    await using sandbox = await makeSandbox();
    model.failNext(529);
    const { result, outputs } = await tell(sandbox, "remember mica");
    expect(outputs).toContainEqual({ kind: "retry", attempt: 1, status: 529 });
    expect(result).toMatchObject({ state: "done", summary: "I will remember mica." });
  });
});

describe("what stops before it runs", () => {
  test("no credential", async () => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, "hello", { env: { ANTHROPIC_API_KEY: "" } });
    expect(result).toMatchObject({ state: "failed", exit_code: null });
    expect(result.error).toContain("hangar secret set CLAUDE_CODE_OAUTH_TOKEN");
  });

  test("no program", async () => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, "hello", { env: { PATH: "/usr/bin:/bin" } });
    expect(result).toMatchObject({ state: "failed", exit_code: null });
    expect(result.error).toContain("npm install -g @anthropic-ai/claude-code");
  });
});

describe("a turn stopped while a tool runs leaves no process and goes on later", () => {
  test.each(["cancelled", "interrupted"] as const)("%s", async (reason) => {
    await using sandbox = await makeSandbox();
    const id = (await tell(sandbox, "remember pumice")).result.harness_session ?? "";
    const stop = new AbortController();
    // One that ignores SIGTERM and has left its parent and its session; one that the shell waits for.
    const tool = `( setsid perl -e '$SIG{TERM}="IGNORE"; sleep 300 # ${id}' & ) ; perl -e 'sleep 300 # ${id}'; echo over`;
    const turn = tell(sandbox, `run: ${tool}`, { harnessSession: id, signal: stop.signal, graceMs: 3000 });
    await eventually(async () => (await running(`sleep 300 # ${id}`)).length >= 2);
    stop.abort(reason);
    const { result } = await turn;
    expect(result).toMatchObject({ state: reason, error: null, harness_session: id, conversation_lost: false });
    expect(await running(id)).toEqual([]);
    const next = await tell(sandbox, "what did I ask you to remember?", { harnessSession: id });
    expect(next.result).toMatchObject({
      state: "done",
      summary: "You asked me to remember pumice.",
      harness_session: id,
    });
  });

  test("killed by something else", async () => {
    await using sandbox = await makeSandbox();
    const id = (await tell(sandbox, "remember scoria")).result.harness_session ?? "";
    let pid = 0;
    const turn = tell(sandbox, `run: perl -e 'sleep 300 # ${id}'`, {
      harnessSession: id,
      onStarted: (started) => {
        pid = started;
      },
    });
    await eventually(async () => (await running(`sleep 300 # ${id}`)).length > 0);
    process.kill(pid, "SIGKILL");
    const { result } = await turn;
    expect(result).toMatchObject({ state: "failed", exit_code: 137, harness_session: id, conversation_lost: false });
    expect(result.error).toBe("Claude Code was ended by SIGKILL: perhaps the memory ran out");
    expect(await running(id)).toEqual([]);
    const next = await tell(sandbox, "what did I ask you to remember?", { harnessSession: id });
    expect(next.result).toMatchObject({
      state: "done",
      summary: "You asked me to remember scoria.",
      harness_session: id,
    });
  });

  test("over its time", async () => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, "run: perl -e 'sleep 300 # over-its-time'", { timeoutSeconds: 3 });
    expect(result).toMatchObject({ state: "failed" });
    expect(result.error).toContain("longer than 3 s");
    expect(await running("over-its-time")).toEqual([]);
  });
});

describe("a fresh home", () => {
  test("comes straight up with the history in an interactive resume", async () => {
    await using first = await makeSandbox();
    const id = (await tell(first, "remember travertine")).result.harness_session ?? "";
    await using second = await makeSandbox(first.cwd);
    await copyTranscript(first, second, id);
    const place = { ...second, env: { ...env, TERM: "xterm-256color" } };
    await claude.seed(place);
    const command = await claude.interactive({ ...place, model: null, resume: id, fresh: null });
    await using terminal = await inTerminal(command, second);
    const screen = await eventually(async () => {
      const shown = await terminal.screen();
      return shown.includes("I will remember travertine.") && shown;
    });
    expect(screen).not.toMatch(/trust|API key|onboarding|Bypass Permissions mode, /i);
  });

  test("is seeded once, keeps what is there, and holds no credential", async () => {
    await using sandbox = await makeSandbox();
    const place = { ...sandbox, env };
    await mkdir(join(sandbox.home, ".claude"));
    await writeFile(join(sandbox.home, ".claude", "settings.json"), '{"cleanupPeriodDays":7,"theme":"dark"}');
    await claude.seed(place);
    const read = async (file: string): Promise<unknown> =>
      JSON.parse(await readFile(join(sandbox.home, ".claude", file), "utf8"));
    expect(await read("settings.json")).toEqual({
      cleanupPeriodDays: 7,
      theme: "dark",
      skipDangerousModePermissionPrompt: true,
    });
    expect(await read(".claude.json")).toMatchObject({
      hasCompletedOnboarding: true,
      customApiKeyResponses: { approved: [KEY.slice(-20)] },
      projects: { [sandbox.cwd]: { hasTrustDialogAccepted: true } },
    });
    const path = join(sandbox.home, ".claude", ".claude.json");
    const before = (await stat(path)).ino;
    await claude.seed(place);
    expect((await stat(path)).ino).toBe(before);
    expect(await readFile(path, "utf8")).not.toContain(KEY);
  });

  test("keeps only conversations for a checkpoint", () => {
    const { keeps } = claude.conversation;
    const id = "18b5c77b-01e9-4f89-8c71-173ccfe012ba";
    expect([`.claude/projects/-w/${id}.jsonl`, `.claude/projects/-w/${id}/tool-results/a.txt`].every(keeps)).toBe(true);
    const never = [
      ".claude/.credentials.json",
      ".claude/.claude.json",
      ".claude/settings.json",
      ".claude/sessions/1.key",
    ];
    expect(never.some(keeps)).toBe(false);
  });
});
