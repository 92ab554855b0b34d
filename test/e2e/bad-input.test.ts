/** Bad input gets one clear line and a non-zero exit, through the real command, and nothing is lost. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CLI, COORDINATOR, type Ran, git, makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;

beforeAll(async () => {
  hangar = await startHangar();
  remote = await makeRemote(hangar.dir);
}, 120_000);
afterAll(() => hangar.close());

/** One line on stderr that matches (after progress lines of `--wait`), nothing on stdout, a non-zero exit, no stack trace. */
function refused(ran: Ran, says: RegExp): void {
  const errors = ran.stderr.split("\n").filter((line) => line.startsWith("hangar: "));
  expect(errors).toHaveLength(1);
  expect(errors[0]).toMatch(says);
  expect(ran.stderr.trim().split("\n").at(-1)).toBe(errors[0]);
  expect(ran.stderr).not.toMatch(/\n\s+at /);
  expect(ran.stdout).toBe("");
  expect(ran.code).not.toBe(0);
}

test("an unknown session or environment", async () => {
  refused(await hangar.cli(["session", "get", "nobody"]), /no .*session.*nobody|nobody/i);
  refused(await hangar.cli(["session", "send", "nobody", "hello"]), /nobody/);
  refused(await hangar.cli(["session", "new", "s1", "--env", "nothing"]), /nothing/);
  refused(await hangar.cli(["env", "get", "nothing"]), /nothing/);
});

test("a name that is taken or malformed", async () => {
  expect((await hangar.cli(["session", "new", "taken", "--repo", remote, "--harness", "script"])).code).toBe(0);
  refused(await hangar.cli(["session", "new", "taken", "--repo", remote, "--harness", "script"]), /taken/);
  for (const name of ["Has Space", "UPPER", "../up", "-dash", "x".repeat(61), ""]) {
    refused(await hangar.cli(["session", "new", "--repo", remote, "--harness", "script", "--", name]), /name|letters/i);
  }
});

test("a repo that cannot be cloned says git's own error, without its credentials", async () => {
  const gone = join(hangar.dir, "no-such-repo.git");
  refused(
    await hangar.cli(["session", "new", "gone", "--repo", gone, "--harness", "script", "--wait"]),
    /does not exist|not.*repository/i,
  );
  expect(await hangar.session("gone")).toMatchObject({ state: "FAILED" });
  const ran = await hangar.cli([
    "session",
    "new",
    "secretive",
    "--repo",
    "http://user:hunter2hunter2@127.0.0.1:9/r.git",
    "--harness",
    "script",
    "--wait",
  ]);
  refused(ran, /127\.0\.0\.1/);
  expect(ran.stderr).not.toContain("hunter2");
  expect(JSON.stringify(await hangar.session("secretive").then((s) => s.status))).not.toContain("hunter2");
});

test("a base branch that is not there is named", async () => {
  refused(
    await hangar.cli([
      "session",
      "new",
      "nobase",
      "--repo",
      remote,
      "--base",
      "no-such-branch",
      "--harness",
      "script",
      "--wait",
    ]),
    /no-such-branch/,
  );
});

test("a missing agent program says which, and how to install it", async () => {
  const ran = await hangar.cli([
    "session",
    "new",
    "noclaude",
    "--repo",
    remote,
    "--harness",
    "claude",
    "--wait",
    "hello",
  ]);
  expect(ran.code).not.toBe(0);
  expect(ran.stderr + ran.stdout).toMatch(/claude/i);
  expect(ran.stderr + ran.stdout).toMatch(/npm|install|hangar secret set/i);
});

test("an unknown harness", async () => {
  const ran = await hangar.cli([
    "session",
    "new",
    "odd",
    "--repo",
    remote,
    "--harness",
    "no-such-harness",
    "--wait",
    "hi",
  ]);
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toMatch(/no-such-harness/);
});

test("a turn on an archived session", async () => {
  expect(
    (await hangar.cli(["session", "new", "old", "--repo", remote, "--harness", "script", "--wait", "echo done"])).code,
  ).toBe(0);
  expect((await hangar.cli(["session", "archive", "old", "--wait"])).code).toBe(0);
  const archived = await hangar.session("old");
  expect(archived).toMatchObject({ state: "ARCHIVED", checkpoints: [], last_summary: expect.stringContaining("done") });
  refused(await hangar.cli(["session", "send", "old", "more"]), /archived/i);
});

test("a wrong or missing token, malformed JSON, an oversized body, a wrong method", async () => {
  const url = hangar.replica.url;
  const problem = async (answer: Response): Promise<unknown> => {
    expect(answer.headers.get("content-type")).toContain("application/problem+json");
    return answer.json();
  };
  expect(await problem(await fetch(`${url}/api/sessions`))).toMatchObject({ status: 401, code: "unauthorized" });
  const wrong = await fetch(`${url}/api/sessions`, { headers: { authorization: "Bearer nonsense" } });
  expect(await problem(wrong)).toMatchObject({ status: 401, code: "unauthorized" });
  const json = { "content-type": "application/json" };
  const bad = await hangar.raw("POST", "/api/sessions", { body: '{"name": ', headers: json });
  expect(await problem(bad)).toMatchObject({ status: 400, code: "malformed_json" });
  const big = await hangar.raw("POST", "/api/sessions", {
    body: JSON.stringify({ name: "x".repeat(20 << 20) }),
    headers: json,
  });
  expect(await problem(big)).toMatchObject({ status: 413, code: "body_too_large" });
  const extra = await hangar.raw("POST", "/api/sessions", { body: '{"name":"a","nonsense":1}', headers: json });
  expect(await problem(extra)).toMatchObject({
    status: 400,
    code: "invalid_request",
    detail: expect.stringContaining("nonsense"),
  });
  expect((await hangar.raw("PUT", "/api/sessions")).status).toBe(405);
  expect((await hangar.raw("GET", "/api/nothing")).status).toBe(404);
  const ran = await hangar.cli(["session", "list"], { env: { HANGAR_TOKEN: "wrong", HANGAR_URL: url } });
  refused(ran, /token/i);
});

