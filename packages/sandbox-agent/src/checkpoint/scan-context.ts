/** What the readers of a working tree share. */
import { closeSync, fstatSync, openSync, readFileSync, type Stats, statSync } from "node:fs";
import type { ConfigEntry } from "./git-config.ts";
import type { Memory } from "./memory.ts";
import { fsPath, type Raw } from "./raw.ts";

export interface ScanContext {
  readonly home: string;
  readonly memory: Memory;
  /** A folder for scratch repositories, kept as long as the memory. */
  readonly scratch: Raw;
  /** Settings of the home's git configuration that say what is ignored and converted. */
  readonly userConfig: readonly ConfigEntry[];
  readonly warnings: Set<string>;
  /** Files that could not be read, by their path below the repo. */
  readonly unreadable: Map<string, number>;
  /** Absolute paths and sizes of files that a filter of the image made just now: what a restore left to it. */
  readonly filtered: ReadonlyMap<Raw, number>;
  readonly signal?: AbortSignal | undefined;
}

/** Equal stamps: the same file, unless it changed just now. Empty: not there. */
export function stampOf(path: Raw): string {
  const s = statSync(fsPath(path), { throwIfNoEntry: false });
  return s ? stampOfStat(s) : "";
}
export const stampOfStat = (s: Stats): string => `${s.ino} ${s.size} ${s.mtimeMs} ${s.ctimeMs}`;

/** A file's bytes and what it was when they were read; none: it is not there. */
export function readAtOnce(path: Raw): { bytes: Buffer; stat: Stats } | null {
  let fd: number;
  try {
    fd = openSync(fsPath(path), "r");
  } catch {
    return null;
  }
  try {
    return { stat: fstatSync(fd), bytes: readFileSync(fd) };
  } finally {
    closeSync(fd);
  }
}

export const isFresh = (path: Raw): boolean => {
  const s = statSync(fsPath(path), { throwIfNoEntry: false });
  return s !== undefined && Date.now() - s.ctimeMs < 2000;
};

export function readIfThere(path: Raw): Buffer | null {
  try {
    return readFileSync(fsPath(path));
  } catch {
    return null;
  }
}
