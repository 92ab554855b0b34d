/** Warm sandboxes with real daemons: made ahead, claimed, kept up with their remote, and the same as cold ones. */
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { WarmPoolStatus } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

describe("a warm pool", { timeout: 120_000 }, () => {
  let hangar: TestHangar;
  let remote: string;
  beforeEach(async () => {
    hangar = await startHangar({ HANGAR_IDLE_PASS_SECONDS: "1", HANGAR_WARM_FETCH_SECONDS: "1" });
    remote = await makeRemote(hangar.dir);
  });
  afterEach(() => hangar.close());

  const apply = (more: object = {}) =>
    hangar.api("PUT", "/api/environments/web", { name: "web", repo: remote, warm_pool: 1, ...more });
  const pool = async () => WarmPoolStatus.parse(await hangar.api("GET", "/api/environments/web/warm"));
  const full = (wanted = 1) =>
    expect.poll(pool, { timeout: 30_000, interval: 100 }).toMatchObject({ wanted, ready: wanted, problem: null });
  const create = (name: string) => hangar.api("POST", "/api/sessions", { name, environment: "web" });
  const idle = (name: string) => hangar.until(name, "idle", (s) => s.state === "IDLE", 60);
  const details = async (name: string): Promise<string> =>
    (await hangar.events(name)).map(({ event }) => (event.type === "phase" ? (event.detail ?? "") : "")).join("|");
  const out = async (name: string, script: string) => (await hangar.exec(name, "sh", "-c", script)).stdout;
  const git = async (cwd: string, ...args: string[]): Promise<string> => {
    const env = { ...process.env, GIT_AUTHOR_NAME: "a", GIT_AUTHOR_EMAIL: "a@example.invalid" } as Record<
      string,
      string
    >;
    const ran = await run("git", args, {
      cwd,
      env: { ...env, GIT_COMMITTER_NAME: "a", GIT_COMMITTER_EMAIL: "a@e.invalid" },
    });
    if (ran.code !== 0) throw new Error(ran.stderr);
    return ran.stdout;
  };
  async function push(file: string, text: string): Promise<void> {
    const clone = join(hangar.dir, `clone-${file}`);
    await git(hangar.dir, "clone", "-q", remote, clone);
    await writeFile(join(clone, file), text);
    await git(clone, "add", "-A");
    await git(clone, "commit", "-qm", file);
    await git(clone, "push", "-q");
  }
  /** What of a workspace a session may see, but for its branch's name. */
  const LOOK = `git rev-parse HEAD main origin/main; git status --porcelain=v2; git for-each-ref --format='%(refname) %(upstream)' | grep -v session; ls -A . .git | grep -v -x -e index -e logs; cat .built`;

  test("a session that takes one finds what a cold start would have made; secrets come with the session", async () => {
    const setup = 'echo "built with ${API_KEY:-nothing}" > .built';
    await hangar.cli(["secret", "set", "API_KEY"], { input: "s3cret-value" });
    await apply({ warm_pool: 0, setup: "echo built with nothing > .built", secrets: ["API_KEY"] });
    await create("cold");
    await idle("cold");
    await apply({ setup, secrets: ["API_KEY"] });
    await full();
    await create("warm");
    await idle("warm");
    expect(await details("warm")).toContain("a warm clone");
    expect(await out("warm", LOOK)).toBe(await out("cold", LOOK));
    expect(await out("warm", "git branch --show-current; echo $API_KEY; echo $HANGAR_SESSION")).toBe(
      `hangar/session/warm\ns3cret-value\n${(await hangar.session("warm")).id}\n`,
    );
    const turn = await hangar.turn("warm", "echo done > done.txt; echo ran");
    expect(turn).toMatchObject({ state: "done", summary: "ran" });
    await full();
  });

  test("two opens at once take two; a suspended session comes back exact in a warm one", async () => {
    await apply({ warm_pool: 2 });
    await full(2);
    await Promise.all([create("a"), create("b")]);
    const [a, b] = await Promise.all([idle("a"), idle("b")]);
    expect(a.sandbox_id).not.toBe(b.sandbox_id);
    expect(await details("a")).toContain("a warm clone");
    expect(await details("b")).toContain("a warm clone");
    await hangar.turn(
      "a",
      "echo one > kept.txt; git add kept.txt; echo two >> kept.txt; git commit -qm x --allow-empty",
    );
    const before = await out("a", "git rev-parse HEAD; git status --porcelain=v2; cat kept.txt");
    await hangar.api("POST", "/api/sessions/a/suspend", {});
    await hangar.until("a", "suspended", (s) => s.state === "SUSPENDED");
    await full(2);
    await push("later.txt", "later\n");
    await hangar.api("POST", "/api/sessions/a/open", {});
    const after = await idle("a");
    expect(after.restored_from).toMatchObject({ verified: true, missing: [] });
    expect(await out("a", "git rev-parse HEAD; git status --porcelain=v2; cat kept.txt")).toBe(before);
  });

  test("it keeps up with its remote, and a rewritten one has it replaced", async () => {
    await apply({ setup: "cat *.txt > .built 2>/dev/null || :" });
    await full();
    await push("new.txt", "new\n");
    const first = await git(hangar.dir, "-C", remote, "rev-parse", "main");
    await create("follows");
    await idle("follows");
    expect(await out("follows", "git rev-parse HEAD; cat .built")).toContain(first);
    expect(await out("follows", "cat .built")).toContain("new");
    await full();
    const orphan = join(hangar.dir, "orphan");
    await git(hangar.dir, "clone", "-q", remote, orphan);
    await git(orphan, "commit", "-q", "--amend", "-m", "rewritten");
    await git(orphan, "push", "-qf");
    const rewritten = await git(orphan, "rev-parse", "HEAD");
    await create("rewritten");
    await idle("rewritten");
    expect(await out("rewritten", "git rev-parse HEAD")).toBe(rewritten);
  });

  test("killed while it waits it is replaced; killed after its claim its session goes on", async () => {
    await apply();
    await full();
    const waiting = async () =>
      (await readdir(join(hangar.dataDir, "sandboxes"))).filter((name) => name.startsWith("wrm-"));
    const [first = ""] = await waiting();
    for (const pid of await hangar.pids(/hangar-agent\.mjs run/)) process.kill(pid, "SIGKILL");
    await expect.poll(waiting, { timeout: 20_000, interval: 50 }).not.toContain(first);
    await full();
    await create("claimed");
    await idle("claimed");
    await hangar.turn("claimed", "echo kept > kept.txt");
    await hangar.exec("claimed", "sh", "-c", "echo more >> kept.txt");
    await hangar.restart();
    await idle("claimed");
    expect(await out("claimed", "cat kept.txt")).toBe("kept\nmore\n");
    const shown = await hangar.cli(["env", "get", "web"]);
    expect(shown.stderr).toBe("");
    await full();
    await hangar.replica.kill("SIGTERM");
    expect((await waiting()).length).toBe(1); // the claimed one's folder
    expect(await hangar.pids(/hangar-agent\.mjs run/)).not.toEqual([]);
    expect(shown.stdout).toMatch(/^# Warm sandboxes: \d of 1 ready/m);
  });

  test("a setup that fails says so, and sessions start without the pool", async () => {
    await apply({ setup: "echo no such thing; exit 3" });
    await expect
      .poll(async () => (await pool()).problem, { timeout: 20_000, interval: 100 })
      .toContain("no such thing");
    await apply({ setup: null, warm_pool_hours: "Sun 03:00-03:01 UTC" });
    await create("outside");
    await idle("outside");
    expect(await details("outside")).not.toContain("warm");
  });
});
