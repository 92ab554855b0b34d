/** A full disk, by whatever sign it shows. */
import { statfsSync } from "node:fs";
import { HangarError } from "@hangar/shared";

export const diskFull = (near: string, cause?: unknown): HangarError =>
  new HangarError(
    "disk_full",
    `The disk of ${near} is full: free some space and try again`,
    cause === undefined ? {} : { cause },
  );

/** The error, as `disk_full` where that is what the system said while something was written below `folder`. */
export function orDiskFull(error: unknown, folder: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" ? diskFull(folder, error) : error;
}

/** Whether a program that failed, git for one, did so for that. It ran in the C locale and wrote below `folder`. */
export function failedForSpace(stderr: string, folder: string): boolean {
  if (/No space left on device|Disk quota exceeded/.test(stderr)) return true;
  // Git does not always say why it could not write a file.
  return /unable to (?:write|create)/.test(stderr) && isFull(folder);
}

const LEAST = 64 * 1024;

function isFull(folder: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize < LEAST;
  } catch {
    return false;
  }
}