test("an embedded Redis in use by another hangar up", async () => {
  const ran = await run(process.execPath, [COORDINATOR], { env: { ...hangar.env, HANGAR_PORT: "0" }, cwd: hangar.dir });
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toMatch(/another Hangar|in use|already/i);
  expect(await hangar.session("taken")).toMatchObject({ name: "taken" });
});

test("Redis down at start", async () => {
  const env = { ...hangar.env, HANGAR_REDIS_URL: "redis://127.0.0.1:9", HANGAR_DATA_DIR: join(hangar.dir, "other") };
  const ran = await run(process.execPath, [COORDINATOR], { env, cwd: hangar.dir });
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toMatch(/redis/i);
});

test("a setting that makes no sense", async () => {
  const ran = await run(process.execPath, [COORDINATOR], {
    env: { ...hangar.env, HANGAR_SESSION_KEEP_CHECKPOINTS: "many", HANGAR_DATA_DIR: join(hangar.dir, "other2") },
    cwd: hangar.dir,
  });
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toMatch(/HANGAR_SESSION_KEEP_CHECKPOINTS/);
});

test("Hangar that is not running", async () => {
  const ran = await run(process.execPath, [CLI, "session", "list"], {
    env: { PATH: hangar.env["PATH"] ?? "", HOME: hangar.home, HANGAR_DATA_DIR: join(hangar.dir, "nowhere") },
    cwd: hangar.dir,
  });
  refused(ran, /hangar up/);
});

test("an environment file with a fault names the field", async () => {
  const file = join(hangar.dir, "env.yaml");
  await writeFile(file, "name: demo\nrepo: https://example.test/r.git\nidle_minuts: 5\n");
  refused(await hangar.cli(["env", "apply", "-f", file]), /idle_minuts/);
  await writeFile(file, "name: demo\n  repo: [\n");
  refused(await hangar.cli(["env", "apply", "-f", file]), /env\.yaml/);
  refused(await hangar.cli(["env", "apply", "-f", join(hangar.dir, "absent.yaml")]), /absent\.yaml/);
});

test("a full disk refuses the checkpoint, keeps the sandbox, and goes on when there is room again", async () => {
  // a small file system of its own under the store stands for the full disk; it needs a mount, so root
  const mount = join(hangar.dir, "small");
  await mkdir(mount);
  const mounted = await run("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", mount]);
  expect(mounted.stderr).toBe("");
  const full = await startHangar({ HANGAR_SESSION_STORE: `volume:${mount}`, HANGAR_IDLE_PASS_SECONDS: "1" });
  try {
    await full.api("POST", "/api/sessions", { name: "s", repo: remote, harness: "script" });
    await full.turn("s", "echo kept > kept.txt");
    const before = (await full.session("s")).checkpoints.length;
    await full.exec("s", "sh", "-c", "head -c 6000000 /dev/urandom > big.bin");
    await full.api("POST", "/api/sessions/s/suspend", {});
    const held = await full.until("s", "held", (s) => s.state === "IDLE" && /disk|space|full/i.test(s.status ?? ""));
    expect(held.sandbox_id).not.toBeNull();
    expect(held.checkpoints).toHaveLength(before);
    expect((await full.exec("s", "cat", "kept.txt")).stdout).toBe("kept\n");
    const grown = await run("mount", ["-o", "remount,size=64m", mount]);
    expect(grown.stderr).toBe("");
    await full.api("POST", "/api/sessions/s/suspend", {});
    await full.until("s", "suspended", (s) => s.state === "SUSPENDED");
    expect((await full.turn("s", "wc -c < big.bin")).summary).toContain("6000000");
  } finally {
    await full.close();
    await run("umount", [mount]);
  }
}, 180_000);

test("a branch of the user's that is no option and no path trick", async () => {
  for (const branch of ["--upload-pack=evil", "../x", "a..b", "x.lock", "a b"]) {
    const ran = await hangar.cli([
      "session",
      "new",
      "badbranch",
      "--repo",
      remote,
      "--harness",
      "script",
      `--branch=${branch}`,
    ]);
    expect(ran.code).not.toBe(0);
    expect(ran.stderr).toMatch(/branch/i);
  }
  for (const repo of ["--upload-pack=touch /tmp/x", "ext::sh -c touch% x", "not a repo"]) {
    const ran = await hangar.cli(["session", "new", "badrepo", "--harness", "script", `--repo=${repo}`]);
    expect(ran.code).not.toBe(0);
    expect(ran.stderr).toMatch(/repo/i);
  }
  await mkdir(join(hangar.dir, "spaced dir"), { recursive: true });
  await git(hangar.dir, "clone", "-q", "--bare", remote, "spaced dir/r.git");
  const fine = await hangar.cli([
    "session",
    "new",
    "spaced",
    "--harness=script",
    `--repo=${join(hangar.dir, "spaced dir/r.git")}`,
    "--wait",
    "cat src/f0.txt",
  ]);
  expect(fine.code).toBe(0);
});
