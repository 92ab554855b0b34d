/** What another installation needs to go on with a session: its newest good checkpoint, its record, its identity. */
import { EXPORT_VERSION, exportedObjects, HangarError } from "@hangar/shared";
import type { CarriedIdentity, ExportAnswer, ExportedSession, ExportRequest } from "@hangar/shared";
import { checkpointKey } from "../store/store.ts";
import { checkAsOf } from "./check.ts";
import { checkpointNow } from "./checkpoint.ts";
import { identityOf } from "./boot.ts";
import { kept } from "./commit.ts";
import { toCheckpoint, toTurn } from "./lookup.ts";
import { isUp, iso, MINUTE } from "./machine.ts";
import { readMarker } from "./marker.ts";
import type { Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord } from "./record.ts";

/**
 * A session that is up is checkpointed first.
 * @throws HangarError `wrong_state`: it has no checkpoint, or is on its way up or down; `checkpoint_failed`; `checkpoint_invalid`.
 */
export async function exportSession(deps: Deps, record: SessionRecord, request: ExportRequest): Promise<ExportAnswer> {
  if (record.state === "STARTING" || record.state === "SUSPENDING") {
    const doing = record.state === "STARTING" ? "starting" : "being suspended";
    throw new HangarError("wrong_state", `The session "${record.name}" is ${doing}: export it in a moment`);
  }
  if (isUp(record.state)) {
    const { outcome } = await checkpointNow(deps, record);
    if (outcome.outcome === "failed") throw new HangarError("checkpoint_failed", `Not exported: ${outcome.error}`);
  }
  const found = await newestGood(deps, record);
  const exported = await describe(deps, record, found);
  const expires = new Date(deps.clock() + (deps.settings.signed_url_minutes ?? 60) * MINUTE);
  const downloads = exportedObjects(exported).map(async ({ checkpoint: folder, file }) => {
    const url = await deps.store.signGet(checkpointKey(record.id, folder, file), expires);
    return [`${folder}/${file}`, url] as const;
  });
  return {
    exported,
    identity: await carried(deps, await identityOf(deps, record), request),
    downloads: Object.fromEntries(await Promise.all(downloads)),
  };
}

interface Found {
  readonly checkpoint: CheckpointRecord;
  readonly isNewest: boolean;
}

async function newestGood(deps: Deps, record: SessionRecord): Promise<Found> {
  const [newest, ...older] = (await deps.sessions.checkpoints(record.id)).toReversed();
  for (const checkpoint of newest ? [newest, ...older] : [])
    if (checkpoint.bad === null && (await readMarker(deps, record.id, checkpoint.id)))
      return { checkpoint, isNewest: checkpoint === newest };
  throw new HangarError("wrong_state", `The session "${record.name}" has no checkpoint that could be exported`);
}

async function describe(deps: Deps, record: SessionRecord, found: Found): Promise<ExportedSession> {
  const { checkpoint } = found;
  const { id, name, title, harness, model, repo, base_branch, branch, harness_session } = record;
  const { idle_minutes, ttl_minutes, last_summary, usage, created_at } = record;
  const session = { id, name, title, harness, model, repo, base_branch, branch, harness_session };
  const { turns, environment } = await kept(deps, record, checkpoint);
  return {
    version: EXPORT_VERSION,
    exported_at: iso(deps.clock()),
    session: {
      ...session,
      idle_minutes,
      ttl_minutes,
      last_summary,
      last_check: checkAsOf(record, { ...found, turns }),
      usage,
      created_at,
    },
    environment,
    turns: turns.map(toTurn),
    checkpoint: toCheckpoint(checkpoint),
    meta: { file: checkpoint.meta_file, size: checkpoint.meta_size, sha256: checkpoint.meta_sha256 },
  };
}

async function carried({ vault }: Deps, identity: string, { recipient }: ExportRequest): Promise<CarriedIdentity> {
  if (recipient === undefined) return { plain: identity };
  const sealed = await vault.sealTo(recipient, new TextEncoder().encode(identity));
  return { sealed: Buffer.from(sealed).toString("base64") };
}
