/** The bundle, installed as npm installs it, works from any folder without the checkout. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { run } from "../../../test/support/hangar.ts";
import { type Cli, makeCli } from "./support.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 180_000 });

let cli: Cli;
beforeEach(() => {
  cli = makeCli();
});
afterEach(() => cli.close());

test("built, installed and run under the machine's own Node", async () => {
  const dist = join(cli.dir, "dist");
  const prefix = join(cli.dir, "prefix");
  execFileSync(process.execPath, ["scripts/build.ts", dist], {
    cwd: new URL("../../../", import.meta.url),
    stdio: "pipe",
  });
  const bundle = readdirSync(dist).find((name) => name.endsWith(".tgz"));
  execFileSync("npm", ["install", "--global", "--loglevel=error", "--prefix", prefix, join(dist, bundle as string)], {
    stdio: "pipe",
  });

  // Without the Node 26 of this checkout in front: the bundle brings its own.
  const others = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.includes("node_modules"));
  const elsewhere = join(cli.dir, "elsewhere");
  mkdirSync(elsewhere);
  const env = { ...cli.env, PATH: [join(prefix, "bin"), ...others].join(delimiter), TMPDIR: cli.dir };
  const hangar = (...args: string[]) => run(join(prefix, "bin/hangar"), args, { cwd: elsewhere, env });
  const demo = await hangar("demo");
  expect(demo.code, demo.stdout + demo.stderr).toBe(0);
  expect(demo.stdout).toContain("All of it held");

  expect((await hangar("up")).stdout).toContain("  hangar session new NAME");
  expect(await hangar("session", "new", "one", "--harness", "script", "--wait", "echo from the bundle")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("from the bundle\n"),
  });
  expect((await hangar("down")).code).toBe(0);
});
