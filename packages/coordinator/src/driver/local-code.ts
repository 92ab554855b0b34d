/**
 * The daemon's compiled code, made once for all sandboxes: without it a start spends twice the time on loading modules.
 * Sandboxes read it and cannot change it, so none can slip another one code.
 */
import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { AGENT_ENV, AGENT_NODE_FLAGS } from "@hangar/shared";
import type { HostEnvironment } from "./local-env.ts";

export interface Code {
  readonly folder: string;
  /** Ends the making of it, where that is still under way. */
  stop(): void;
}

/** Starts making it in the background. A sandbox that starts before it is done, or where it failed, is only slower. */
export function warmCode(agent: string, folder: string, env: HostEnvironment): Code {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const child = execFile(
    process.execPath,
    // Code compiled under other flags is not taken.
    [...AGENT_NODE_FLAGS, agent, "warm"],
    { env: { PATH: env["PATH"] ?? "", [AGENT_ENV.code]: folder }, timeout: 60_000 },
    () => undefined,
  );
  return { folder, stop: () => void child.kill() };
}
