/** The real pi, pinned, against a stand-in model on loopback. */
import { readFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ANTHROPIC_USAGE, startAnthropic } from "../../../../test/stand-ins/anthropic.ts";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { agentClis } from "../../../../test/support/agent-clis.ts";
import { pi } from "../../src/harness/pi.ts";
import { copyConversation, harnessContract, KEY, type Rig, teller } from "./contract.ts";
import { makeSandbox } from "./support.ts";

let model: StandIn;
let env: Record<string, string>;

beforeAll(async () => {
  model = await startAnthropic();
  env = {
    // It runs on Node, and needs a newer one than the system may have.
    PATH: [await agentClis("pi"), dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter),
    ANTHROPIC_BASE_URL: model.url,
    ANTHROPIC_API_KEY: KEY,
  };
}, 300_000);
afterAll(() => model.close());

const rig: Rig = {
  harness: pi,
  env: () => env,
  model: () => model,
  modelName: "anthropic/claude-opus-5-5",
  keyName: "ANTHROPIC_API_KEY",
  usage: { ...ANTHROPIC_USAGE, cache_read_tokens: 0, cache_write_tokens: 0 },
  toolName: "bash",
};

harnessContract(rig);

test("a moved conversation keeps every byte but its first line", async () => {
  await using first = await makeSandbox();
  await using second = await makeSandbox();
  const id = (await teller(rig)(first, "remember slate")).result.harness_session ?? "";
  await copyConversation(rig, first, second);
  const place = { ...second, env };
  const text = async (): Promise<string> => readFile((await pi.transcript(place, id))?.path ?? "", "utf8");
  const [, ...before] = (await text()).split("\n");
  await pi.relocate(place, id);
  const [header = "", ...after] = (await text()).split("\n");
  expect(after).toEqual(before);
  expect(JSON.parse(header)).toMatchObject({ type: "session", id, cwd: second.cwd });
  const again = await pi.transcript(place, id);
  await pi.relocate(place, id);
  expect(await pi.transcript(place, id)).toEqual(again);
});

test("a checkpoint keeps conversations and nothing else", () => {
  const { keeps } = pi.conversation;
  const kept = [".pi/agent/sessions/--workspace-repo--/2026_11111111-2222-4333-8444-555555555555.jsonl"];
  expect(kept.filter(keeps)).toEqual(kept);
  const never = ["auth.json", "models.json", "settings.json", "trust.json"].map((file) => join(".pi/agent", file));
  expect(never.filter(keeps)).toEqual([]);
});
