/** `<data_dir>/hangar.json` (0600): where the CLI finds the running Hangar and the administrator's token. */
import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { ClientConfig } from "@hangar/shared";

/** None: there is none yet, or it is damaged, which is the same: a new one takes its place. */
export function readClientConfig(dataDir: string): ClientConfig | null {
  try {
    return ClientConfig.parse(JSON.parse(readFileSync(pathOf(dataDir), "utf8")));
  } catch {
    return null;
  }
}

/** Whole or not at all, and readable by its owner alone from the start. */
export function writeClientConfig(dataDir: string, config: ClientConfig): void {
  const path = pathOf(dataDir);
  const temporary = `${path}.${process.pid}.tmp`;
  const file = openSync(temporary, "w", 0o600);
  try {
    writeSync(file, `${JSON.stringify(config, null, 2)}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(temporary, path);
}

/** 256 bits, URL-safe. */
export const newToken = (): string => randomBytes(32).toString("base64url");

const pathOf = (dataDir: string): string => join(dataDir, "hangar.json");
