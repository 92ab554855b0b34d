import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Homes, names, settled } from "./conversation-support.ts";

const STORE = ".gemini/antigravity-cli/conversations/one.db";
let homes: Homes;
beforeEach(async () => {
  homes = await Homes.open();
  await mkdir(dirname(homes.at(STORE)), { recursive: true });
});
afterEach(async () => {
  await homes.close();
});

function rows(path: string): number {
  const store = new DatabaseSync(path, { readOnly: true });
  try {
    expect(store.prepare("PRAGMA integrity_check").get()).toEqual({ integrity_check: "ok" });
    return Number(store.prepare("SELECT count(*) AS n FROM message").get()?.["n"]);
  } finally {
    store.close();
  }
}

function filled(path: string, journal: "wal" | "delete", count: number): DatabaseSync {
  const store = new DatabaseSync(path);
  store.exec(`PRAGMA journal_mode=${journal}; CREATE TABLE message (text TEXT)`);
  const insert = store.prepare("INSERT INTO message VALUES (?)");
  for (let i = 0; i < count; i++) insert.run("x".repeat(500));
  return store;
}

it("keeps a store at rest byte for byte, and sends it again only when it changed", async () => {
  filled(homes.at(STORE), "delete", 50).close();
  const first = await homes.checkpoint("1");
  expect((await readFile(join(await homes.restore(first.record), STORE))).equals(await readFile(homes.at(STORE)))).toBe(
    true,
  );
  for (const parent of [first.record, settled(first.record)]) {
    const again = await homes.checkpoint("2", parent);
    expect([again.changed, again.entries]).toEqual([false, []]);
  }
});

it("keeps what is only in the log of a store that is open, as one file, and writes nothing beside the original", async () => {
  const store = filled(homes.at(STORE), "wal", 50);
  const before = (await readdir(dirname(homes.at(STORE)))).sort();
  expect(before).toContain("one.db-wal");
  const first = await homes.checkpoint("1");
  expect(names(first)).toEqual([STORE]);
  expect((await readdir(dirname(homes.at(STORE)))).sort()).toEqual(before);
  const home = await homes.restore(first.record);
  expect(await readdir(dirname(join(home, STORE)))).toEqual(["one.db"]);
  expect(rows(join(home, STORE))).toBe(50);
  store.exec("INSERT INTO message VALUES ('more')");
  const second = await homes.checkpoint("2", settled(first.record));
  expect(second.changed).toBe(true);
  expect(rows(join(await homes.restore(second.record), STORE))).toBe(51);
  const third = await homes.checkpoint("3", settled(second.record));
  expect(third.changed).toBe(false);
  store.close();
});

it("copies a store whole while another program writes to it without a pause", async () => {
  const script = `const { DatabaseSync } = require("node:sqlite"); const s = new DatabaseSync(process.argv[1], { timeout: 5000 });
    s.exec("PRAGMA journal_mode=wal; CREATE TABLE message (text TEXT)"); console.log("ready");
    for (const end = Date.now() + 40000; Date.now() < end; ) { s.exec("BEGIN"); for (let i = 0; i < 10; i++) s.exec("INSERT INTO message VALUES (hex(randomblob(300)))"); s.exec("COMMIT"); }`;
  const writer = spawn(process.execPath, ["-e", script, homes.at(STORE)], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    await once(writer.stdout, "data");
    for (let i = 0; i < 3; i++) {
      const { record } = await homes.checkpoint(String(i));
      const count = rows(join(await homes.restore(record), STORE));
      expect(count % 10).toBe(0);
    }
  } finally {
    writer.kill("SIGKILL");
  }
});

it("recovers what a program that was killed left in its log", async () => {
  const script = `const { DatabaseSync } = require("node:sqlite"); const s = new DatabaseSync(process.argv[1]);
    s.exec("PRAGMA journal_mode=wal; CREATE TABLE message (text TEXT)");
    for (let i = 0; i < 30; i++) s.exec("INSERT INTO message VALUES ('x')"); process.kill(process.pid, "SIGKILL");`;
  const writer = spawn(process.execPath, ["-e", script, homes.at(STORE)]);
  await once(writer, "close");
  const { record, warnings } = await homes.checkpoint("1");
  expect(warnings).toEqual([]);
  expect(rows(join(await homes.restore(record), STORE))).toBe(30);
});

it("keeps the bytes of a file that only looks like a store, and says so", async () => {
  await writeFile(homes.at(STORE), "no database");
  await writeFile(homes.at(`${STORE}-wal`), "no log");
  const { record, warnings } = await homes.checkpoint("1");
  expect(warnings).toEqual([expect.stringContaining("no SQLite store")]);
  expect(await readFile(join(await homes.restore(record), STORE), "utf8")).toBe("no database");
});
