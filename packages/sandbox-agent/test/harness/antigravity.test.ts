/** Antigravity's adapter, with a stand-in for its program, which is not published, and one for its model. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ANTHROPIC_USAGE, startAnthropic } from "../../../../test/stand-ins/anthropic.ts";
import { installAntigravityStandIn } from "../../../../test/stand-ins/antigravity.ts";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { antigravity } from "../../src/harness/antigravity.ts";
import { antigravityParser } from "../../src/harness/antigravity-output.ts";
import { harnessContract, KEY, type Rig, teller } from "./contract.ts";
import { makeSandbox } from "./support.ts";

let model: StandIn;
let bin: string;
let env: Record<string, string>;

beforeAll(async () => {
  model = await startAnthropic();
  bin = await mkdtemp(join(tmpdir(), "hangar-agy-"));
  await installAntigravityStandIn(bin);
  env = {
    PATH: [bin, process.env["PATH"] ?? ""].join(delimiter),
    ANTIGRAVITY_STAND_IN_MODEL: model.url,
    GEMINI_API_KEY: KEY,
  };
});
afterAll(async () => {
  await model.close();
  await rm(bin, { recursive: true });
});

const rig: Rig = {
  harness: antigravity,
  env: () => env,
  model: () => model,
  modelName: "stand-in-model",
  keyName: "GEMINI_API_KEY",
  usage: { ...ANTHROPIC_USAGE, cache_read_tokens: 0, cost_usd: null },
  toolName: "run_command",
};

harnessContract(rig);

test("an id that it does not know silently begins a new conversation, which is found out after the turn", async () => {
  await using sandbox = await makeSandbox();
  const tell = teller(rig);
  const id = (await tell(sandbox, "remember schist")).result.harness_session ?? "";
  // The store goes between Hangar's look and the program's own.
  const forgetful = {
    ...antigravity,
    turn: async (context: Parameters<typeof antigravity.turn>[0]) => {
      await rm((await antigravity.transcript(context, id))?.path ?? "");
      return antigravity.turn(context);
    },
  };
  const lost = await teller({ ...rig, harness: forgetful })(sandbox, "what did I ask you to remember?", {
    harnessSession: id,
  });
  expect(lost.result).toMatchObject({
    state: "done",
    summary: "You asked me to remember nothing.",
    conversation_lost: true,
  });
  expect(lost.result.harness_session).not.toBe(id);
  expect(antigravity.validConversation(lost.result.harness_session ?? "")).toBe(true);
});

test("a success without an answer, where actions were denied, is a failure", async () => {
  const parser = antigravityParser([]);
  parser.line(
    '{"event":"result","result":{"status":"SUCCESS","response":"","denied_actions":[{"tool":"run_command"}]}}',
  );
  expect(await parser.end({ code: 0, signal: null }, "")).toMatchObject({
    error: "Antigravity was not allowed 1 actions, and gave no answer",
  });
});

test("a checkpoint keeps conversations and nothing else", () => {
  const { keeps } = antigravity.conversation;
  const folder = ".gemini/antigravity-cli";
  expect(keeps(`${folder}/conversations/01a23000-4152-7473-8e4e-94f1325ae9a3.db`)).toBe(true);
  const never = ["antigravity-oauth-token", "settings.json", "conversations/a.db-wal", "cache/a.db"];
  expect(never.map((file) => `${folder}/${file}`).filter(keeps)).toEqual([]);
});
