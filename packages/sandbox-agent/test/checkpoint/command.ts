/** `hangar-agent snapshot` and `restore` as a user runs them: a process of their own. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Part, Place } from "./support.ts";

export const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

export interface Run {
  code: number | null;
  report: Record<string, unknown> & { parts: Part[]; outcome: string };
  stdout: string;
  stderr: string;
}
export function agent(here: Place, ...args: string[]): Run {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    cwd: here.folder,
    env: { PATH: process.env["PATH"] ?? "", HOME: here.home, TMPDIR: here.folder },
    encoding: "utf8",
  });
  return { code: status, report: (stdout === "" ? null : JSON.parse(stdout)) as Run["report"], stdout, stderr };
}
