/** Every `hangar` command that README.md shows is run, in its order, with a local repo in the place of the one on the network. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { git, run } from "../../../test/support/hangar.ts";
import { type Cli, makeCli } from "./support.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const blocks = (language: string): string[] =>
  [...README.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)]
    .filter((found) => found[1] === language)
    .map((found) => found[2] as string);

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let cli: Cli;
let remote: string;
beforeAll(async () => {
  cli = makeCli();
  remote = await cli.remote();
  // The repo that the README names has its first branch by another name.
  await git(remote, "branch", "master", "main");
  mkdirSync(join(cli.dir, "bin"));
  symlinkSync(join(ROOT, "node_modules/.bin/hangar"), join(cli.dir, "bin/hangar"));
  for (const block of blocks("yaml")) {
    const [, name] = /^# (\S+)$/m.exec(block) ?? [];
    if (name) writeFileSync(join(cli.dir, name), local(block));
  }
  await cli.ok("up");
});
afterAll(() => cli.close());

const local = (text: string): string => text.replaceAll("https://github.com/octocat/Hello-World", `file://${remote}`);

test("every command in it runs", async () => {
  const commands = blocks("sh")
    .flatMap((block) => block.trimEnd().split("\n"))
    .filter((line) => line.startsWith("hangar "));
  expect(commands.length).toBeGreaterThan(15);
  const env = {
    ...cli.env,
    PATH: `${join(cli.dir, "bin")}${delimiter}${cli.env["PATH"]}`,
    ANTHROPIC_API_KEY: "made up",
  };
  for (const command of commands) {
    // Secrets come after `hangar down` there.
    if (command.startsWith("hangar secret") || command.startsWith("hangar env")) await cli.ok("up");
    const ran = await run("/bin/sh", ["-c", local(command)], { cwd: cli.dir, env });
    expect(ran.code, `${command}\n${ran.stdout}${ran.stderr}`).toBe(0);
  }
});

test("every npm script and every page that it names is there", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
    scripts: Record<string, string>;
  };
  for (const [, name] of README.matchAll(/^npm (?:run )?(start|test|\w+)$/gm))
    expect(scripts).toHaveProperty(name as string);
  for (const [, page] of README.matchAll(/\]\((docs\/[^)]+)\)/g))
    expect(readFileSync(join(ROOT, page as string), "utf8").length).toBeGreaterThan(100);
});
