/** The vault's rotation on a Hangar that runs: nothing sealed before is lost, whatever happens in between. */
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;
beforeAll(async () => {
  hangar = await startHangar();
  remote = await makeRemote(hangar.dir);
}, 120_000);
afterAll(() => hangar.close());

const ok = async (...args: string[]): Promise<string> => {
  const ran = await hangar.cli(args);
  expect(ran.code, ran.stderr).toBe(0);
  return ran.stdout;
};
const suspend = async (name: string): Promise<void> => {
  await hangar.api("POST", `/api/sessions/${name}/suspend`, {});
  await hangar.until(name, "suspended", (s) => s.state === "SUSPENDED");
};

test("init makes no second key; export writes a private file once, and nothing to a screen unasked", async () => {
  const said = JSON.parse(await ok("vault", "init", "--json")) as { created: boolean; file: string };
  expect(said.created).toBe(false);
  await ok("vault", "export", "--out", "backup.txt");
  const backup = join(hangar.dir, "backup.txt");
  expect(await readFile(backup, "utf8")).toBe(await readFile(said.file, "utf8"));
  expect((await stat(backup)).mode & 0o777).toBe(0o600);
  const again = await hangar.cli(["vault", "export", "--out", "backup.txt"]);
  expect(again).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("not overwritten") });
  expect(await ok("vault", "export")).toContain("AGE-SECRET-KEY-1");
});

test("what was made before a rotation opens after it, before and after it is sealed anew", async () => {
  const environment = { name: "app", repo: remote, harness: "script", secrets: ["TOKEN_X"] };
  await hangar.api("PUT", "/api/secrets/TOKEN_X", { value: "the value" });
  await hangar.api("PUT", "/api/environments/app", environment);
  await hangar.api("POST", "/api/sessions", { name: "live", environment: "app" });
  await hangar.api("POST", "/api/sessions", { name: "asleep", environment: "app" });
  await hangar.turn("live", "echo one > kept.txt");
  await hangar.turn("asleep", "echo two > kept.txt");
  await suspend("asleep");

  await ok("vault", "rotate");
  expect((await hangar.turn("live", "cat kept.txt")).summary).toBe("one");
  expect((await hangar.turn("asleep", `cat kept.txt; echo "$TOKEN_X" | wc -c`)).summary).toMatch(/^two\s+10$/);
  await suspend("asleep");

  // A live sandbox goes on sealing to the recipients that it was given; its session's identity opens that.
  const anew = JSON.parse(await ok("vault", "rotate", "--reseal", "--json")) as { retired: string; secrets: number };
  expect(anew).toMatchObject({ secrets: 1, identities: 2 });
  expect((await hangar.turn("live", "echo three >> kept.txt; cat kept.txt")).summary).toBe("one\nthree");
  await suspend("live");
  await hangar.restart();
  expect((await hangar.turn("live", "cat kept.txt")).summary).toBe("one\nthree");
  const back = await hangar.session("live");
  expect(back.restored_from).toMatchObject({ verified: true });
  expect((await hangar.turn("asleep", "cat kept.txt")).summary).toBe("two");

  // The present key alone opens a session's identity, which opens its parts.
  const store = join(hangar.dataDir, "store/sessions", back.id);
  const key = join(hangar.dataDir, "vault/identity.txt");
  expect((await readFile(key, "utf8")).match(/AGE-SECRET-KEY/g)).toHaveLength(1);
  expect((await readFile(anew.retired, "utf8")).match(/AGE-SECRET-KEY/g)).toHaveLength(2);
  const identity = await run("age", ["-d", "-i", key, join(store, "identity.age")]);
  await writeFile(join(hangar.dir, "session.txt"), identity.stdout, { mode: 0o600 });
  const [first = ""] = (await readdir(store)).filter((name) => name.startsWith("ckp-")).sort();
  const meta = await run("age", ["-d", "-i", join(hangar.dir, "session.txt"), join(store, first, "meta.json.age")]);
  expect(JSON.parse(meta.stdout)).toMatchObject({ checkpoint: first });
  expect((await run("age", ["-d", "-i", key, join(store, first, "meta.json.age")])).code).not.toBe(0);
});

test("Redis lost after a rotation: sessions are rebuilt from markers of either key", async () => {
  await hangar.api("POST", "/api/sessions", { name: "plain", repo: remote, harness: "script" });
  await hangar.turn("plain", "echo one > kept.txt");
  await suspend("plain");
  await ok("vault", "rotate");
  await hangar.turn("plain", "echo two >> kept.txt");
  await suspend("plain");
  await hangar.replica.kill("SIGTERM");
  await rm(join(hangar.dataDir, "redis"), { recursive: true });
  await hangar.restart();
  await hangar.until("plain", "rebuilt", (s) => s.state === "SUSPENDED");
  expect((await hangar.turn("plain", "cat kept.txt")).summary).toBe("one\ntwo");
});
