/**
 * A sandbox whose processes are gone. Its turn is `interrupted`; its folder, where the driver can still take it over, is
 * kept for the next start; the session is SUSPENDED when anything can be resumed, else FAILED.
 */
import { disposition } from "./leftover.ts";
import type { Disposition } from "./leftover.ts";
import { isLive, iso, MINUTE, move, WITHOUT_SANDBOX } from "./machine.ts";
import type { Move } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { rescue } from "./rescue.ts";
import { endRunning } from "./turn.ts";
import { update } from "./update.ts";

/** Starts in a row that Hangar tries by itself when messages wait. */
const STARTS = 3;

export async function lose(deps: Deps, record: SessionRecord, why: string): Promise<SessionRecord> {
  const { generation, nonce } = record;
  await rescue(deps, record);
  const folder = await disposition(deps, record);
  const after = await update(deps, record.id, async (present) => {
    if (!isLive(present.state) || present.generation !== generation || present.nonce !== nonce) return null;
    return lost(deps, present, folder, why);
  });
  deps.log.warn({ session: record.id, sandbox: record.sandbox_id, why, ...folder }, "a sandbox was lost");
  if (record.sandbox_id !== null) await deps.commands.drop(record.sandbox_id);
  return after;
}

async function lost(deps: Deps, record: SessionRecord, folder: Disposition, why: string): Promise<Move> {
  const { leftover_sandbox: leftover } = folder;
  const now = deps.clock();
  const ended = record.running_turn === null ? {} : await endRunning(deps, record, `${why}.`);
  const counts = await deps.sessions.counts(record.id);
  const { checkpoints } = counts;
  const queued = ended.enqueue?.length ?? counts.queued;
  const failures = record.state === "STARTING" ? record.start_failures + 1 : 0;
  // A start that never came to its end has nothing to lose: it is tried again.
  const untouched = record.state === "STARTING" && failures < STARTS && record.wanted === "up";
  const resumable = checkpoints > 0 || leftover !== null || untouched;
  const again =
    resumable && failures < STARTS && (queued > 0 || (record.state === "STARTING" && record.wanted === "up"));
  const notBefore = failures === 0 ? now : now + Math.min(5000 * 2 ** failures, MINUTE);
  return move(record, resumable ? "SUSPENDED" : "FAILED", now, status(why, leftover, checkpoints, again), {
    ...ended,
    set: {
      ...ended.set,
      ...WITHOUT_SANDBOX,
      ...folder,
      freeze: null,
      wanted: again ? "up" : "down",
      start_failures: failures,
      start_not_before: notBefore,
      last_active_at: iso(now),
    },
    due: again ? notBefore : null,
    ...((folder.sandbox_id !== null || record.ending !== null) && { dueBy: now }),
  });
}

function status(why: string, leftover: string | null, checkpoints: number, again: boolean): string {
  if (leftover !== null) return `${why}; the next open takes over its folder`;
  if (checkpoints > 0) return `${why}; the next open restores the last checkpoint`;
  if (again) return `${why}; it is started again`;
  return `${why} before anything of it was kept`;
}
