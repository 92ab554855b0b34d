/** A harness that is declared, word for word as docs/harnesses.md does: turns, resume elsewhere, fork, errors, and no key in a checkpoint. */
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { Session } from "@hangar/shared";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

const KEY = "otter-made-up-key-0123456789";
const page = await readFile(new URL("../../docs/harnesses.md", import.meta.url), "utf8");
const declared = /^```yaml\n# otter\.yaml\n([\s\S]*?)^```$/m.exec(page)?.[1] ?? "";

let hangar: TestHangar;
let remote: string;
let bin: string;
beforeAll(async () => {
  bin = await mkdtemp(join(tmpdir(), "hangar-otter-"));
  const otter = new URL("../stand-ins/otter.ts", import.meta.url).pathname;
  await writeFile(join(bin, "otter"), `#!/bin/sh\nexec "${process.execPath}" "${otter}" "$@"\n`);
  await chmod(join(bin, "otter"), 0o755);
  hangar = await startHangar({ PATH: [bin, process.env["PATH"] ?? ""].join(delimiter), HANGAR_IDLE_PASS_SECONDS: "1" });
  remote = await makeRemote(hangar.dir);
  await writeFile(join(hangar.dir, "otter.yaml"), declared.replace("https://github.com/octocat/Hello-World", remote));
  expect(await hangar.cli(["secret", "set", "OTTER_KEY"], { input: KEY })).toMatchObject({ code: 0 });
  expect(await hangar.cli(["env", "apply", "-f", join(hangar.dir, "otter.yaml")])).toMatchObject({ code: 0 });
}, 120_000);
afterAll(async () => {
  await hangar.close();
  await rm(bin, { recursive: true, force: true });
});

test("it works, goes on elsewhere, and forks", async () => {
  expect(await hangar.cli(["session", "new", "pond", "--env", "otter-env"])).toMatchObject({ code: 0 });
  const first = await hangar.turn("pond", "remember shells");
  expect(first).toMatchObject({
    state: "done",
    summary: "I remember shells.",
    usage: { input_tokens: 7, output_tokens: 3, cost_usd: 0.5 },
    conversation_lost: false,
  });
  const outputs = (await hangar.events("pond")).flatMap(({ event }) =>
    event.type === "turn_output" ? [event.output] : [],
  );
  expect(outputs).toMatchObject([
    { kind: "tool_call", name: "look" },
    { kind: "tool_result", name: "look", output: "nothing", is_error: false },
    { kind: "text", text: "I remember shells." },
  ]);
  await hangar.api("POST", "/api/sessions/pond/suspend", {});
  await hangar.until("pond", "suspended", (s) => s.state === "SUSPENDED");
  const second = await hangar.turn("pond", "remember stones");
  expect(second).toMatchObject({
    state: "done",
    summary: "I remember shells, stones.",
    harness_session: first.harness_session,
    handoff: false,
  });

  const { sessions } = await hangar.api<{ sessions: Session[] }>("POST", "/api/sessions/pond/fork", {
    message: "remember moss",
  });
  const fork = await hangar.until(sessions[0]?.name ?? "", "done", (s) => s.turns.at(-1)?.state === "done");
  expect(fork.turns.at(-1)).toMatchObject({ summary: "I remember shells, stones, moss.", handoff: false });
  expect(fork.harness_session).not.toBe(first.harness_session);
  expect(await hangar.cli(["session", "diff", "pond", fork.name])).toEqual({
    code: 0,
    stdout: "",
    stderr: expect.any(String),
  });
}, 120_000);

test("its own error is the turn's, and the key beside its conversations never travels", async () => {
  expect(await hangar.turn("pond", "break")).toMatchObject({
    state: "failed",
    error: "Otter: the otter fell asleep",
  });
  expect((await hangar.exec("pond", "sh", "-c", "cat ~/.otter/talks/login.key")).stdout).toContain("otter-made-up");
  await hangar.api("POST", "/api/sessions/pond/suspend", {});
  await hangar.until("pond", "suspended", (s) => s.state === "SUSPENDED");
  await hangar.api("POST", "/api/sessions/pond/open", {});
  await hangar.until("pond", "open", (s) => s.state === "IDLE");
  const there = await hangar.exec("pond", "sh", "-c", "cd ~/.otter/talks && ls");
  expect(there.stdout).toMatch(/^[0-9a-f-]{36}\.jsonl\n$/);
}, 120_000);

test("a declaration with a fault names the field; the server's file is read, and refused the same way", async () => {
  const bad = join(hangar.dir, "bad.yaml");
  const refused = async (text: string): Promise<string> => {
    await writeFile(bad, text);
    const ran = await hangar.cli(["env", "apply", "-f", bad]);
    expect(ran.code).not.toBe(0);
    return ran.stderr;
  };
  expect(await refused("name: a\nharnesses: [{ name: claude, turn: [x] }]")).toContain('"claude" is built in');
  expect(await refused("name: a\nharnesses: [{ name: x, turn: [x], resume: [x] }]")).toContain("conversation");
  expect(await refused("name: a\nharnesses: [{ name: x, turn: [x], conversation: { roots: [../..] } }]")).toContain(
    "a folder below the home",
  );
  expect(await refused("name: a\nharnesses: [{ name: x, turn: [x], conversation: { roots: [.ssh] } }]")).toContain(
    "holds credentials",
  );
  const file = join(hangar.dir, "all.yaml");
  await writeFile(file, "- { name: parrot, turn: [echo, 'parrot says', '{message}'] }\n");
  await hangar.restart({ HANGAR_HARNESSES: file });
  await hangar.api("POST", "/api/sessions", { name: "cage", repo: remote, harness: "parrot" });
  expect(await hangar.turn("cage", "hello")).toMatchObject({ state: "done", summary: "parrot says hello" });
  // It cannot resume: each turn begins with an account.
  expect(await hangar.turn("cage", "again")).toMatchObject({ state: "done", handoff: true });
  const log = join(hangar.dir, "broken.yaml");
  await writeFile(log, "- { name: parrot }\n");
  const env = { ...hangar.env, HANGAR_HARNESSES: log, HANGAR_DATA_DIR: join(hangar.dir, "other") };
  const broken = await run(
    process.execPath,
    [new URL("../../packages/coordinator/bin/hangar-coordinator.mjs", import.meta.url).pathname],
    { env },
  );
  expect(broken.code).not.toBe(0);
  expect(broken.stderr).toContain("0.turn");
}, 120_000);
