import { readdirSync } from "node:fs";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
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
  expect(stdout).toMatch(/staged staged\.txt, uncommitted staged\.txt, untracked untracked\.bin/);
  expect(stdout).toMatch(/suspended: the sandbox is gone; ckp-\w+ holds it/);
  expect(stdout).toMatch(
    /the same in both: HEAD, branch, index, every file's bytes, modes, staged changes, uncommitted changes, untracked files/,
  );
  expect(stdout).toMatch(/the conversation went on: [0-9a-f-]{36}/);
  expect(lines.at(-1)).toMatch(/^All of it held, in \d+\.\d s/);
  expect(readdirSync(cli.dir).filter((name) => name.startsWith("hangar-demo-"))).toEqual([]);
});
