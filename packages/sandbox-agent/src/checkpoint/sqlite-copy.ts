/** A consistent copy of a SQLite store that its program may be writing to, without writing beside it. */
import { constants as fs, copyFileSync, existsSync, lstatSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { backup, DatabaseSync } from "node:sqlite";
import { stampOf } from "./conversation-scan.ts";

/**
 * Copies the store to `destination` (which is not there yet). With nothing in a log beside it, byte for byte; else what a
 * reader would see now, as one file.
 * @returns false: it is no SQLite store that can be read; `destination` then holds the bytes of the file alone.
 */
export async function copySqlite(source: Buffer, destination: string): Promise<boolean> {
  if (!(await copyStill(source, destination))) {
    removeCopy(destination);
    // Always being written: SQLite's own backup, under its locks. In one step, for between steps every write by another
    // program makes it start over, and one that writes without a pause would have it start over for ever.
    const live = new DatabaseSync(source, { readOnly: true, timeout: 5000 });
    try {
      await backup(live, destination, { rate: 0x7fff_ffff });
    } finally {
      live.close();
    }
    return true;
  }
  if (!existsSync(`${destination}-wal`) && !existsSync(`${destination}-journal`)) return true;
  return await merge(destination);
}

/** Copies file and logs; true when none of them changed meanwhile, so that the set is what a crash would have left. */
async function copyStill(source: Buffer, destination: string): Promise<boolean> {
  for (let attempt = 0; attempt < 5; attempt++) {
    const before = look(source);
    for (const suffix of before.suffixes)
      copyFileSync(Buffer.concat([source, Buffer.from(suffix)]), `${destination}${suffix}`, fs.COPYFILE_FICLONE);
    if (look(source).stamp === before.stamp) return true;
    removeCopy(destination);
    await sleep(20 * (attempt + 1));
  }
  return false;
}

function look(source: Buffer): { stamp: string; suffixes: string[] } {
  const suffixes: string[] = [];
  const stats = [];
  for (const suffix of ["", "-wal", "-journal"]) {
    const stat = lstatSync(Buffer.concat([source, Buffer.from(suffix)]), { bigint: true, throwIfNoEntry: false });
    if (stat === undefined || !stat.isFile() || (suffix !== "" && stat.size === 0n)) continue;
    suffixes.push(suffix);
    stats.push(stat);
  }
  return { stamp: stampOf(stats), suffixes };
}

/** Lets SQLite recover the copy from its logs and write it anew as one file. */
async function merge(copy: string): Promise<boolean> {
  const merged = `${copy}.merged`;
  try {
    const store = new DatabaseSync(copy);
    try {
      store.prepare("PRAGMA schema_version").get();
      await backup(store, merged, { rate: 10_000 });
    } finally {
      store.close();
    }
    removeCopy(copy);
    copyFileSync(merged, copy, fs.COPYFILE_FICLONE);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(merged, { force: true });
    for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(`${copy}${suffix}`, { force: true });
  }
}

function removeCopy(path: string): void {
  for (const suffix of ["", "-wal", "-shm", "-journal"]) rmSync(`${path}${suffix}`, { force: true });
}
