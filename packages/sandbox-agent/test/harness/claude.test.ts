/** The real Claude Code, pinned, against a stand-in model on loopback. */
import { mkdir, readFile, stat, utimes, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ANTHROPIC_USAGE, startAnthropic } from "../../../../test/stand-ins/anthropic.ts";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { agentClis } from "../../../../test/support/agent-clis.ts";
import { claude } from "../../src/harness/claude.ts";
import { harnessContract, KEY, type Rig, teller } from "./contract.ts";
import { makeSandbox } from "./support.ts";

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

const rig: Rig = {
  harness: claude,
  env: () => env,
  model: () => model,
  modelName: null,
  keyName: "ANTHROPIC_API_KEY",
  usage: { ...ANTHROPIC_USAGE, cache_read_tokens: 0, cache_write_tokens: 0 },
  toolName: "Bash",
};
const tell = teller(rig);

harnessContract(rig);

describe("an API error is shown as what it is", () => {
  test.each([
    [403, "hangar secret set"],
    [429, "wait, then send again"],
    [529, "send again in a while"],
  ])("%i", async (status, advice) => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, `fail with ${status}`);
    expect(result).toMatchObject({ state: "failed", exit_code: 1, conversation_lost: false });
    expect(result.error).toContain(String(status));
    expect(result.error).toContain(advice);
  });

  test("a refused key is not tried for minutes", async () => {
    await using sandbox = await makeSandbox();
    const { result, outputs } = await tell(sandbox, "fail with 401", { env: { CLAUDE_CODE_MAX_RETRIES: "10" } });
    expect(result).toMatchObject({ state: "failed", conversation_lost: false });
    expect(result.error).toMatch(/refused .* credential \(401: .*hangar secret set/);
    expect(outputs.filter(({ kind }) => kind === "retry").length).toBe(3);
    const next = await tell(sandbox, "remember dolomite", { harnessSession: result.harness_session });
    expect(next.result).toMatchObject({ state: "done", harness_session: result.harness_session });
  });

  test("retries are told", async () => {
    await using sandbox = await makeSandbox();
    model.failNext(529);
    const { result, outputs } = await tell(sandbox, "remember mica");
    expect(outputs).toContainEqual({ kind: "retry", attempt: 1, status: 529 });
    expect(result).toMatchObject({ state: "done", summary: "I will remember mica." });
  });
});

test("a resumed transcript gets a fresh time, since old ones are deleted", async () => {
  await using sandbox = await makeSandbox();
  const place = { ...sandbox, env };
  const id = (await tell(sandbox, "remember tuff")).result.harness_session ?? "";
  const { path } = (await claude.transcript(place, id)) ?? { path: "" };
  const old = new Date(Date.now() - 90 * 86_400_000);
  await utimes(path, old, old);
  await claude.relocate(place, id);
  expect(Date.now() - (await stat(path)).mtimeMs).toBeLessThan(86_400_000);
});

test("a fresh home is seeded once, keeps what is there, and holds no credential", async () => {
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

test("a checkpoint keeps conversations and nothing else", () => {
  const { keeps } = claude.conversation;
  const id = "18b5c77b-01e9-4f89-8c71-173ccfe012ba";
  const kept = [`.claude/projects/-w/${id}.jsonl`, `.claude/projects/-w/${id}/tool-results/a.txt`];
  expect(kept.filter(keeps)).toEqual(kept);
  const never = [
    ".claude/.credentials.json",
    ".claude/.claude.json",
    ".claude/settings.json",
    ".claude/sessions/1.key",
  ];
  expect(never.filter(keeps)).toEqual([]);
});

test("a workspace with a long path and odd letters has one conversation folder", async () => {
  await using outer = await makeSandbox();
  await using sandbox = await makeSandbox(join(outer.cwd, "é ü".repeat(20), "b".repeat(200)));
  const id = (await tell(sandbox, "remember chert")).result.harness_session ?? "";
  const before = await claude.transcript({ ...sandbox, env }, id);
  const two = await tell(sandbox, "what did I ask you to remember?", { harnessSession: id });
  expect(two.result.summary).toBe("You asked me to remember chert.");
  // Had it been looked for in another folder, it would have been moved.
  expect((await claude.transcript({ ...sandbox, env }, id))?.path).toBe(before?.path);
});
