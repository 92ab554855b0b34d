/** Finds programs on a PATH, which is the sandbox's and not the daemon's own. */
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { delimiter, isAbsolute, join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { Harness } from "./harness.ts";

/** The absolute path of an executable; none when PATH has none. */
export async function findProgram(program: string, env: Readonly<Record<string, string>>): Promise<string | null> {
  const folders = isAbsolute(program) ? [""] : (env["PATH"] ?? "").split(delimiter).filter(isAbsolute);
  for (const folder of folders) {
    const path = folder === "" ? program : join(folder, program);
    if (await isExecutable(path)) return path;
  }
  return null;
}

/** Throws `missing_cli`, saying which program and how to install it. */
export async function requireProgram(harness: Harness, env: Readonly<Record<string, string>>): Promise<string> {
  const found = await findProgram(harness.install.program, env);
  if (found !== null) return found;
  throw new HangarError(
    "missing_cli",
    `${harness.title} (${harness.install.program}) is not installed in the sandbox: ${harness.install.hint}`,
  );
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
