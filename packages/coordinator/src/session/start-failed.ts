/** A start that cannot succeed: the session says why, in the line that its cause gave. */
import { HangarError, startText } from "@hangar/shared";
import type { ErrorCode } from "@hangar/shared";
import { disposition } from "./leftover.ts";
import type { Disposition } from "./leftover.ts";
import { move, WITHOUT_SANDBOX } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { update } from "./update.ts";

/** Does nothing when that start is over already. */
export async function failStart(deps: Deps, record: SessionRecord, code: ErrorCode, line: string): Promise<void> {
  const { generation, nonce } = record;
  await update(deps, record.id, async (present) =>
    present.state === "STARTING" && present.generation === generation && present.nonce === nonce
      ? startFailed(present, deps.clock(), line, await disposition(deps, present))
      : null,
  );
  deps.log.warn({ session: record.id, generation, code }, "a session did not start");
}

/** FAILED. The next look destroys what is to be destroyed. A restore that was asked for is given up. */
export function startFailed(record: SessionRecord, now: number, line: string, folder: Disposition): Move {
  return move(record, "FAILED", now, line, {
    set: {
      ...WITHOUT_SANDBOX,
      ...folder,
      wanted: "down",
      restore_from: null,
      start_failures: record.start_failures + 1,
    },
    dueBy: now,
  });
}

/** Names what the start hung in. */
export function startTimeout(minutes: number, record: Pick<SessionRecord, "phase" | "status">): HangarError {
  const hung = startText(record.phase, record.status);
  return new HangarError(
    "start_timeout",
    `The sandbox was not ready after ${minutes} min, and hung in: ${hung}. See its log, or raise start_timeout_minutes`,
  );
}
