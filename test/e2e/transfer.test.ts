/** Sessions between installations: laptop → another → back, with other keys, other paths, and nothing shared but a folder. */
import { cp, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { git, makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let here: TestHangar;
let there: TestHangar;
let remote: string;
beforeAll(async () => {
  // Without a sandbox's own view of the disk the workspaces lie at other paths.
  [here, there] = await Promise.all([startHangar(), startHangar({ HANGAR_ISOLATION: "plain" })]);
  remote = await makeRemote(here.dir);
}, 120_000);
afterAll(() => Promise.all([here.close(), there.close()]));

const WORK = `set -e
git config user.name A; git config user.email a@example.org
echo one > one.txt; git add one.txt; git commit -qm "not pushed"
echo staged > staged.txt; git add staged.txt; echo more >> staged.txt
printf 'bytes \\000' > "un tracked"; rm src/f3.txt; echo x >> src/f1.txt; git stash push -q src/f1.txt`;
const LOOK = `git rev-parse HEAD; git symbolic-ref HEAD; git status --porcelain; git ls-files -s; git stash list | cut -c1-40
sha256sum one.txt staged.txt "un tracked"`;
const look = async (hangar: TestHangar, name: string): Promise<string> =>
  (await hangar.exec(name, "sh", "-c", LOOK)).stdout;
const ok = async (hangar: TestHangar, ...args: string[]): Promise<string> => {
  const ran = await hangar.cli(args);
  expect(ran.code, ran.stderr).toBe(0);
  return ran.stdout + ran.stderr;
};
const transcript = async (hangar: TestHangar, name: string): Promise<string> => {
  const { harness_session } = await hangar.session(name);
  const path = `$HOME/.hangar-script/sessions/${harness_session}.jsonl`;
  return (await hangar.exec(name, "sh", "-c", `cat "${path}"`)).stdout;
};

test("there and back: exact, the same conversation, whole by itself", async () => {
  await here.api("PUT", "/api/environments/app", {
    name: "app",
    repo: remote,
    harness: "script",
    variables: { COLOUR: "blue" },
    idle_minutes: 77,
  });
  await here.api("POST", "/api/sessions", { name: "work", environment: "app" });
  await here.turn("work", "echo zero");
  expect((await here.turn("work", WORK)).state).toBe("done");
  const before = await look(here, "work");
  expect((await here.cli(["session", "check", "work", "echo all is well"])).code).toBe(0);
  const { last_check: check } = await here.session("work");
  expect(check).toMatchObject({ exit_code: 0, output: "all is well" });
  const said = await ok(here, "session", "export", "work", "--out", "one");
  expect(said).toContain("Whoever has this folder can read the session");
  const folder = join(here.dir, "one");
  expect((await stat(join(folder, "identity.txt"))).mode & 0o777).toBe(0o600);
  // The one that stays behind is as it was.
  expect(await look(here, "work")).toBe(before);

  await ok(there, "session", "import", folder);
  const arrived = await there.session("work");
  expect(arrived).toMatchObject({ state: "SUSPENDED", harness: "script", idle_minutes: 77, sandbox_id: null });
  expect(arrived.turns.map((turn) => turn.state)).toEqual(["done", "done"]);
  expect(arrived.last_check).toEqual(check);
  expect(arrived.turns.at(-1)?.id).toBe(check?.turn);
  const turn = await there.turn("work", `cat one.txt; echo "$COLOUR"`);
  expect(turn).toMatchObject({ state: "done", summary: "one\nblue", conversation_lost: false, handoff: false });
  const opened = await there.session("work");
  expect(opened.restored_from).toMatchObject({ verified: true, missing: [] });
  expect(turn.harness_session).toBe((await here.session("work")).harness_session);
  expect(await look(there, "work")).toBe(before);
  expect(await transcript(there, "work")).toContain("not pushed");

  // A new baseline: what comes now refers to nothing that was brought.
  const own = opened.checkpoints.filter(({ generation }) => generation === opened.generation);
  expect(own.length).toBeGreaterThan(0);
  expect(own[0]?.parts.every((part) => part.from === undefined)).toBe(true);

  await there.turn("work", "echo two > two.txt; git add two.txt; git commit -qm two");
  const after = await look(there, "work");
  const recipient = /age1\S+/.exec(await ok(here, "vault", "init"))?.[0] ?? "";
  await ok(there, "session", "export", "work", "--out", "back", "--recipient", recipient);
  const back = join(there.dir, "back");
  expect(await readdir(back)).toContain("identity.age");
  expect(await readdir(back)).not.toContain("identity.txt");
  const taken = await here.cli(["session", "import", back]);
  expect(taken).toMatchObject({ code: 5, stderr: expect.stringContaining("--name") });
  await ok(here, "session", "import", back, "--name", "work-back");
  expect((await here.turn("work-back", "cat two.txt")).summary).toBe("two");
  expect(await look(here, "work-back")).toBe(after);
  expect((await here.session("work-back")).restored_from).toMatchObject({ verified: true });
}, 120_000);

test("the folder restores offline too, and the origin may be gone", async () => {
  await here.api("POST", "/api/sessions", { name: "leaving", repo: remote, harness: "script" });
  await here.turn("leaving", WORK);
  await here.api("POST", "/api/sessions/leaving/suspend", {});
  await here.until("leaving", "suspended", (s) => s.state === "SUSPENDED");
  await ok(here, "session", "export", "leaving", "--out", "leaving");
  await ok(here, "session", "rm", "leaving", "--yes");
  const folder = join(here.dir, "leaving");
  const clone = join(here.dir, "clone");
  await git(here.dir, "clone", "-q", remote, clone);
  const agent = new URL("../../packages/sandbox-agent/bin/hangar-agent.mjs", import.meta.url).pathname;
  const args = ["restore", "--from", folder, "--repo", clone, "--home", join(here.dir, "clone-home")];
  const restored = await run(process.execPath, [agent, ...args, "--identity", join(folder, "identity.txt")], {
    env: here.env,
  });
  expect(restored.code, restored.stderr).toBe(0);
  expect(JSON.parse(restored.stdout)).toMatchObject({ verified: true });

  await ok(there, "session", "import", folder, "--name", "arrived");
  expect((await there.turn("arrived", "cat one.txt")).summary).toBe("one");
});

test("what is damaged, hostile or not for this Hangar is refused with one line, and leaves nothing", async () => {
  await here.api("POST", "/api/sessions", { name: "tried", repo: remote, harness: "script" });
  await here.turn("tried", WORK);
  await ok(here, "session", "export", "tried", "--out", "tried");
  const whole = join(here.dir, "tried");
  const files = (await readdir(whole)).filter((name) => name.endsWith(".age"));
  const attempt = async (change: (folder: string) => Promise<unknown>, args: string[] = []) => {
    const folder = join(there.dir, `tried-${Math.random().toString(36).slice(2)}`);
    await cp(whole, folder, { recursive: true });
    await change(folder);
    const ran = await there.cli(["session", "import", folder, ...args]);
    expect(ran.code, ran.stdout).toBeGreaterThan(0);
    const lines = ran.stderr.trimEnd().split("\n");
    expect(lines.filter((line) => line.startsWith("hangar: "))).toEqual(lines.slice(-1));
    return lines.at(-1) ?? "";
  };
  const edit = async (folder: string, change: (json: string) => string): Promise<void> => {
    const file = join(folder, "session.json");
    await writeFile(file, change(await readFile(file, "utf8")));
  };
  for (const file of files) expect(await attempt((folder) => truncate(join(folder, file), 10))).toMatch(/damaged/);
  expect(await attempt((folder) => rm(join(folder, files[0]!)))).toMatch(/cannot be read/);
  expect(await attempt((folder) => rm(join(folder, "session.json")))).toMatch(/no exported session/);
  expect(await attempt((folder) => rm(join(folder, "identity.txt")))).toMatch(/no key/);
  expect(await attempt((folder) => writeFile(join(folder, "session.json"), "{"))).toMatch(/not JSON/);
  expect(await attempt((folder) => edit(folder, (json) => json.replace('"version": 1', '"version": 9')))).toMatch(
    /version/,
  );
  const climb = (json: string): string => json.replace(/"file": "meta[^"]*"/, '"file": "../../identity.txt"');
  expect(await attempt((folder) => edit(folder, climb))).toMatch(/file/);
  const other = (json: string): string => json.replace(/"sha256": "[0-9a-f]{8}/, '"sha256": "00000000');
  expect(await attempt((folder) => edit(folder, other))).toMatch(/damaged/);
  await ok(here, "session", "export", "tried", "--out", "for-here", "--recipient", await recipientOf(here));
  const notMine = await there.cli(["session", "import", join(here.dir, "for-here")]);
  expect(notMine.stderr).toMatch(/sealed to somebody else: export it with --recipient age1/);
  expect((await here.cli(["session", "export", "tried", "--out", "tried"])).stderr).toMatch(/not empty/);
  expect((await here.cli(["session", "export", "nobody", "--out", "x"])).code).toBe(4);

  expect((await there.cli(["session", "get", "tried"])).code).toBe(4);
  expect(await readdir(join(there.dataDir, "store/sessions"))).toHaveLength(2);
  // One that was cut off does not hold its name.
  const body = {
    exported: JSON.parse(await readFile(join(whole, "session.json"), "utf8")) as unknown,
    identity: { plain: (await readFile(join(whole, "identity.txt"), "utf8")).trim() },
  };
  await there.api("POST", "/api/imports", body);
  await ok(there, "session", "import", whole);
  expect((await there.turn("tried", "cat one.txt")).summary).toBe("one");
});

const recipientOf = async (hangar: TestHangar): Promise<string> =>
  (JSON.parse((await hangar.cli(["vault", "init", "--json"])).stdout) as { recipient: string }).recipient;
