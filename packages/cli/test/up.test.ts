/** Hangar coming up and going down, as a person sees it. */
import { spawn } from "node:child_process";
import { readFileSync, readdirSync, symlinkSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Session, Status } from "@hangar/shared";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { CLI } from "../../../test/support/hangar.ts";
import { type Cli, makeCli } from "./support.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let cli: Cli;
beforeEach(() => {
  cli = makeCli();
});
afterEach(() => cli.close());

const client = () =>
  JSON.parse(readFileSync(join(cli.dataDir, "hangar.json"), "utf8")) as {
    pid: number | null;
    token: string;
    url: string;
  };
const sandboxes = (): string[] => readdirSync(join(cli.dataDir, "sandboxes")).filter((name) => !name.startsWith("."));

test("up says what to type next; up again says so and exits 0; down stops it with its redis-server", async () => {
  const up = await cli.hangar(["up"]);
  expect(up).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Hangar is up at http:\/\/127\.0\.0\.1:\d+ \(pid \d+\)\n/),
  });
  expect(up.stdout).toMatch(/hangar session new NAME --repo URL "MESSAGE"/);
  expect(up.stdout.trimEnd().split("\n").length).toBeLessThanOrEqual(12);
  expect(up.stderr).toContain("Back up ");
  const { pid } = client();
  const again = await cli.hangar(["up"]);
  expect(again).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`already running at ${client().url} (pid ${pid})`),
  });
  expect(again.stderr).not.toContain("Back up ");
  expect(await cli.ok("status")).toContain(`is running at ${client().url}`);
  const status = await cli.json<Status>("status");
  expect(status.data_dir).toBe(cli.dataDir);
  const redis = (JSON.parse(readFileSync(join(cli.dataDir, "redis/redis.json"), "utf8")) as { pid: number }).pid;

  expect(await cli.ok("down")).toBe("Hangar is down\n");
  expect(() => process.kill(pid as number, 0)).toThrow("ESRCH");
  expect(() => process.kill(redis, 0)).toThrow("ESRCH");
  expect(client().pid).toBeNull();
  expect(await cli.ok("down")).toBe("Hangar is not running\n");
  expect((await cli.hangar(["status"])).code).toBe(3);
});

test("it keeps its port and token over a restart", async () => {
  await cli.ok("up");
  const first = client();
  await cli.ok("down");
  await cli.hangar(["up"], { env: { HANGAR_PORT: "" } });
  expect(client()).toMatchObject({ url: first.url, token: first.token });
});

test("several at once make one Hangar; the others say which", async () => {
  const all = await Promise.all([
    cli.hangar(["up", "--json"]),
    cli.hangar(["up", "--json"]),
    cli.hangar(["up", "--json"]),
  ]);
  const up = all.filter(({ code }) => code === 0).map(({ stdout }) => (JSON.parse(stdout) as { pid: number }).pid);
  expect(new Set(up)).toEqual(new Set([client().pid]));
  for (const { code, stderr } of all.filter((ran) => ran.code !== 0)) {
    expect(code).toBe(5);
    expect(stderr).toMatch(/^hangar: another Hangar (?:\(pid \d+\) )?uses /m);
  }
  expect((await cli.hangar(["status"])).code).toBe(0);
});

test("down suspends what is live; up and send bring it back", async () => {
  const remote = await cli.remote();
  await cli.ok("up");
  await cli.ok("session", "new", "a", "--repo", remote, "--harness", "script", "--wait", "echo kept > kept.txt");
  await cli.ok("session", "new", "b", "--harness", "script", "--wait");
  const down = await cli.hangar(["down"]);
  expect(down).toMatchObject({ code: 0, stdout: "Hangar is down\n" });
  expect(down.stderr).toMatch(/a is suspended/);
  expect(down.stderr).toMatch(/b is suspended/);
  expect(sandboxes()).toEqual([]);
  await cli.ok("up");
  expect(await cli.ok("session", "send", "a", "--wait", "cat kept.txt")).toContain("kept\n");
});

test("what cannot be suspended keeps its sandbox, and down says so", async () => {
  await cli.ok("up");
  await cli.ok("session", "new", "a", "--harness", "script", "--wait");
  await cli.ok("session", "new", "b", "--harness", "script", "--wait");
  await cli.ok("sb", "exec", "a", "--", "mv", ".git", "/tmp/git");
  const down = await cli.hangar(["down"]);
  expect(down).toMatchObject({ code: 1, stdout: "Hangar is down\n" });
  expect(down.stderr).toMatch(/^hangar: a: .*\/workspace\/repo is no git repository.*; its sandbox is left as it is$/m);
  expect(sandboxes()).toHaveLength(1);
  await cli.hangar(["up"], { env: { HANGAR_PORT: "" } });
  await cli.ok("sb", "exec", "a", "--", "mv", "/tmp/git", "/workspace/repo/.git");
  await cli.ok("session", "suspend", "a");
  expect(sandboxes()).toEqual([]);
});

test("down --keep leaves sandboxes running; the next up finds them again", async () => {
  await cli.ok("up");
  await cli.ok("session", "new", "a", "--harness", "script", "--wait");
  await cli.ok("sb", "exec", "a", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid");
  await cli.ok("down", "--keep");
  expect(sandboxes()).toHaveLength(1);
  // The port of the last time, which the sandbox knows.
  await cli.hangar(["up"], { env: { HANGAR_PORT: "" } });
  expect(await cli.ok("session", "send", "a", "--wait", "kill -0 $(cat /tmp/pid) && echo still there")).toContain(
    "still there",
  );
  const session = await cli.json<Session>("session", "get", "a");
  expect(session.generation).toBe(1);
});

test("in the foreground it serves until it is told to stop", async () => {
  const child = spawn(process.execPath, [CLI, "up", "--foreground"], {
    cwd: cli.dir,
    env: cli.env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
  const ended = new Promise<number | null>((resolve) => child.on("exit", resolve));
  for (let i = 0; i < 300 && !log.includes('"msg":"ready"'); i++)
    await new Promise((resolve) => setTimeout(resolve, 50));
  expect((await cli.hangar(["status"])).code).toBe(0);
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  expect((await cli.hangar(["status"])).code).toBe(3);
});

test("without redis-server, one line says how to install it", async () => {
  const bin = join(cli.dir, "bin");
  mkdirSync(bin);
  for (const name of ["git", "tmux", "sh"]) symlinkSync(`/usr/bin/${name}`, join(bin, name));
  const ran = await cli.hangar(["up"], { env: { PATH: bin } });
  expect(ran.code).toBe(6);
  expect(ran.stderr).toMatch(/^hangar: redis-server is not installed: install it with `.*`$/m);
  const doctor = await cli.hangar(["doctor"], { env: { PATH: bin } });
  expect(doctor.code).toBe(1);
  expect(doctor.stdout).toMatch(/redis-server +not installed/);
});

test("a setting that is wrong, and a data folder that cannot be, are one line", async () => {
  const wrong = await cli.hangar(["up"], { env: { HANGAR_PORT: "many" } });
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringMatching(/hangar: HANGAR_PORT is "many": give /)]);
  const nowhere = await cli.hangar(["up"], { env: { HANGAR_DATA_DIR: "/etc/passwd/nowhere" } });
  expect([nowhere.code, nowhere.stderr]).toEqual([
    2,
    expect.stringMatching(/^hangar: the data folder \/etc\/passwd\/nowhere cannot be made/m),
  ]);
});
