import { readdirSync } from "node:fs";
import { delimiter } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { startAnthropic } from "../../../test/stand-ins/anthropic.ts";
import { agentClis } from "../../../test/support/agent-clis.ts";
import { type Cli, makeCli } from "./support.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let cli: Cli;
beforeEach(() => {
  cli = makeCli();
});
afterEach(() => cli.close());

test("the demo shows the main job, says what it compared, and leaves nothing", async () => {
  const { code, stdout, stderr } = await cli.hangar(["demo"], { env: { TMPDIR: cli.dir } });
  expect(code, stdout + stderr).toBe(0);
  expect(stderr).toContain("no agent's key is set: a script does the work");
  const lines = stdout.trimEnd().split("\n");
  expect(lines.slice(0, -1).every((line) => line.startsWith("✓ "))).toBe(true);
  expect(stdout).toMatch(/staged staged\.txt, uncommitted \S+, staged\.txt, untracked untracked\.bin/);
  expect(stdout).toMatch(/suspended: the sandbox is gone; ckp-\w+ holds it/);
  expect(stdout).toMatch(
    /the same in both: HEAD, branch, index, every file's bytes, modes, staged changes, uncommitted changes, untracked files/,
  );
  expect(stdout).toMatch(/the conversation went on: [0-9a-f-]{36}/);
  expect(lines.at(-1)).toMatch(/^All of it held, in \d+\.\d s/);
  expect(readdirSync(cli.dir).filter((name) => name.startsWith("hangar-demo-"))).toEqual([]);
});

test("with a key it uses Claude Code, which remembers what was said only in the first sandbox", async () => {
  await using model = await startAnthropic();
  const { code, stdout, stderr } = await cli.hangar(["demo"], {
    env: {
      TMPDIR: cli.dir,
      PATH: [await agentClis("claude"), cli.env["PATH"]].join(delimiter),
      ANTHROPIC_API_KEY: "sk-ant-api03-made-up-for-tests-0123456789",
      ANTHROPIC_BASE_URL: model.url,
    },
  });
  expect(code, stdout + stderr).toBe(0);
  expect(stderr).toContain("agent: Claude Code, with ANTHROPIC_API_KEY");
  expect(stdout).toMatch(/turn 1 of claude in sbx-/);
  expect(stdout).toContain('and knew "marmalade" from turn 1');
});
