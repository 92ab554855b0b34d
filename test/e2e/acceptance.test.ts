/** The spec's acceptance 1 to 4 (§8), against real processes with the scripted harness. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { git, makeRemote, sleep, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;

beforeAll(async () => {
  hangar = await startHangar({ HANGAR_IDLE_PASS_SECONDS: "1", HANGAR_USE_KEEPS_AWAKE_SECONDS: "2" });
  remote = await makeRemote(hangar.dir);
}, 120_000);
afterAll(() => hangar.close());

const WORK = `
set -e
echo committed > committed.txt && git add committed.txt && git commit -qm "Agent's commit"
echo staged > staged.txt && git add staged.txt
echo "changed, not staged" >> src/f1.txt
printf 'untracked \\000 bytes' > untracked.bin
chmod +x src/f2.txt
echo "first turn done"
`;

const LOOK = `git rev-parse HEAD; git log -1 --format=%s; git branch --show-current; git status --porcelain=v1; git ls-files -s | sha256sum; sha256sum untracked.bin staged.txt src/f1.txt`;

test("1 and 2: work survives a suspend, and a follow-up resumes the same conversation in a new sandbox", async () => {
  await hangar.api("POST", "/api/sessions", { name: "csv-fix", repo: remote, harness: "script" });
  const first = await hangar.turn("csv-fix", WORK);
  expect(first).toMatchObject({ state: "done", exit_code: 0 });
  expect(first.summary).toContain("first turn done");
  const before = await hangar.exec("csv-fix", "sh", "-c", LOOK);
  expect(before.stdout).toContain("Agent's commit");
  const live = await hangar.session("csv-fix");
  expect(live.state).toBe("IDLE");
  expect(live.branch).toBe("hangar/session/csv-fix");

  await hangar.api("POST", "/api/sessions/csv-fix/suspend", {});
  const suspended = await hangar.until("csv-fix", "suspended", (s) => s.state === "SUSPENDED");
  expect(suspended.sandbox_id).toBeNull();
  expect(suspended.checkpoints.length).toBeGreaterThan(0);
  expect(suspended.checkpoints.at(-1)).toMatchObject({ paired: true, proved: true, bad: null, left_out: [] });
  // the sandbox is gone: no folder, no process
  const folders = await readdir(join(hangar.dataDir, "sandboxes"));
  expect(folders.filter((name) => name.startsWith("sbx-"))).toEqual([]);
  expect(await hangar.pids(/hangar-agent/)).toEqual([]);

  const second = await hangar.turn("csv-fix", `echo "turn two: $(cat committed.txt)"`);
  expect(second).toMatchObject({ state: "done", conversation_lost: false, handoff: false });
  expect(second.summary).toContain("turn two: committed");
  expect(first.harness_session).toBeTruthy();
  expect(second.harness_session).toBe(first.harness_session);
  const resumed = await hangar.session("csv-fix");
  expect(resumed.generation).toBe(live.generation + 1);
  expect(resumed.restored_from).toMatchObject({ verified: true, missing: [] });
  const after = await hangar.exec("csv-fix", "sh", "-c", LOOK);
  expect(after.stdout).toBe(before.stdout);
  // nothing was pushed
  expect(await git(remote, "branch", "--list")).not.toContain("hangar/session");
}, 120_000);

test("3: a sandbox destroyed by the reaper leaves a checkpoint taken before the destroy", async () => {
  await hangar.api("POST", "/api/sessions", { name: "reaped", repo: remote, harness: "script", idle_minutes: 0 });
  await hangar.turn("reaped", "echo one > kept.txt");
  await hangar.exec("reaped", "sh", "-c", "echo two >> kept.txt");
  await hangar.api("PATCH", "/api/sessions/reaped", { ttl_minutes: 0.1 });
  const gone = await hangar.until("reaped", "reaped", (s) => s.state === "SUSPENDED", 60);
  expect(gone.checkpoints.at(-1)?.reason).toBe("destroy");
  const turn = await hangar.turn("reaped", "cat kept.txt");
  expect(turn.summary).toContain("one\ntwo");
}, 120_000);

test("4: an idle session suspends by itself; an attached terminal keeps it", async () => {
  await hangar.api("POST", "/api/sessions", { name: "idler", repo: remote, harness: "script", idle_minutes: 0.1 });
  await hangar.turn("idler", "echo hello > note.txt");
  const terminal = await hangar.terminal("idler");
  const awake = await hangar.until("idler", "kept awake", (s) => s.kept_awake_by.some((by) => by.includes("terminal")));
  expect(awake.state).toBe("IDLE");
  // twice its idle time, and longer than one use counts for
  await sleep(14_000);
  expect(await hangar.session("idler")).toMatchObject({ state: "IDLE", generation: awake.generation });
  terminal.close();
  const asleep = await hangar.until("idler", "asleep", (s) => s.state === "SUSPENDED", 60);
  expect(asleep.checkpoints.length).toBeGreaterThan(0);
  expect((await hangar.turn("idler", "cat note.txt")).summary).toContain("hello");
}, 180_000);
