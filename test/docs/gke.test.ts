/** test/live/gke.sh without a cluster: it parses, says what it needs, and the commands of `hangar` that it uses are there. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { CLI, run } from "../support/hangar.ts";

const SCRIPT = fileURLToPath(new URL("../live/gke.sh", import.meta.url));
const env = { PATH: process.env["PATH"] ?? "", HOME: "/dev/null" };

test("it says what it needs, in one line, before it does anything", async () => {
  expect(await run("sh", ["-n", SCRIPT], { env })).toMatchObject({ code: 0, stderr: "" });
  expect(await run(SCRIPT, ["--help"], { env })).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("examples:"),
  });
  const without = await run(SCRIPT, [], { env });
  expect(without).toMatchObject({ code: 2, stdout: "" });
  expect(without.stderr.trim()).toBe("gke.sh: HANGAR_URL is not set: see test/live/gke.sh --help");
  const some = await run(SCRIPT, [], { env: { ...env, HANGAR_URL: "http://127.0.0.1:9", HANGAR_TOKEN: "t" } });
  expect(some.stderr).toContain("ANTHROPIC_API_KEY is not set");
});

test("every command of hangar that it calls takes the options that it gives", async () => {
  const text = await readFile(SCRIPT, "utf8");
  const calls = text.matchAll(/\bhangar (status|(?:env|secret|session|sb) [a-z]+)((?:[^|\n;)]|\\\n)*)/g);
  const seen = new Set<string>();
  for (const [, command = "", rest = ""] of calls) {
    const help = await run(process.execPath, [CLI, ...command.split(" "), "--help"], { env });
    expect(help, command).toMatchObject({ code: 0 });
    seen.add(command);
    for (const option of rest.split(" -- ")[0]!.match(/(?<=\s)--[a-z]+/g) ?? [])
      expect(help.stdout, command).toContain(option);
  }
  expect([...seen]).toEqual(expect.arrayContaining(["session new", "session send", "secret set", "sb exec", "status"]));
});
