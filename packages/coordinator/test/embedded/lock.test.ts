import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { dataFolderOwner, lockDataFolder, lockWithin } from "../../src/embedded/lock.ts";

const LOCK = new URL("../../src/embedded/lock.ts", import.meta.url).href;
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "hangar-lock-"));
});
afterEach(() => rm(dir, { recursive: true }));

/** A process that takes the folder's lock, says "mine" or the error, and stays until it is killed. */
async function holder() {
  const child = spawn(process.execPath, [
    "--input-type=module",
    "-e",
    `import { lockDataFolder } from ${JSON.stringify(LOCK)};
     try { lockDataFolder(${JSON.stringify(dir)}); console.log("mine"); setInterval(() => {}, 1000); }
     catch (error) { console.log(error.code + " " + error.message); }`,
  ]);
  const [said] = await once(child.stdout, "data");
  return { child, said: String(said).trim() };
}

test("a second owner is refused with the first one's pid; a killed owner's lock is free at once", async () => {
  const first = await holder();
  expect(first.said).toBe("mine");
  expect(dataFolderOwner(dir)?.pid).toBe(first.child.pid);
  expect(() => lockDataFolder(dir)).toThrow(`another Hangar (pid ${first.child.pid}) uses ${dir}`);

  first.child.kill("SIGKILL");
  await once(first.child, "exit");
  expect(dataFolderOwner(dir)).toBeNull();
  const lock = lockDataFolder(dir);
  expect((await holder()).said).toMatch(new RegExp(`^in_use another Hangar \\(pid ${process.pid}\\)`));
  lock.release();
  lock.release();
});

test("of several that start at once over a dead owner's lock, exactly one gets it", async () => {
  const dead = await holder();
  dead.child.kill("SIGKILL");
  await once(dead.child, "exit");
  const rivals = await Promise.all(Array.from({ length: 6 }, holder));
  for (const { child } of rivals) child.kill("SIGKILL");
  expect(rivals.filter(({ said }) => said === "mine")).toHaveLength(1);
  expect(rivals.filter(({ said }) => said.startsWith("in_use"))).toHaveLength(5);
});

test("a lock held for a moment is waited for, one held for long is reported", async () => {
  const path = join(dir, "moment");
  const first = await lockWithin(path, 0);
  await expect(lockWithin(path, 60)).rejects.toMatchObject({ code: "timeout" });
  const second = lockWithin(path, 30_000);
  first.release();
  (await second).release();
});
