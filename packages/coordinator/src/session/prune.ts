/**
 * Keeps the newest checkpoints: those taken at intervals are counted apart from the others. An object that a kept
 * checkpoint refers to stays, whoever's folder it lies in. A checkpoint's marker goes first, so that what is half gone is
 * no checkpoint.
 */
import { checkpointKey, markerKey } from "../store/store.ts";
import type { Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord } from "./record.ts";
import { update } from "./update.ts";

export async function prune(deps: Deps, id: string): Promise<void> {
  const checkpoints = await deps.sessions.checkpoints(id);
  const record = await deps.sessions.get(id);
  if (!record) return;
  const dropped = toDrop(record, checkpoints, deps.settings.session_keep_checkpoints);
  await drop(deps, id, dropped);
}

/** The oldest ones beyond `keep` of each kind, but for those that a sandbox was or is to be restored from. */
export function toDrop(
  record: Pick<SessionRecord, "restore_from" | "restored_from" | "freeze" | "forks_waiting">,
  checkpoints: readonly CheckpointRecord[],
  keep: number,
): CheckpointRecord[] {
  const interval = checkpoints.filter(({ reason }) => reason === "interval");
  const others = checkpoints.filter(({ reason }) => reason !== "interval");
  const old = [...interval.slice(0, -keep), ...others.slice(0, -keep)];
  const needed = new Set([
    record.restore_from,
    record.freeze?.restore,
    record.restored_from?.checkpoint,
    ...record.forks_waiting.map(({ checkpoint }) => checkpoint),
  ]);
  return old.filter(({ id }) => !needed.has(id));
}

/** Takes checkpoints off the record, then out of the store. What a crash leaves is on the record for the next time. */
export async function drop(deps: Deps, id: string, dropped: readonly CheckpointRecord[]): Promise<void> {
  const gone = new Set(dropped.map((checkpoint) => checkpoint.id));
  const record = await update(deps, id, (record) => {
    if (gone.size === 0) return null;
    const objects = new Set([...record.kept_objects, ...dropped.flatMap(ownObjects)]);
    return {
      guard: { rev: record.rev },
      change: { dropCheckpoints: [...gone], set: { kept_objects: [...objects] } },
    };
  });
  for (const checkpoint of gone) await deps.store.delete(markerKey(id, checkpoint));
  if (record.kept_objects.length === 0) return;

  // A checkpoint that is being committed may refer to what the newest committed one refers to, and to nothing else.
  const referred = new Set((await deps.sessions.checkpoints(id)).flatMap(allObjects));
  const free = record.kept_objects.filter((name) => !referred.has(name));
  for (const name of free) {
    const [checkpoint = "", file = ""] = name.split("/");
    await deps.store.delete(markerKey(id, checkpoint));
    await deps.store.delete(checkpointKey(id, checkpoint, file));
  }
  if (free.length === 0) return;
  const deleted = new Set(free);
  await update(deps, id, (record) => ({
    guard: { rev: record.rev },
    change: { set: { kept_objects: record.kept_objects.filter((name) => !deleted.has(name)) } },
  }));
}

const allObjects = ({ id, parts, meta_file }: CheckpointRecord): string[] => [
  `${id}/${meta_file}`,
  ...parts.map((part) => `${part.from ?? id}/${part.file}`),
];
const ownObjects = (checkpoint: CheckpointRecord): string[] =>
  allObjects(checkpoint).filter((name) => name.startsWith(`${checkpoint.id}/`));
