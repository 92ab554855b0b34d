/**
 * Takes in a session that another installation exported: registers it, signs where its objects go, and commits it once they
 * are all there as announced. Until then it is nobody's: its record is one that is about to be removed, a day later, so that
 * an import which was cut off leaves nothing.
 */
import { Environment, exportedObjects, HangarError, newSessionId } from "@hangar/shared";
import type { ImportAnswer, ImportRequest } from "@hangar/shared";
import { checkpointKey, identityKey } from "../store/store.ts";
import { checkObjects, publication, writeMarker } from "./commit.ts";
import { remove } from "./end.ts";
import { iso, MINUTE, WITHOUT_SANDBOX } from "./machine.ts";
import { EMPTY_RECORD } from "./record.ts";
import type { Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";
import { update } from "./update.ts";

const DAY = 24 * 60 * MINUTE;
/** Of a marker that no sandbox of this installation had made. */
const NO_NONCE = "0".repeat(32);

/** @throws HangarError `name_taken`; `invalid_request`, `checkpoint_invalid`: the identity is none, or sealed to somebody else. */
export async function beginImport(deps: Deps, owner: string, input: ImportRequest): Promise<ImportAnswer> {
  const { exported } = input;
  const name = input.name ?? exported.session.name;
  await freeName(deps, owner, name);
  const identity = await identityIn(deps, input);
  const id = newSessionId();
  const environment = await makeEnvironment(deps, owner, name, input);
  await deps.store.create(identityKey(id), await deps.vault.seal(new TextEncoder().encode(identity)));
  const record = recordOf(deps, input, { id, owner, name, environment, recipient: await recipientOf(deps, identity) });
  await deps.sessions.create(record, {
    turns: exported.turns.map((turn): TurnRecord => ({ ...ended(turn), timeout_seconds: null, preamble: null })),
    dueBy: record.importing_until,
  });
  const expires = new Date(deps.clock() + (deps.settings.signed_url_minutes ?? 60) * MINUTE);
  const uploads = exportedObjects(exported).map(async ({ checkpoint, file, size, sha256 }) => {
    const url = await deps.store.signPut({ key: checkpointKey(id, checkpoint, file), size, sha256 }, expires);
    return [`${checkpoint}/${file}`, url] as const;
  });
  return { session: id, uploads: Object.fromEntries(await Promise.all(uploads)) };
}

/** Idempotent. @throws HangarError `checkpoint_invalid`, `digest_mismatch`: an object is not there as announced. */
export async function commitImport(
  deps: Deps,
  owner: string,
  id: string,
  input: ImportRequest,
): Promise<SessionRecord> {
  const record = await importing(deps, owner, id);
  if (record.importing_until === 0) return record;
  const { exported } = input;
  await checkObjects(deps, id, exportedObjects(exported));
  const checkpoint: CheckpointRecord = {
    ...exported.checkpoint,
    ts: iso(deps.clock()),
    parent: null,
    new_bytes: exported.checkpoint.bytes,
    meta_file: exported.meta.file,
    meta_sha256: exported.meta.sha256,
    meta_size: exported.meta.size,
    bad: null,
  };
  const status = `Imported: taken at ${exported.checkpoint.ts}, exported at ${exported.exported_at}`;
  const done = { ...record, ending: null, importing_until: 0, status, nonce: NO_NONCE } as const;
  await writeMarker(deps, done, checkpoint);
  const folders = exportedObjects(exported).filter((object) => object.checkpoint !== checkpoint.id);
  return update(deps, id, (present) =>
    present.importing_until === 0
      ? null
      : {
          guard: { rev: present.rev },
          change: {
            ...publication(checkpoint),
            set: {
              ending: null,
              importing_until: 0,
              status,
              restore_from: null,
              // They lie in the folders of checkpoints that this installation never had.
              kept_objects: folders.map(({ checkpoint: folder, file }) => `${folder}/${file}`),
            },
            due: null,
            events: [...(publication(checkpoint).events ?? []), { type: "state", state: "SUSPENDED", status }],
          },
        },
  );
}

/** Takes back one that was begun. Of one that is not there, or was committed: no error, and nothing happens. */
export async function cancelImport(deps: Deps, owner: string, id: string): Promise<void> {
  const record = await deps.sessions.get(id);
  if (record?.owner === owner && record.importing_until > 0) await remove(deps, id, { force: true });
}

async function importing(deps: Deps, owner: string, id: string): Promise<SessionRecord> {
  const record = await deps.sessions.get(id);
  if (record?.owner === owner) return record;
  throw new HangarError("session_not_found", "This import is not known, or was begun more than a day ago: begin again");
}

/** An import of the same name that was cut off makes room. */
async function freeName(deps: Deps, owner: string, name: string): Promise<void> {
  const there = await deps.sessions.find(owner, name);
  if (there === null) return;
  if (there.importing_until > 0) return remove(deps, there.id, { force: true });
  throw new HangarError("name_taken", `A session named "${name}" exists: choose another with --name`);
}

async function identityIn({ vault }: Deps, { identity }: ImportRequest): Promise<string> {
  if ("plain" in identity) return identity.plain;
  const opened = await vault.open(new Uint8Array(Buffer.from(identity.sealed, "base64"))).catch((cause: unknown) => {
    const why = `The export is sealed to somebody else: export it with --recipient ${vault.recipient}`;
    throw new HangarError("checkpoint_invalid", why, { cause });
  });
  return new TextDecoder().decode(opened).trim();
}

async function recipientOf({ vault }: Deps, identity: string): Promise<string> {
  try {
    return await vault.recipientOf(identity);
  } catch (cause) {
    throw new HangarError("invalid_request", "The export's identity is no age identity: it is damaged", { cause });
  }
}

/** Its own, by the session's name: what the exported one said, with the secrets that this installation has to set. */
async function makeEnvironment(deps: Deps, owner: string, name: string, input: ImportRequest): Promise<string> {
  const { session, environment } = input.exported;
  const repo = input.repo ?? session.repo;
  const made = Environment.parse({ ...environment, name, repo, harness: session.harness });
  if (await deps.environments.get(owner, name))
    throw new HangarError("name_taken", `An environment named "${name}" exists: choose another name with --name`);
  return (await deps.environments.put(owner, made, "absent")).name;
}

const ended = (turn: ImportRequest["exported"]["turns"][number]): typeof turn =>
  turn.state === "running" || turn.state === "queued"
    ? { ...turn, state: "interrupted", error: "The session was exported before this turn ended; send it again" }
    : turn;

function recordOf(
  deps: Deps,
  { exported, repo }: ImportRequest,
  of: { id: string; owner: string; name: string; environment: string; recipient: string },
): SessionRecord {
  const { session } = exported;
  const now = deps.clock();
  const { title, harness, model, base_branch, branch, harness_session, idle_minutes, ttl_minutes } = session;
  return {
    ...EMPTY_RECORD,
    ...WITHOUT_SANDBOX,
    ...of,
    title: title === session.name ? of.name : title,
    harness,
    model,
    repo: repo ?? session.repo,
    base_branch,
    branch,
    harness_session,
    idle_minutes,
    ttl_minutes,
    state: "SUSPENDED",
    status: "Being imported",
    state_since: now,
    wanted: "down",
    generation: exported.checkpoint.generation,
    ending: "remove",
    importing_until: now + DAY,
    baseline_due: true,
    last_summary: session.last_summary,
    last_check: session.last_check,
    usage: session.usage,
    job_id: null,
    own_environment: true,
    created_at: session.created_at,
    last_active_at: iso(now),
    updated_at: iso(now),
  };
}
