/** A start that cannot succeed: the session says why, in the line that its cause gave. */
import { HangarError } from "@hangar/shared";
import type { ErrorCode } from "@hangar/shared";
import { move, WITHOUT_SANDBOX } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { update } from "./update.ts";

/** Does nothing when that start is over already. */
export async function failStart(deps: Deps, record: SessionRecord, code: ErrorCode, line: string): Promise<void> {
  const { generation, nonce } = record;
  await update(deps, record.id, (now) =>
    now.state === "STARTING" && now.generation === generation && now.nonce === nonce
      ? startFailed(now, deps.clock(), line)
      : null,
  );
  deps.log.warn({ session: record.id, generation, code }, "a session did not start");
}

/**
 * FAILED: the sandbox is destroyed by the next look, unless it took over a folder with work in it, which then stays as the
 * leftover for the next start. A restore that was asked for is given up.
 */
export function startFailed(record: SessionRecord, now: number, line: string): Move {
  const adopted = record.adopting !== null;
  return move(record, "FAILED", now, line, {
    set: {
      ...WITHOUT_SANDBOX,
      sandbox_id: adopted ? null : record.sandbox_id,
      leftover_sandbox: adopted ? record.sandbox_id : record.leftover_sandbox,
      wanted: "down",
      restore_from: null,
      start_failures: record.start_failures + 1,
    },
    dueBy: now,
  });
}

export const startTimeout = (minutes: number): HangarError =>
  new HangarError(
    "start_timeout",
    `The sandbox was not ready after ${minutes} min: see its log, or raise start_timeout_minutes`,
  );
