/** One program run for a user, its output bounded. */
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { HangarError } from "@hangar/shared";
import type { AgentCommand, ExecResult } from "@hangar/shared";
import { isCode } from "./durable.ts";
import { run } from "./process.ts";

export interface ExecPlace {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** Two streams of this size, as base64, fit one frame of the link. */
const MOST_BYTES = 1_400_000;

/**
 * A program that is not there answers 127, one that may not be run 126, as a shell does. Throws `invalid_request` for a
 * folder that is not there.
 */
export async function exec(command: Extract<AgentCommand, { kind: "exec" }>, place: ExecPlace): Promise<ExecResult> {
  const cwd = resolve(place.cwd, command.cwd ?? ".");
  if (!(await isFolder(cwd))) throw new HangarError("invalid_request", `There is no folder ${cwd} in the sandbox`);
  try {
    const ran = await run(command.argv, {
      cwd,
      env: place.env,
      timeoutMs: command.timeout_seconds * 1000,
      maxBytes: Math.min(command.max_bytes, MOST_BYTES),
      signal: place.signal,
    });
    return {
      exit_code: ran.code,
      stdout: ran.stdout.toString("base64"),
      stderr: ran.stderr.toString("base64"),
      truncated: ran.truncated,
      timed_out: ran.timedOut,
    };
  } catch (error) {
    if (isCode(error, "ENOENT")) return notRun(127, `${command.argv[0]}: not found in the sandbox\n`);
    if (isCode(error, "EACCES")) return notRun(126, `${command.argv[0]}: may not be run\n`);
    if (isCode(error, "E2BIG")) return notRun(126, `${command.argv[0]}: the arguments are too long\n`);
    throw error;
  }
}

const notRun = (exit_code: number, said: string): ExecResult => ({
  exit_code,
  stdout: "",
  stderr: Buffer.from(said).toString("base64"),
  truncated: false,
  timed_out: false,
});

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
