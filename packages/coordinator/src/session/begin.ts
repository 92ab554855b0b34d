/** Registers a checkpoint and signs where its objects go. Idempotent by the checkpoint's id. */
import { HangarError } from "@hangar/shared";
import type { BeginAnswer, BeginCheckpoint, DownloadAnswer, DownloadRequest, RenewUploads } from "@hangar/shared";
import { checkpointKey, MARKER_FILE } from "../store/store.ts";
import { present, stale } from "./agent-token.ts";
import { LIVE, MINUTE } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { BeginRecord } from "./record.ts";
import type { AgentIdentity } from "./faces.ts";
import { borrowing } from "./fork.ts";

export async function begin(deps: Deps, agent: AgentIdentity, input: BeginCheckpoint): Promise<BeginAnswer> {
  await present(deps, agent);
  const known = await deps.sessions.begin(agent.session, input.checkpoint);
  if (known && !sameBegin(known, agent, input)) {
    throw new HangarError("object_exists", `The checkpoint ${input.checkpoint} was begun with other objects`);
  }
  const committed = (await deps.sessions.checkpoints(agent.session)).some(({ id }) => id === input.checkpoint);
  if (committed) throw new HangarError("object_exists", `The checkpoint ${input.checkpoint} is committed already`);
  refuseOddFiles(input);
  const record = { ...input, generation: agent.generation, nonce: agent.nonce, expires_at: expiresAt(deps) };
  await register(deps, agent, record);
  return sign(
    deps,
    agent,
    record,
    input.objects.map(({ file }) => file),
  );
}

/** Fresh URLs, for those that expired while bytes were on their way. */
export async function renew(
  deps: Deps,
  agent: AgentIdentity,
  checkpoint: string,
  input: RenewUploads,
): Promise<BeginAnswer> {
  await present(deps, agent);
  const begun = await deps.sessions.begin(agent.session, checkpoint);
  if (begun?.generation !== agent.generation || begun.nonce !== agent.nonce) throw notBegun(checkpoint);
  const record = { ...begun, expires_at: expiresAt(deps) };
  await register(deps, agent, record);
  return sign(deps, agent, record, input.files);
}

export const notBegun = (checkpoint: string): HangarError =>
  new HangarError(
    "checkpoint_not_found",
    `The checkpoint ${checkpoint} was not begun by this sandbox, or too long ago`,
  );

export async function downloads(deps: Deps, agent: AgentIdentity, input: DownloadRequest): Promise<DownloadAnswer> {
  const record = await present(deps, agent);
  // Until it has a checkpoint of its own, a fork reads its parent's.
  const parent = borrowing(record);
  const session = parent?.session ?? agent.session;
  const held = new Set<string>();
  for (const { id, meta_file, parts } of await deps.sessions.checkpoints(session)) {
    if (parent && parent.checkpoint !== id) continue;
    held.add(`${id}/${meta_file}`);
    for (const part of parts) held.add(`${part.from ?? id}/${part.file}`);
  }
  const expires = new Date(urlExpiry(deps));
  const entries = input.objects.map(async ({ checkpoint, file }) => {
    const name = `${checkpoint}/${file}`;
    if (!held.has(name)) {
      throw new HangarError("checkpoint_not_found", `${name} is in no committed checkpoint of this session`);
    }
    return [name, await deps.store.signGet(checkpointKey(session, checkpoint, file), expires)] as const;
  });
  return { downloads: Object.fromEntries(await Promise.all(entries)) };
}

function sameBegin(known: BeginRecord, agent: AgentIdentity, input: BeginCheckpoint): boolean {
  const objects = (list: BeginCheckpoint["objects"]): string =>
    list
      .map(({ file, size, sha256 }) => `${file} ${size} ${sha256}`)
      .toSorted()
      .join("\n");
  return (
    known.generation === agent.generation &&
    known.nonce === agent.nonce &&
    objects(known.objects) === objects(input.objects)
  );
}

/** The marker's name is the coordinator's alone. */
function refuseOddFiles({ objects }: BeginCheckpoint): void {
  const files = objects.map(({ file }) => file);
  if (files.includes(MARKER_FILE) || new Set(files).size !== files.length) {
    throw new HangarError("invalid_request", "A checkpoint's objects need names of their own");
  }
}

async function register(deps: Deps, agent: AgentIdentity, record: BeginRecord): Promise<void> {
  const { generation, nonce } = agent;
  const result = await deps.sessions.change(
    agent.session,
    { from: LIVE, generation, nonce },
    { begin: record, quiet: true },
  );
  if (!result.ok) throw await stale(deps, agent);
}

async function sign(
  deps: Deps,
  agent: AgentIdentity,
  record: BeginRecord,
  files: readonly string[],
): Promise<BeginAnswer> {
  const expires = new Date(urlExpiry(deps));
  const entries = files.map(async (file) => {
    const object = record.objects.find((candidate) => candidate.file === file);
    if (!object) throw new HangarError("invalid_request", `${file} is not among the objects that were begun`);
    const key = checkpointKey(agent.session, record.checkpoint, file);
    return [file, await deps.store.signPut({ key, size: object.size, sha256: object.sha256 }, expires)] as const;
  });
  return { uploads: Object.fromEntries(await Promise.all(entries)) };
}

const urlExpiry = (deps: Deps): number => deps.clock() + (deps.settings.signed_url_minutes ?? 60) * MINUTE;
/** Later than its URLs, so that nothing arrives after the sweep. */
const expiresAt = (deps: Deps): number => urlExpiry(deps) + 60 * MINUTE;
