import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { sandboxIdOf } from "@hangar/shared";
import { expect, test } from "vitest";
import { exec, git, stage } from "./support.ts";

test("a fresh start clones the base and makes the session's branch", async () => {
  const { coordinator, sandbox, remote } = await stage();
  sandbox.start();
  await coordinator.ready();
  expect(coordinator.events.map((event) => (event.type === "phase" ? event.phase : event.type))).toEqual([
    "cloning",
    "restored",
    "ready",
  ]);
  expect(await coordinator.event("restored")).toMatchObject({
    source: "fresh",
    checkpoint: null,
    missing: [],
    bad: [],
  });
  expect(sandbox.git("symbolic-ref", "HEAD")).toBe("refs/heads/hangar/session/test");
  expect(sandbox.git("rev-parse", "HEAD")).toBe(git(remote, "rev-parse", "main"));
  expect(sandbox.git("status", "--porcelain")).toBe("");
  expect(sandbox.git("config", "--get", "remote.origin.url")).toBe(remote);
  await coordinator.until(() => coordinator.heartbeats.some(({ phase }) => phase === "ready"), "a heartbeat");
});

test("without a repo the session starts in an empty one", async () => {
  const { coordinator, sandbox } = await stage({ repo: null, base_branch: null });
  sandbox.start();
  await coordinator.ready();
  expect(sandbox.git("symbolic-ref", "HEAD")).toBe("refs/heads/hangar/session/test");
  expect(() => sandbox.git("rev-parse", "--verify", "--quiet", "HEAD")).toThrow();
});

test("a remote without commits gives an unborn session branch", async () => {
  const { coordinator, sandbox, remote } = await stage({ base_branch: null });
  const empty = `${remote}-empty`;
  git("/", "init", "--quiet", "--bare", empty);
  coordinator.boot = { ...coordinator.boot, repo: empty };
  sandbox.start();
  await coordinator.ready();
  expect(sandbox.git("symbolic-ref", "HEAD")).toBe("refs/heads/hangar/session/test");
});

test("a repository that cannot be cloned fails the start with git's own words, without credentials", async () => {
  const { coordinator, sandbox } = await stage({ repo: "https://me:hunter2secret@127.0.0.1:9/no/such.git" });
  sandbox.start();
  const failed = await coordinator.event("start_failed");
  expect(failed.code).toBe("clone_failed");
  expect(failed.error).toContain("https://***@127.0.0.1:9/no/such.git");
  expect(failed.error).toMatch(/fatal: .*(?:Failed to connect|Could not connect|Connection refused)/i);
  expect(failed.error).not.toContain("hunter2secret");
  expect(await sandbox.ended()).toBe(1);
});

test("a base branch that is not there fails the start and names what is", async () => {
  const { coordinator, sandbox } = await stage({ base_branch: "release" });
  sandbox.start();
  const failed = await coordinator.event("start_failed");
  expect(failed.code).toBe("branch_not_found");
  expect(failed.error).toMatch(/release is not at .*there are develop, main/);
});

test("a setup script that fails shows its last lines and no secret", async () => {
  const setup = 'echo installing\necho "token is $API_TOKEN"\necho broken >&2\nfalse\necho not reached\n';
  const { coordinator, sandbox } = await stage({ setup, secrets: { API_TOKEN: "sesame-open-now" } });
  sandbox.start();
  const failed = await coordinator.event("start_failed");
  expect(failed.code).toBe("setup_failed");
  expect(failed.error).toContain("installing\ntoken is ***\nbroken");
  expect(failed.error).not.toContain("not reached");
});

