/** The real Codex, pinned, against a stand-in model on loopback. */
import { readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { OPENAI_USAGE, startOpenAi } from "../../../../test/stand-ins/openai.ts";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { agentClis } from "../../../../test/support/agent-clis.ts";
import { codex } from "../../src/harness/codex.ts";
import { harnessContract, KEY, type Rig } from "./contract.ts";
import { makeSandbox } from "./support.ts";

let model: StandIn;
let env: Record<string, string>;

beforeAll(async () => {
  model = await startOpenAi();
  env = {
    PATH: [await agentClis("codex"), process.env["PATH"] ?? ""].join(delimiter),
    OPENAI_BASE_URL: `${model.url}/v1`,
    OPENAI_API_KEY: KEY,
  };
}, 300_000);
afterAll(() => model.close());

const rig: Rig = {
  harness: codex,
  env: () => env,
  model: () => model,
  // A name that Codex does not know gets the plain shell tool.
  modelName: "gpt-5-stand-in",
  keyName: "OPENAI_API_KEY",
  usage: {
    input_tokens: OPENAI_USAGE.input_tokens - OPENAI_USAGE.cached_tokens,
    cache_read_tokens: OPENAI_USAGE.cached_tokens,
    cache_write_tokens: 0,
    output_tokens: OPENAI_USAGE.output_tokens,
    cost_usd: null,
  },
  toolName: "shell",
};

harnessContract(rig);

test("its configuration is written anew until a person takes it over", async () => {
  await using sandbox = await makeSandbox();
  const path = join(sandbox.home, ".codex", "config.toml");
  await codex.seed({ ...sandbox, env });
  await codex.seed({ ...sandbox, env: { ...env, OPENAI_BASE_URL: "http://elsewhere.invalid/v1" } });
  expect(await readFile(path, "utf8")).toContain('base_url = "http://elsewhere.invalid/v1"');
  expect(await readFile(path, "utf8")).not.toContain(KEY);
  await writeFile(path, 'model = "mine"\n');
  await codex.seed({ ...sandbox, env });
  expect(await readFile(path, "utf8")).toBe('model = "mine"\n');
});

test("a checkpoint keeps conversations and nothing else", () => {
  const { keeps } = codex.conversation;
  const id = "01a23000-4152-7473-8e4e-94f1325ae9a3";
  const kept = [`.codex/sessions/2026/12/01/rollout-2026-12-01T05-07-32-${id}.jsonl`];
  expect(kept.filter(keeps)).toEqual(kept);
  const never = [".codex/auth.json", ".codex/config.toml", ".codex/shell_snapshots/a.sh", ".codex/state_5.sqlite"];
  expect(never.filter(keeps)).toEqual([]);
});
