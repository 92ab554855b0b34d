/** The daemon's protocol against the whole coordinator: real Redis, vault, volume store and sockets. */
import { once } from "node:events";
import type { AgentCommand, Session, Turn } from "@hangar/shared";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type ScriptedHangar, type ScriptedSandbox, startScripted } from "./scripted.ts";

let hangar: ScriptedHangar;
beforeEach(async () => {
  hangar = await startScripted();
});
afterEach(() => hangar.close());

const CONVERSATION = "conversation-1";

/** Runs turns and freezes as a daemon does: a turn says `said`, and each of them ends in a checkpoint. */
const obedient =
  (sandbox: ScriptedSandbox, said: string) =>
  async (command: AgentCommand): Promise<unknown> => {
    if (command.kind === "turn") void runTurn(sandbox, command, said);
    if (command.kind === "freeze") {
      const { id } = await sandbox.checkpoint("suspend", `frozen by ${sandbox.spec.id}`, CONVERSATION);
      return { outcome: "committed", checkpoint: id };
    }
    return {};
  };

async function runTurn(
  sandbox: ScriptedSandbox,
  { turn }: Extract<AgentCommand, { kind: "turn" }>,
  summary: string,
): Promise<void> {
  const at = new Date().toISOString();
  sandbox.event({ type: "turn_started", turn, at });
  sandbox.event({ type: "turn_output", turn, output: { kind: "text", text: summary } });
  const result = { state: "done" as const, exit_code: 0, summary, error: null, harness_session: CONVERSATION };
  const rest = { conversation_lost: false, handoff: false, usage: null };
  sandbox.event({ type: "turn_finished", turn, at, result: { ...result, ...rest } });
  const { id } = await sandbox.checkpoint("turn", `after ${turn}`, CONVERSATION);
  sandbox.event({ type: "turn_settled", turn, checkpoint: id, error: null });
}

const newSession = (more: object = {}): Promise<Session> =>
  hangar.api("POST", "/api/sessions", { name: "fix", harness: "script", repo: "/srv/repo.git", ...more });
const idle = (session: Session): boolean => session.state === "IDLE" && session.turns.every((t) => t.state === "done");

it("opens, runs turns, suspends and resumes over the link", async () => {
  await newSession({ message: "first" });
  const first = await hangar.sandbox(1);
  const fresh = await first.boot();
  expect(fresh).toMatchObject({ candidates: [], identity: null, harness_session: null, generation: 1 });
  expect(fresh.recipients).toHaveLength(2);
  await first.link(obedient(first, "said the first"));
  first.ready();
  const after = await hangar.until("fix", (s) => idle(s) && s.checkpoints.length === 1);
  expect(after.turns).toMatchObject([{ message: "first", summary: "said the first", harness_session: CONVERSATION }]);
  expect(first.commands).toMatchObject([{ kind: "turn", message: "first", harness_session: null }]);

  await hangar.api("POST", "/api/sessions/fix/suspend", {});
  const suspended = await hangar.until("fix", (s) => s.state === "SUSPENDED");
  expect(suspended).toMatchObject({ sandbox_id: null });
  expect(first.gone).toBe(true);
  const newest = suspended.checkpoints.at(-1)!;
  expect(newest).toMatchObject({ reason: "suspend", generation: 1 });

  await hangar.api("POST", "/api/sessions/fix/send", { message: "second" });
  const second = await hangar.sandbox(2);
  const boot = await second.boot();
  expect(boot).toMatchObject({ generation: 2, harness_session: CONVERSATION });
  expect(boot.candidates.map((c) => c.checkpoint)).toEqual(suspended.checkpoints.map((c) => c.id).toReversed());
  expect(boot.identity).toMatch(/^AGE-SECRET-KEY-1/);
  const asked = { objects: [{ checkpoint: newest.id, file: "worktree.age" }] };
  const urls = (await (await second.request("POST", "/agent/downloads", asked)).json()) as {
    downloads: Record<string, { url: string }>;
  };
  const part = await fetch(urls.downloads[`${newest.id}/worktree.age`]!.url);
  expect(await part.text()).toBe("frozen by " + first.spec.id);

  await second.link(obedient(second, "said the second"));
  second.ready(newest.id);
  const resumed = await hangar.until("fix", (s) => idle(s) && s.turns.length === 2);
  expect(resumed).toMatchObject({ generation: 2, last_summary: "said the second" });
  expect(resumed.restored_from).toMatchObject({ checkpoint: newest.id, verified: true });
  expect(second.commands).toMatchObject([{ kind: "turn", message: "second", harness_session: CONVERSATION }]);

  const events = await hangar.events("fix", (e) => e.type === "turn_ended" && e.turn === resumed.turns[1]!.id);
  const types = events.map((e) => e.type);
  for (const type of ["state", "turn_queued", "phase", "turn_output", "checkpoint", "turn_ended"]) {
    expect(types).toContain(type);
  }
  expect(events.filter((e) => e.type === "turn_output").map((e) => e.type === "turn_output" && e.output)).toEqual([
    { kind: "text", text: "said the first" },
    { kind: "text", text: "said the second" },
  ]);
});

