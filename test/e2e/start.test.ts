/** What a start says of itself: the same words in `get`, the list, `--wait`, the events, and in its time-out. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;
beforeAll(async () => {
  // Plain: its setup can see the folder that holds it up.
  hangar = await startHangar({ HANGAR_ISOLATION: "plain", HANGAR_IDLE_PASS_SECONDS: "1" });
  remote = await makeRemote(hangar.dir);
  await hangar.api("PUT", "/api/environments/slow", {
    name: "slow",
    repo: remote,
    setup: `while [ ! -e ${join(hangar.dir, "go")} ]; do sleep 0.1; done`,
  });
}, 60_000);
afterAll(() => hangar.close());

const said = async (): Promise<string[]> =>
  (await hangar.events("s")).flatMap(({ event }) => (event.type === "phase" ? [event.text ?? ""] : []));

test("each phase is said in the same words by all who show it", async () => {
  const waiting = hangar.cli(["session", "new", "s", "--env", "slow", "--wait"]);
  const inSetup = await hangar.until("s", "in setup", (s) => s.phase === "setup");
  expect(inSetup).toMatchObject({ state: "STARTING", status: "running setup" });
  const got = await hangar.cli(["session", "get", "s"]);
  expect(got.stdout).toMatch(/^status +running setup$/m);
  expect((await hangar.cli(["session", "list"])).stdout).toMatch(/^s +starting .* running setup$/m);
  await writeFile(join(hangar.dir, "go"), "");
  const ran = await waiting;
  expect(ran.code).toBe(0);
  expect(ran.stderr.split("\n")).toEqual(
    expect.arrayContaining([expect.stringMatching(/^s: (?:starting|cloning)/), "s: running setup"]),
  );
  expect(await said()).toEqual([`cloning (${remote})`, "running setup", "ready"]);

  await hangar.cli(["session", "suspend", "s", "--wait"]);
  const opened = await hangar.cli(["session", "open", "s"]);
  expect(opened.code).toBe(0);
  const { checkpoints } = await hangar.session("s");
  const again = (await said()).slice(3);
  expect(again.slice(0, 2)).toEqual([`cloning (${remote})`, "running setup"]);
  expect(again).toContainEqual(expect.stringMatching(/^restoring(?: \(.*\))?$/));
  expect(again.at(-1)).toBe("ready");
  expect(checkpoints.length).toBeGreaterThan(0);
}, 60_000);

test("a start that takes too long says in which phase it hung", async () => {
  await hangar.restart({ HANGAR_START_TIMEOUT_MINUTES: "0.1" });
  const setup = "sleep 600";
  await hangar.api("PUT", "/api/environments/hung", { name: "hung", repo: remote, setup });
  const ran = await hangar.cli(["session", "new", "h", "--env", "hung", "--wait"]);
  expect(ran.code).not.toBe(0);
  expect(ran.stderr).toContain("was not ready after 0.1 min, and hung in: running setup");
  expect((await hangar.session("h")).status).toContain("hung in: running setup");
}, 60_000);
