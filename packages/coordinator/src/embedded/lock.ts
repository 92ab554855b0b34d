/**
 * One owner of a data folder. The lock itself is the operating system's (held through a SQLite file, the one portable file
 * lock that Node has): it ends with its process, however that ends, so a stale one cannot exist and two cannot race.
 * A file beside it names the owner, for people.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError } from "@hangar/shared";
import { identify, isAlive, ProcessIdentity } from "./process.ts";

export interface Lock {
  /** Gives it back. Twice: no error. */
  release(): void;
}

/** `hangar up`'s lock on its data folder. HangarError `in_use` names the owner's pid. */
export function lockDataFolder(dataDir: string): Lock {
  const path = `${dataDir}/lock`;
  const lock = tryLock(path);
  if (lock) {
    writeOwner(path);
    return { release: () => (rmSync(`${path}.owner`, { force: true }), lock.release()) };
  }
  const owner = ownerOf(path);
  throw new HangarError(
    "in_use",
    `another Hangar${owner ? ` (pid ${owner.pid})` : ""} uses ${dataDir}: stop it with \`hangar down\`, or give this one a folder of its own with HANGAR_DATA_DIR`,
  );
}

/** Waits for a lock that is held for moments only. HangarError `timeout` after `ms`. */
export async function lockWithin(path: string, ms: number): Promise<Lock> {
  const end = performance.now() + ms;
  for (;;) {
    const lock = tryLock(path);
    if (lock) return lock;
    if (performance.now() > end) throw new HangarError("timeout", `${path} is held by another process`);
    await sleep(20);
  }
}

/** The process that holds the data folder's lock; none when nobody does. */
export function dataFolderOwner(dataDir: string): ProcessIdentity | null {
  const owner = ownerOf(`${dataDir}/lock`);
  return owner && isAlive(owner) ? owner : null;
}

/** None: another holder has it, in this process or another. */
function tryLock(path: string): Lock | null {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === 5) return null;
    throw error;
  }
  held.add(database);
  return {
    release: () => {
      if (held.delete(database)) database.close();
    },
  };
}
/** A database that is garbage-collected is closed, and its lock with it: a caller may forget a lock, but not lose it. */
const held = new Set<DatabaseSync>();

function writeOwner(path: string): void {
  writeFileSync(`${path}.owner.tmp`, JSON.stringify(identify(process.pid)), { mode: 0o600 });
  renameSync(`${path}.owner.tmp`, `${path}.owner`);
}

function ownerOf(path: string): ProcessIdentity | null {
  try {
    return ProcessIdentity.parse(JSON.parse(readFileSync(`${path}.owner`, "utf8")));
  } catch {
    return null;
  }
}
