/** A checkpoint on demand, and going back to an older one. */
import { CheckpointOutcome, HangarError, newCommandId, newNonce } from "@hangar/shared";
import type { Checkpoint } from "@hangar/shared";
import { ask } from "./ask.ts";
import { toCheckpoint } from "./lookup.ts";
import { isUp, start } from "./machine.ts";
import { refuseArchived } from "./open.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { startSuspend } from "./suspend.ts";
import { update } from "./update.ts";

const WAIT_SECONDS = 1800;

/** Waits for the outcome. One that is not needed is not taken. */
export async function checkpointNow(
  deps: Deps,
  record: SessionRecord,
): Promise<{ outcome: CheckpointOutcome; checkpoint: Checkpoint | null }> {
  refuseArchived(record);
  const answer = await ask(deps, record, newCommandId(), WAIT_SECONDS, {
    kind: "checkpoint",
    reason: "manual",
    if_changed: true,
  });
  const outcome = CheckpointOutcome.safeParse(answer);
  if (!outcome.success) throw new HangarError("checkpoint_failed", "The sandbox gave an answer that makes no sense");
  if (outcome.data.outcome === "failed") return { outcome: outcome.data, checkpoint: null };
  const { checkpoint } = outcome.data;
  const found = (await deps.sessions.checkpoints(record.id)).find(({ id }) => id === checkpoint);
  return { outcome: outcome.data, checkpoint: found ? toCheckpoint(found) : null };
}

/**
 * Goes back to a checkpoint in a new sandbox. What is there now is checkpointed first, and so can be gone back to as well;
 * where that fails, nothing happens.
 */
export async function restore(deps: Deps, id: string, checkpoint: string): Promise<SessionRecord> {
  const before = await deps.sessions.get(id);
  if (!before) throw new HangarError("session_not_found", "The session is gone");
  refuseArchived(before);
  await known(deps, before, checkpoint);
  refuseBusy(before);
  if (before.state === "IDLE") {
    const { outcome } = await checkpointNow(deps, before);
    if (outcome.outcome === "failed") {
      throw new HangarError("checkpoint_failed", `What is there now could not be kept first: ${outcome.error}`);
    }
  }
  // Since the manual checkpoint, pruning may have passed.
  await known(deps, before, checkpoint);
  return update(deps, id, (record) => {
    refuseArchived(record);
    refuseBusy(record);
    const now = deps.clock();
    if (record.state !== "IDLE") return start(record, now, newNonce(), { set: { restore_from: checkpoint } });
    const { guard, change } = startSuspend(record, now, {
      reason: "suspend",
      push: false,
      force: false,
      accept_loss: true,
      auto: false,
      restore: checkpoint,
      why: `Going back to ${checkpoint}`,
    });
    return { guard, change: { ...change, set: { ...change.set, wanted: "up" } } };
  });
}

async function known(deps: Deps, record: SessionRecord, checkpoint: string): Promise<void> {
  const checkpoints = await deps.sessions.checkpoints(record.id);
  if (checkpoints.some(({ id }) => id === checkpoint)) return;
  throw new HangarError(
    "checkpoint_not_found",
    `"${record.name}" has no checkpoint ${checkpoint}: see \`hangar session checkpoints ${record.name}\``,
  );
}

function refuseBusy(record: SessionRecord): void {
  if (isUp(record.state) && record.state === "IDLE") return;
  if (record.state === "SUSPENDED" || record.state === "FAILED") return;
  throw new HangarError(
    "wrong_state",
    `The session "${record.name}" is ${record.state}: go back to a checkpoint when it is IDLE or SUSPENDED`,
  );
}
