/** The environment's setup script, run in the fresh clone before anything is restored. */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { Redactor } from "@hangar/shared";
import { run } from "./process.ts";
import type { Environment } from "./sandbox-env.ts";

export interface SetupInput {
  readonly script: string;
  readonly cwd: string;
  readonly env: Environment;
  readonly state: string;
  readonly redact: Redactor;
  readonly signal: AbortSignal;
}

const SHOWN_LINES = 12;

/** Its whole output is in `setup.log` of the state folder. Throws `setup_failed` with the exit code and the last lines. */
export async function runSetup({ script, cwd, env, state, redact, signal }: SetupInput): Promise<void> {
  const folder = join(state, "setup");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, "setup.sh");
  writeFileSync(file, script, { mode: 0o700 });
  chmodSync(file, 0o700);
  // Both streams in the order they came, as a person at a terminal would have read them.
  const command = `exec >"$0" 2>&1 </dev/null; ${interpreter(script)}`;
  const log = join(folder, "setup.log");
  const ran = await run(["/bin/sh", "-c", command, log, file], { cwd, env, signal });
  signal.throwIfAborted();
  if (ran.code === 0) return;
  const said = redact.excerpt(await tail(log));
  const lines = said.split("\n").slice(-SHOWN_LINES).join("\n");
  throw new HangarError(
    "setup_failed",
    `The setup script ended with ${ran.code}${said === "" ? " and said nothing" : `: ${lines}`}`,
  );
}

/** A script that says its interpreter gets it; another is a shell script that stops at the first failure. */
const interpreter = (script: string): string => (script.startsWith("#!") ? 'exec "$1"' : 'exec /bin/sh -e "$1"');

async function tail(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const from = Math.max(0, size - 4000);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
    return buffer.subarray(0, bytesRead).toString("utf8").trim();
  } finally {
    await file.close();
  }
}
