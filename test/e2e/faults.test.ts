/** Kill anything at any step: no acknowledged checkpoint is lost, a turn cut short is said and not run twice, the session goes on. */
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Session, Turn } from "@hangar/shared";
import { killAll, makeRemote, sleep, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;
// the lease is as by default: a daemon that is cut off for longer stops its turn on purpose
const quick = { HANGAR_IDLE_PASS_SECONDS: "1", HANGAR_HEARTBEAT_SECONDS: "1" };

beforeEach(async () => {
  hangar = await startHangar(quick);
  remote = await makeRemote(hangar.dir);
});
afterEach(() => hangar.close());

const newSession = (name: string, more: object = {}): Promise<Session> =>
  hangar.api("POST", "/api/sessions", { name, repo: remote, harness: "script", ...more });
const daemons = (): Promise<number[]> => hangar.pids(/^\S*node\S* .*hangar-agent\S* run/);
const redis = (): Promise<number[]> => hangar.pids(/^\S*redis-server/);
const kill = (pids: number[]): void => {
  expect(pids.length).toBeGreaterThan(0);
  killAll(pids);
};
/** Starts a turn that runs until `go` exists, and waits until it runs. */
const longTurn = async (name: string): Promise<Turn> => {
  const { turn } = await hangar.api<{ turn: Turn }>("POST", `/api/sessions/${name}/send`, {
    message:
      "echo ran >> runs.txt; touch started; while [ ! -e go ]; do sleep 0.2; done; echo finished >> runs.txt; echo over",
  });
  await hangar.until(name, "in its turn", (s) => s.turns.some((t) => t.id === turn.id && t.state === "running"));
  for (let i = 0; (await hangar.exec(name, "test", "-e", "started")).code !== 0; i++) {
    if (i > 100) throw new Error("the turn's script did not start");
    await sleep(100);
  }
  return turn;
};
const turnOf = (session: Session, id: string): Turn | undefined => session.turns.find((t) => t.id === id);

test("kill -9 of the daemon between turns: the session goes on with all of its work", async () => {
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt; git add kept.txt");
  await hangar.exec("s", "sh", "-c", "echo after the checkpoint > late.txt");
  kill(await daemons());
  await hangar.until("s", "noticed", (s) => s.sandbox_id === null || s.generation > 1);
  const turn = await hangar.turn("s", "cat kept.txt late.txt; git diff --cached --name-only");
  expect(turn).toMatchObject({ state: "done", conversation_lost: false });
  expect(turn.summary).toContain("kept\nafter the checkpoint\nkept.txt");
});

test("kill -9 of the daemon during a turn: interrupted, not run again, the next turn goes on and is told", async () => {
  await newSession("s");
  const first = await hangar.turn("s", "echo begun");
  const cut = await longTurn("s");
  kill(await daemons());
  const session = await hangar.until("s", "interrupted", (s) => turnOf(s, cut.id)?.state === "interrupted");
  expect(turnOf(session, cut.id)?.error).toBeTruthy();
  const next = await hangar.turn("s", "cat runs.txt");
  expect(next).toMatchObject({ state: "done", harness_session: first.harness_session });
  expect(next.summary).toContain("ran");
  expect(next.summary).not.toContain("finished");
  expect((next.summary ?? "").match(/^ran$/gm)).toHaveLength(1);
});

test("the sandbox's folder gone with its daemon: back from the last acknowledged checkpoint", async () => {
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt; git add kept.txt; git commit -qm kept; echo more >> kept.txt");
  kill(await daemons());
  for (const sandbox of await readdir(join(hangar.dataDir, "sandboxes"))) {
    await rm(join(hangar.dataDir, "sandboxes", sandbox), { recursive: true, force: true });
  }
  const turn = await hangar.turn("s", "cat kept.txt; git log -1 --format=%s; git status --porcelain");
  expect(turn.summary).toContain("kept\nmore\nkept\n M kept.txt");
  expect((await hangar.session("s")).restored_from).toMatchObject({ verified: true });
});

test("kill -9 of the coordinator between turns: its sandboxes live on and are found again", async () => {
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt");
  const before = await hangar.session("s");
  const [daemon] = await daemons();
  await hangar.restart();
  const turn = await hangar.turn("s", "cat kept.txt");
  expect(turn).toMatchObject({ state: "done" });
  expect(turn.summary).toContain("kept");
  expect((await hangar.session("s")).generation).toBe(before.generation);
  expect(await daemons()).toEqual([daemon]);
});

test("kill -9 of the coordinator during a turn: the turn goes on, ends once, and its events are all there", async () => {
  await newSession("s");
  const turn = await longTurn("s");
  await hangar.replica.kill("SIGKILL");
  await sleep(1500);
  hangar.replica = await hangar.start();
  await hangar.until("s", "linked again", (s) => s.activity !== null);
  expect((await hangar.exec("s", "touch", "go")).code).toBe(0);
  const session = await hangar.until("s", "done", (s) => turnOf(s, turn.id)?.state === "done" && s.state === "IDLE");
  expect(turnOf(session, turn.id)?.summary).toContain("over");
  const events = (await hangar.events("s")).map((e) => e.event);
  expect(events.filter((e) => e.type === "turn_finished" && e.turn === turn.id)).toHaveLength(1);
  const runs = await hangar.exec("s", "cat", "runs.txt");
  expect(runs.stdout).toBe("ran\nfinished\n");
});

test("kill -9 of Redis between and during turns: it is started again with everything in it", async () => {
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt");
  const before = await hangar.session("s");
  kill(await redis());
  const after = await hangar.until("s", "back", (s) => s.state === "IDLE");
  expect(after.checkpoints.map((c) => c.id)).toEqual(before.checkpoints.map((c) => c.id));
  const turn = await longTurn("s");
  kill(await redis());
  await hangar.until("s", "back", (s) => s.state === "ACTIVE");
  for (let i = 0; ; i++) {
    const ok = await hangar.exec("s", "touch", "go").then(
      (r) => r.code === 0,
      () => false,
    );
    if (ok) break;
    if (i > 50) throw new Error("the sandbox was not reached again");
    await sleep(200);
  }
  const session = await hangar.until("s", "done", (s) => turnOf(s, turn.id)?.state === "done" && s.state === "IDLE");
  expect(turnOf(session, turn.id)?.summary).toContain("over");
});

test("Redis's data deleted: what was acknowledged is in the store with its markers, and the session is rebuilt", async () => {
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt; git add kept.txt");
  await hangar.api("POST", "/api/sessions/s/suspend", {});
  const before = await hangar.until("s", "suspended", (s) => s.state === "SUSPENDED");
  await hangar.replica.kill("SIGTERM");
  for (let i = 0; (await redis()).length > 0 && i < 50; i++) await sleep(100);
  await rm(join(hangar.dataDir, "redis"), { recursive: true, force: true });
  for (const checkpoint of before.checkpoints) {
    const marker = join(hangar.dataDir, "store/sessions", before.id, checkpoint.id, "commit.json");
    expect(JSON.parse(await readFile(marker, "utf8"))).toMatchObject({ session: before.id, checkpoint: checkpoint.id });
  }
  hangar.replica = await hangar.start();
  const rebuilt = await hangar.session("s");
  expect(rebuilt).toMatchObject({ id: before.id, state: "SUSPENDED", harness_session: before.harness_session });
  const turn = await hangar.turn("s", "cat kept.txt; git diff --cached --name-only");
  expect(turn).toMatchObject({ state: "done", harness_session: before.harness_session });
  expect(turn.summary).toContain("kept\nkept.txt");
});

test("two coordinators on one Redis: one killed in mid-open, the other finishes it", async () => {
  const second = await hangar.start({ HANGAR_REDIS_URL: await redisUrl() });
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt");
  await hangar.api("POST", "/api/sessions/s/suspend", {});
  await hangar.until("s", "suspended", (s) => s.state === "SUSPENDED");
  // the second replica takes the open and dies at once
  await hangar.api("POST", "/api/sessions/s/open", {}, second);
  await second.kill("SIGKILL");
  const session = await hangar.until("s", "open", (s) => s.state === "IDLE");
  expect(session.restored_from).toMatchObject({ verified: true });
  expect(await daemons()).toHaveLength(1);
  expect((await hangar.turn("s", "cat kept.txt")).summary).toContain("kept");
});

test("two coordinators on one Redis: one killed in mid-suspend, the other finishes it, with nothing lost", async () => {
  const second = await hangar.start({ HANGAR_REDIS_URL: await redisUrl() });
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt");
  await hangar.exec("s", "sh", "-c", "echo late > late.txt");
  await hangar.api("POST", "/api/sessions/s/suspend", {}, second);
  await second.kill("SIGKILL");
  await hangar.until("s", "suspended", (s) => s.state === "SUSPENDED");
  expect(await daemons()).toEqual([]);
  expect((await hangar.turn("s", "cat kept.txt late.txt")).summary).toContain("kept\nlate");
});

test("two opens at once, at two coordinators, make one sandbox", async () => {
  const second = await hangar.start({ HANGAR_REDIS_URL: await redisUrl() });
  await newSession("s");
  await hangar.turn("s", "echo kept > kept.txt");
  await hangar.api("POST", "/api/sessions/s/suspend", {});
  await hangar.until("s", "suspended", (s) => s.state === "SUSPENDED");
  await Promise.all(
    [hangar.replica, second, hangar.replica, second].map((r) => hangar.api("POST", "/api/sessions/s/open", {}, r)),
  );
  const session = await hangar.until("s", "open", (s) => s.state === "IDLE");
  expect(session.generation).toBe(2);
  expect(await daemons()).toHaveLength(1);
});

test("one send repeated with its key, at two coordinators, runs once", async () => {
  const second = await hangar.start({ HANGAR_REDIS_URL: await redisUrl() });
  await newSession("s");
  const body = { message: "echo ran >> runs.txt; cat runs.txt", idempotency_key: "once" };
  const sent = await Promise.all(
    [hangar.replica, second, second].map((r) => hangar.api<{ turn: Turn }>("POST", "/api/sessions/s/send", body, r)),
  );
  expect(new Set(sent.map((s) => s.turn.id)).size).toBe(1);
  const session = await hangar.until(
    "s",
    "done",
    (s) => s.turns.length > 0 && s.turns.every((t) => t.state === "done"),
  );
  expect(session.turns).toHaveLength(1);
  expect((await hangar.exec("s", "cat", "runs.txt")).stdout).toBe("ran\n");
});

/** The embedded Redis's own socket, as an operator would name it for a second replica. */
async function redisUrl(): Promise<string> {
  const { redis } = await hangar.api<{ redis: string }>("GET", "/api/status");
  return redis;
}
