/**
 * The commit marker: what makes a checkpoint exist. It carries the session's record, sealed to the vault, so that a session
 * is rebuilt from its store alone.
 */
import { gunzipSync, gzipSync } from "node:zlib";
import { CommitMarker, HangarError } from "@hangar/shared";
import type { Environment } from "@hangar/shared";
import { markerKey } from "../store/store.ts";
import type { Deps, Vault } from "./ports.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";

/** What a session is rebuilt from. Turns are the newest ones, cut short. */
export interface KeptRecord {
  readonly session: SessionRecord;
  readonly turns: readonly TurnRecord[];
  readonly checkpoint: Omit<CheckpointRecord, "parts">;
  readonly environment: Environment | null;
}

/** What a store reads at once: a marker beyond it could be written and never be read. */
const MAX_MARKER = 1024 * 1024;

type Unsigned = Omit<CommitMarker, "mac">;

export async function makeMarker(
  vault: Vault,
  of: { session: string; nonce: string; checkpoint: CheckpointRecord; kept: KeptRecord },
): Promise<Uint8Array> {
  const { checkpoint } = of;
  const marker: Unsigned = {
    version: 1,
    session: of.session,
    checkpoint: checkpoint.id,
    generation: checkpoint.generation,
    nonce: of.nonce,
    committed_at: checkpoint.ts,
    meta: { file: checkpoint.meta_file, size: checkpoint.meta_size, sha256: checkpoint.meta_sha256 },
    parts: checkpoint.parts,
    record: Buffer.from(await vault.seal(gzipSync(JSON.stringify(of.kept)))).toString("base64"),
  };
  const bytes = new TextEncoder().encode(JSON.stringify({ ...marker, mac: vault.mac("marker", canonical(marker)) }));
  if (bytes.length <= MAX_MARKER) return bytes;
  throw new HangarError("checkpoint_invalid", `The checkpoint has too many parts (${checkpoint.parts.length})`);
}

/** The marker, where it is there and Hangar made it for this very checkpoint; none where there is none. `checkpoint_invalid`. */
export async function readMarker(
  deps: Pick<Deps, "store" | "vault">,
  session: string,
  checkpoint: string,
): Promise<CommitMarker | null> {
  const bytes = await deps.store.read(markerKey(session, checkpoint));
  if (bytes === null) return null;
  const parsed = CommitMarker.safeParse(parseJson(bytes));
  if (parsed.success && parsed.data.session === session && parsed.data.checkpoint === checkpoint) {
    const { mac, ...unsigned } = parsed.data;
    if (deps.vault.verify("marker", canonical(unsigned), mac)) return parsed.data;
  }
  throw new HangarError(
    "checkpoint_invalid",
    `The marker of ${checkpoint} is damaged or was not written by this Hangar`,
  );
}

/** The same marker under the present identity. None: it is. */
export async function remakeMarker(
  vault: Vault,
  bytes: Uint8Array,
  of: { session: string; checkpoint: string },
): Promise<Uint8Array | "forged" | null> {
  const parsed = CommitMarker.safeParse(parseJson(bytes));
  if (!parsed.success || parsed.data.session !== of.session || parsed.data.checkpoint !== of.checkpoint)
    return "forged";
  const { mac, ...unsigned } = parsed.data;
  if (!vault.verify("marker", canonical(unsigned), mac)) return "forged";
  const record = await vault.reseal(Buffer.from(unsigned.record, "base64"));
  if (record === null && vault.isCurrent("marker", canonical(unsigned), mac)) return null;
  const anew = { ...unsigned, record: record === null ? unsigned.record : Buffer.from(record).toString("base64") };
  return new TextEncoder().encode(JSON.stringify({ ...anew, mac: vault.mac("marker", canonical(anew)) }));
}

export async function openKept(vault: Vault, marker: CommitMarker): Promise<KeptRecord> {
  const plain = gunzipSync(await vault.open(new Uint8Array(Buffer.from(marker.record, "base64"))));
  return JSON.parse(plain.toString("utf8")) as KeptRecord;
}

/** The checkpoint as the session's record has it. */
export const checkpointOf = (marker: CommitMarker, kept: KeptRecord): CheckpointRecord => ({
  ...kept.checkpoint,
  parts: marker.parts,
});

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}

/** Keys sorted at every level: the same text whoever wrote the object. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  );
}