test("variables and secrets reach setup, exec and a file for shells that is the user's alone", async () => {
  const { coordinator, sandbox } = await stage({
    setup: 'printf "%s" "$COLOUR" > made-by-setup',
    variables: { COLOUR: 'it\'s "blue"\n$HOME' },
    secrets: { API_TOKEN: "sesame-open-now" },
  });
  sandbox.start();
  await coordinator.ready();
  expect(sandbox.read("made-by-setup")).toBe('it\'s "blue"\n$HOME');
  const file = join(sandbox.home, ".hangar/env");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const shown = await coordinator.command(
    exec("/bin/sh", "-c", `unset COLOUR; . ${file}; printf '%s|%s|%s' "$COLOUR" "$API_TOKEN" "$HANGAR_AGENT_TOKEN"`),
  );
  expect(shown).toMatchObject({ ok: true, value: { exit_code: 0 } });
  const { stdout } = (shown as { value: { stdout: string } }).value;
  expect(Buffer.from(stdout, "base64").toString()).toBe('it\'s "blue"\n$HOME|sesame-open-now|');
});

test("a boot that is refused for good ends the start with the coordinator's words", async () => {
  const { coordinator, sandbox } = await stage();
  coordinator.failure = { status: 422, code: "missing_secret", detail: "The secret API_TOKEN is not set" };
  sandbox.start();
  const failed = await coordinator.event("start_failed");
  expect(failed).toMatchObject({ code: "missing_secret", error: "The secret API_TOKEN is not set" });
});

test("a boot that cannot be answered yet is waited for", async () => {
  const { coordinator, sandbox } = await stage();
  coordinator.failure = { status: 503, code: "redis_unavailable", detail: "Redis is away" };
  sandbox.start();
  await coordinator.until(() => coordinator.heartbeats.length > 3, "heartbeats before the boot");
  expect(coordinator.events).toEqual([]);
  coordinator.failure = null;
  await coordinator.ready();
});

test("a leftover folder that is sound is adopted and checkpointed at once", async () => {
  const { coordinator, sandbox, remote } = await stage({ adopt: true });
  git("/", "clone", "--quiet", remote, sandbox.repo);
  writeFileSync(join(sandbox.repo, "left.txt"), "work of the sandbox before\n");
  sandbox.start();
  await coordinator.ready();
  expect(await coordinator.event("restored")).toMatchObject({ source: "adopted" });
  expect(sandbox.read("left.txt")).toBe("work of the sandbox before\n");
  await coordinator.until(() => coordinator.committed.length > 0, "a checkpoint");
});

test("a leftover folder that is damaged is set aside, not lost", async () => {
  const { coordinator, sandbox } = await stage({ adopt: true });
  mkdirSync(join(sandbox.repo, ".git"), { recursive: true });
  writeFileSync(join(sandbox.repo, ".git/HEAD"), "nonsense");
  writeFileSync(join(sandbox.repo, "left.txt"), "work of the sandbox before\n");
  sandbox.start();
  await coordinator.ready();
  const restored = await coordinator.event("restored");
  expect(restored.source).toBe("fresh");
  const [, aside] = /set aside at (\S+)/.exec(restored.missing.join())!;
  expect(readFileSync(join(aside!, "left.txt"), "utf8")).toBe("work of the sandbox before\n");
  expect(existsSync(join(sandbox.repo, "left.txt"))).toBe(false);
});

test("a folder that a start left half made is not taken for the session's work", async () => {
  const { coordinator, sandbox } = await stage({ setup: "echo half > half.txt; sleep 600" });
  sandbox.start();
  await coordinator.until(() => sandbox.read("half.txt"), "the setup to be running");
  sandbox.kill("SIGKILL");
  await sandbox.ended();
  sandbox.killLeftovers();
  rmSync(sandbox.state, { recursive: true });
  const { session } = coordinator.boot;
  const next = { ...coordinator.boot, sandbox: sandboxIdOf(session, 2), generation: 2, adopt: true, setup: null };
  coordinator.nextSandbox(next);
  sandbox.start();
  await coordinator.ready();
  expect(await coordinator.event("restored")).toMatchObject({ source: "fresh", missing: [] });
  expect(sandbox.read("half.txt")).toBeNull();
  // The mark of an unfinished start goes once "ready" is on disk.
  await coordinator.until(() => readdirSync(sandbox.workspace).join() === "project", "the folder to be the project's");
});
