/** Hot resume: what runs is stopped for a snapshot, and a daemon that wakes in it goes on as the session's next sandbox. */
import { readFileSync } from "node:fs";
import { ExecResult, sandboxIdOf } from "@hangar/shared";
import { expect, test } from "vitest";
import { exec, stage } from "./support.ts";

const state = (pid: string): string =>
  readFileSync(`/proc/${pid}/stat`, "latin1")
    .replace(/^.*\) /s, "")
    .slice(0, 1);

/** What a program printed. */
function printed(answer: object): string {
  const { stdout } = ExecResult.parse("value" in answer ? answer.value : answer);
  return Buffer.from(stdout, "base64").toString("utf8");
}

async function frozen(keep: boolean) {
  const { coordinator, sandbox } = await stage();
  sandbox.start({ namespace: false });
  await coordinator.ready();
  const script = "echo kept > kept.txt; setsid sh -c 'while :; do sleep 0.1; done' >/dev/null 2>&1 & echo $!";
  const pid = printed(await coordinator.command(exec("sh", "-c", script))).trim();
  const answer = await coordinator.command({
    kind: "freeze",
    reason: "suspend",
    push: false,
    ...(keep && { keep_processes: true }),
  });
  expect(answer).toMatchObject({ value: { outcome: "committed" } });
  return { coordinator, sandbox, pid };
}

test(
  "processes are stopped while their memory is kept, and run on in the next sandbox",
  { timeout: 60_000 },
  async () => {
    const { coordinator, sandbox, pid } = await frozen(true);
    expect(state(pid)).toBe("T");
    const before = coordinator.token;
    const next = { ...coordinator.boot, generation: 2, sandbox: sandboxIdOf(coordinator.boot.session, 2), adopt: true };
    coordinator.nextSandbox(next);
    coordinator.token = "token-of-the-next-sandbox";
    coordinator.successor = { of: before, token: coordinator.token };
    coordinator.push({ type: "superseded", generation: 2 });
    await coordinator.ready();
    expect(await coordinator.event("restored")).toMatchObject({ source: "adopted" });
    expect(state(pid)).not.toBe("T");
    const look = await coordinator.command(exec("sh", "-c", "cat kept.txt"));
    expect(printed(look)).toBe("kept\n");
    // Suspended again, without a snapshot, nothing is left: its mark is what it was.
    await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
    expect(sandbox.processes().map(String)).not.toContain(pid);
  },
);

test("a daemon that nobody restored ends with everything when it is superseded", { timeout: 60_000 }, async () => {
  const { coordinator, sandbox, pid } = await frozen(true);
  coordinator.push({ type: "superseded", generation: 2 });
  expect(await sandbox.ended()).toBe(0);
  expect(sandbox.processes().map(String)).not.toContain(pid);
});
