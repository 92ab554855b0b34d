/** Forks: sessions of their own from one checkpoint, which outlive their parent and leave it as it is. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { Session } from "@hangar/shared";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;
beforeEach(async () => {
  hangar = await startHangar({ HANGAR_IDLE_PASS_SECONDS: "1" });
  remote = await makeRemote(hangar.dir);
});
afterEach(() => hangar.close());

const newSession = (name: string): Promise<Session> =>
  hangar.api("POST", "/api/sessions", { name, repo: remote, harness: "script" });
const partsOf = async (id: string): Promise<string[]> =>
  (await readdir(join(hangar.dataDir, "store/sessions", id), { recursive: true })).filter((file) =>
    file.endsWith(".age"),
  );
const sh = async (name: string, script: string): Promise<string> =>
  (await hangar.exec(name, "sh", "-c", script)).stdout;

test("three forks of a live session go on from its work and its conversation, each on its own", async () => {
  await newSession("fix");
  const first = await hangar.turn("fix", "echo one > kept.txt; git add kept.txt; echo loose > loose.txt");
  const parent = await hangar.session("fix");
  const forked = await hangar.cli([
    "session",
    "fork",
    "fix",
    "-n",
    "3",
    "--wait",
    'echo "$HANGAR_TURN $(cat kept.txt)" > mine.txt; cat mine.txt',
  ]);
  expect(forked).toMatchObject({ code: 0, stdout: expect.stringContaining("fix-fork-3 is done") });

  const conversations = new Set([first.harness_session]);
  for (const name of ["fix-fork-1", "fix-fork-2", "fix-fork-3"]) {
    const fork = await hangar.session(name);
    expect(fork).toMatchObject({
      forked_from: { session: parent.id, name: "fix" },
      branch: `hangar/session/${name}`,
      restored_from: { verified: true, missing: [] },
    });
    // The second turn of the conversation, and the same work, but for its own branch.
    expect(fork.turns.map(({ state, summary, handoff }) => ({ state, summary, handoff }))).toMatchObject([
      { state: "done" },
      { state: "done", summary: "2 one", handoff: false },
    ]);
    conversations.add(fork.harness_session);
    expect(await sh(name, "git branch --show-current; git status --porcelain; cat loose.txt")).toBe(
      `hangar/session/${name}\nA  kept.txt\n?? loose.txt\n?? mine.txt\nloose\n`,
    );
    await sh(name, `echo ${name} > mine.txt`);
  }
  expect(conversations.size).toBe(4);
  const differ = await hangar.cli(["session", "diff", "fix-fork-1", "fix-fork-2"]);
  expect(differ).toMatchObject({ code: 0, stdout: expect.stringContaining("-fix-fork-1\n+fix-fork-2\n") });
  expect(differ.stdout.match(/^diff --git/gm)).toHaveLength(1);
  const names = await hangar.cli(["session", "diff", "fix", "fix-fork-3", "--name-only"]);
  expect(names).toMatchObject({ code: 0, stdout: "mine.txt\n" });
  expect(await hangar.cli(["session", "diff", "fix", "nope"])).toMatchObject({ code: 4, stdout: "" });

  // The parent is what it was, and goes on with its own conversation.
  const after = await hangar.session("fix");
  expect(after).toMatchObject({ forked_from: null, branch: parent.branch, harness_session: parent.harness_session });
  expect(await sh("fix", "git branch --show-current; git status --porcelain")).toBe(
    `${parent.branch}\nA  kept.txt\n?? loose.txt\n`,
  );
  expect(await hangar.turn("fix", "echo $HANGAR_TURN")).toMatchObject({ summary: "2" });
  const got = await hangar.cli(["session", "get", "fix-fork-2"]);
  expect(got.stdout).toContain("fork of");
}, 180_000);

test("a fork's first checkpoint is whole and its own: it outlives its parent, and Redis", async () => {
  await newSession("fix");
  await hangar.turn("fix", "head -c 300000 /dev/urandom > big.bin; sha256sum big.bin");
  const parent = await hangar.session("fix");
  await hangar.api("POST", "/api/sessions/fix/suspend", {});
  await hangar.until("fix", "suspended", (s) => s.state === "SUSPENDED");
  const { sessions } = await hangar.api<{ sessions: Session[] }>("POST", "/api/sessions/fix/fork", { name: "try" });
  expect(sessions.map(({ name }) => name)).toEqual(["try-1"]);
  const fork = await hangar.until("try-1", "a checkpoint of its own", (s) => s.checkpoints.length > 0);
  expect(fork.checkpoints[0]?.parts.every(({ from }) => from === undefined)).toBe(true);
  expect((await partsOf(fork.id)).length).toBeGreaterThanOrEqual(3);
  // Its parent is not in its way any more, with all that it had.
  await hangar.api("DELETE", "/api/sessions/fix");
  await expect(readdir(join(hangar.dataDir, "store/sessions", parent.id))).rejects.toMatchObject({ code: "ENOENT" });

  await hangar.api("POST", "/api/sessions/try-1/suspend", {});
  await hangar.until("try-1", "suspended", (s) => s.state === "SUSPENDED");
  const turn = await hangar.turn("try-1", 'echo "$HANGAR_TURN"; sha256sum big.bin');
  expect(turn).toMatchObject({ state: "done", handoff: false, conversation_lost: false });
  expect(turn.summary).toBe(`2\n${parent.turns[0]?.summary}`);
  expect(turn.harness_session).not.toBe(parent.harness_session);
}, 180_000);

test("from an older checkpoint: that work, and no later turn", async () => {
  await newSession("fix");
  await hangar.turn("fix", "echo one > a.txt");
  const older = (await hangar.session("fix")).checkpoints.at(-1)?.id ?? "";
  await hangar.turn("fix", "echo two > a.txt");
  const { sessions } = await hangar.api<{ sessions: Session[] }>("POST", "/api/sessions/fix/fork", {
    checkpoint: older,
    message: "echo $HANGAR_TURN; cat a.txt",
  });
  const name = sessions[0]?.name ?? "";
  const fork = await hangar.until(name, "done", (s) => s.turns.at(-1)?.state === "done");
  expect(fork.turns.map(({ message }) => message)).toEqual(["echo one > a.txt", "echo $HANGAR_TURN; cat a.txt"]);
  expect(fork.turns.at(-1)?.summary).toBe("2\none");
}, 180_000);

test("the last check goes along where it was of that work", async () => {
  const checked = async (script: string) => {
    expect((await hangar.cli(["session", "check", "fix", script])).code).toBe(0);
    return (await hangar.session("fix")).last_check;
  };
  const fork = async (name: string, checkpoint?: string) => {
    const body = { name, ...(checkpoint !== undefined && { checkpoint }) };
    await hangar.api("POST", "/api/sessions/fix/fork", body);
    return (await hangar.session(`${name}-1`)).last_check;
  };
  await newSession("fix");
  await hangar.turn("fix", "echo one > a.txt");
  const [early] = (await hangar.session("fix")).checkpoints.slice(-1);
  const first = await checked("grep one a.txt");
  // Nothing has changed since the checkpoint before it.
  expect(await fork("same")).toEqual(first);
  await hangar.turn("fix", "echo two > a.txt");
  const [later] = (await hangar.session("fix")).checkpoints.slice(-1);
  expect(await fork("since", later?.id)).toEqual(first);
  const second = await checked("grep two a.txt");
  expect(second).toMatchObject({ exit_code: 0, output: "two" });
  expect(await fork("now")).toEqual(second);
  expect(await fork("before", early?.id)).toBeNull();
}, 180_000);

test("with another agent, it gets an account; what cannot be forked says why", async () => {
  await newSession("fix");
  const early = await hangar.cli(["session", "fork", "fix", "--checkpoint", "ckp-0199f2c3a1b4d5e6f"]);
  expect(early).toMatchObject({ code: 4, stderr: expect.stringContaining("no checkpoint ckp-0199f2c3a1b4d5e6f") });
  expect(await hangar.cli(["session", "fork", "nope"])).toMatchObject({
    stderr: expect.stringContaining("no session"),
  });
  const many = await hangar.cli(["session", "fork", "fix", "-n", "500"]);
  expect(many.code).not.toBe(0);
  await hangar.turn("fix", "echo hello");
  const { sessions } = await hangar.api<{ sessions: Session[] }>("POST", "/api/sessions/fix/fork", {
    harness: "claude",
    message: "go on",
  });
  const name = sessions[0]?.name ?? "";
  // No such program or key here: what counts is that an account was due.
  const fork = await hangar.until(name, "ended", (s) => ["failed", "done"].includes(s.turns.at(-1)?.state ?? ""));
  expect(fork).toMatchObject({ harness: "claude" });
  expect(fork.turns.at(-1)).toMatchObject({ handoff: true });
}, 180_000);
