/** Checkpoints that were begun and never acknowledged: published where their marker is there, else swept in time. */
import { checkpointKey, markerKey } from "../store/store.ts";
import { publication } from "./commit.ts";
import { checkpointOf, openKept, readMarker } from "./marker.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

/**
 * A coordinator that died between marker and publication leaves a whole checkpoint that no record names. It is published
 * now, unless a newer sandbox has gone on without it.
 */
export async function rescue(deps: Deps, record: SessionRecord): Promise<void> {
  for (const begun of await deps.sessions.begins(record.id)) {
    if (begun.generation !== record.generation) continue;
    const marker = await readMarker(deps, record.id, begun.checkpoint).catch((error: unknown) => {
      deps.log.warn({ session: record.id, checkpoint: begun.checkpoint, error }, "a marker is not valid");
      return null;
    });
    if (!marker) continue;
    const checkpoint = checkpointOf(marker, await openKept(deps.vault, marker));
    const result = await deps.sessions.change(
      record.id,
      { generation: record.generation, ...(record.nonce !== "" && { nonce: record.nonce }) },
      publication(checkpoint),
    );
    if (result.ok) deps.log.info({ session: record.id, checkpoint: checkpoint.id }, "a whole checkpoint was rescued");
  }
}

/**
 * Deletes what expired begins left in the store without a marker. Answers when the next one expires; none: there is none.
 */
export async function sweep(deps: Deps, record: SessionRecord): Promise<number | null> {
  let next: number | null = null;
  const now = deps.clock();
  const begins = await deps.sessions.begins(record.id);
  if (begins.some(({ expires_at }) => expires_at <= now)) await rescue(deps, record);
  for (const begun of begins) {
    if (begun.expires_at > now) {
      next = Math.min(next ?? begun.expires_at, begun.expires_at);
      continue;
    }
    if ((await deps.store.head(markerKey(record.id, begun.checkpoint))) === null) {
      for (const { file } of begun.objects) await deps.store.delete(checkpointKey(record.id, begun.checkpoint, file));
    }
    await deps.sessions.change(record.id, {}, { endBegin: begun.checkpoint, quiet: true });
  }
  return next;
}
