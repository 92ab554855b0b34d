/** Settings files of harnesses: read, changed and written back as a whole, so that a cut leaves the old or the new one. */
import { randomUUID } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";

type Settings = Record<string, unknown>;

/** Writes `change(what is there)` unless it is the same. A file that is no JSON object counts as empty. */
export async function seedJson(path: string, change: (settings: Settings) => Settings): Promise<void> {
  const before = await settingsIn(path);
  const after = change(before ?? {});
  if (before !== null && isDeepStrictEqual(before, after)) return;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    await writeFile(temporary, `${JSON.stringify(after, null, 2)}\n`, { mode: 0o600 });
    await rename(temporary, path);
  } finally {
    await rm(temporary, { force: true });
  }
}

async function settingsIn(path: string): Promise<Settings | null> {
  try {
    const value: unknown = JSON.parse(await readFile(path, "utf8"));
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Settings) : null;
  } catch {
    return null;
  }
}