it("refuses a sandbox whose generation is over, and a second PUT of a committed part", async () => {
  await newSession({ message: "first" });
  const old = await hangar.sandbox(1);
  await old.link(obedient(old, "x"));
  old.ready();
  await hangar.until("fix", idle);
  const { put } = await old.checkpoint("manual", "committed", CONVERSATION);
  const again = await fetch(put, { method: "PUT", body: "committed" });
  expect(again.status).toBe(409);
  expect(await again.json()).toMatchObject({ code: "object_exists" });

  await hangar.api("POST", "/api/sessions/fix/suspend", {});
  await hangar.until("fix", (s) => s.state === "SUSPENDED");
  await hangar.api("POST", "/api/sessions/fix/open", {});
  await hangar.sandbox(2);
  const boot = await old.request("GET", "/agent/boot");
  expect(boot.status).toBe(409);
  expect(await boot.json()).toMatchObject({ code: "stale_generation" });
  await expect(old.checkpoint("destroy", "late", null)).rejects.toThrow();
  const link = old.dial("/agent/link");
  link.on("error", () => {});
  const [, response] = (await once(link, "unexpected-response")) as [unknown, { statusCode: number }];
  expect(response.statusCode).toBe(409);
  link.terminate();
  expect(hangar.logged()).not.toMatch(/"level":"error"/);
});

it("sends what was not finished again after a lost link, and drops events that come twice", async () => {
  await newSession({ message: "first" });
  const sandbox = await hangar.sandbox(1);
  // The first link takes the command and does nothing with it.
  await sandbox.link(() => new Promise(() => {}));
  sandbox.ready();
  while (!sandbox.commands.some((c) => c.kind === "turn")) await new Promise((resolve) => setTimeout(resolve, 20));
  const twice = sandbox.event({ type: "notice", text: "once only" });
  while (!sandbox.acked.includes(twice)) await new Promise((resolve) => setTimeout(resolve, 20));
  sandbox.ws?.terminate();

  await sandbox.link(obedient(sandbox, "done at last"));
  sandbox.event({ type: "notice", text: "once only" }, twice);
  const session = await hangar.until("fix", (s) => idle(s) && s.turns.length === 1);
  expect(session.turns[0]).toMatchObject({ state: "done", summary: "done at last" });
  expect(sandbox.commands.filter((c) => c.kind === "turn")).toHaveLength(2);
  const events = await hangar.events("fix", (e) => e.type === "turn_ended");
  expect(events.filter((e) => e.type === "notice" && e.text === "once only")).toHaveLength(1);
});

it("runs a command in the sandbox, and joins a terminal to it", async () => {
  await newSession({ message: "first" });
  const sandbox = await hangar.sandbox(1);
  const ends: ReturnType<ScriptedSandbox["dial"]>[] = [];
  const obey = obedient(sandbox, "x");
  await sandbox.link(async (command) => {
    if (command.kind === "exec") {
      const stdout = Buffer.from(command.argv.join(" ")).toString("base64");
      return { exit_code: 3, stdout, stderr: "", truncated: false, timed_out: false };
    }
    if (command.kind !== "terminal") return obey(command);
    const ws = sandbox.dial(command.url);
    await once(ws, "open");
    ends.push(ws);
    ws.send(Buffer.from("$ "));
    return {};
  });
  sandbox.ready();
  await hangar.until("fix", idle);
  const ran = await hangar.api<{ stdout: string; exit_code: number }>("POST", "/api/sandboxes/fix/exec", {
    argv: ["echo", "hi"],
  });
  expect(ran.exit_code).toBe(3);
  expect(Buffer.from(ran.stdout, "base64").toString()).toBe("echo hi");

  const user = hangar.terminal(sandbox.spec.id);
  const [prompt] = (await once(user, "message")) as [Buffer];
  expect(prompt.toString()).toBe("$ ");
  const typed = once(ends[0]!, "message");
  user.send(Buffer.from("ls\n"));
  expect(String((await typed)[0])).toBe("ls\n");
  const over = once(ends[0]!, "close");
  user.close();
  await over;
});

it("keeps its secrets to the sandbox that starts, and its tokens out of the log", async () => {
  await hangar.api("PUT", "/api/secrets/API_KEY", { value: "hunter2-and-more" });
  await hangar.api("PUT", "/api/environments/web", { harness: "script", secrets: ["API_KEY"], variables: { A: "b" } });
  await hangar.api("POST", "/api/sessions", { name: "fix", environment: "web", message: "go" });
  const sandbox = await hangar.sandbox(1);
  expect(await sandbox.boot()).toMatchObject({ secrets: { API_KEY: "hunter2-and-more" }, variables: { A: "b" } });
  await sandbox.link(obedient(sandbox, "the key is hunter2-and-more"));
  sandbox.ready();
  const session = await hangar.until("fix", idle);
  expect(JSON.stringify(session)).not.toContain("hunter2");
  const { turn } = { turn: session.turns[0] as Turn };
  expect(turn.summary).toBe("the key is ***");
  expect(hangar.logged()).not.toMatch(/hunter2|hat1\./);
  expect(await hangar.status("DELETE", "/api/environments/web")).toBe(409);
});

it("answers for git credentials of the session's remote only", async () => {
  await newSession({ repo: "https://git.example.com/org/repo.git", message: "go" });
  const sandbox = await hangar.sandbox(1);
  const ask = (host: string): Promise<Response> =>
    sandbox.request("POST", "/agent/git-credential", { protocol: "https", host, path: null });
  expect(await (await ask("git.example.com")).json()).toEqual({ username: "me", password: "pw" });
  const other = await ask("evil.example.com");
  expect(other.status).toBe(403);
  expect(hangar.logged()).not.toContain('"pw"');
});
