/**
 * Commit markers. A checkpoint exists when the store holds a marker for it whose MAC is this vault's: who can write to the
 * bucket, but has no vault, can neither make one nor change one nor move one to another session or checkpoint.
 */
import { CommitMarker, HangarError } from "@hangar/shared";
import { canonicalJson } from "./canonical.ts";
import type { Vault } from "./vault.ts";

export interface MarkerContent extends Omit<CommitMarker, "version" | "record" | "mac"> {
  /** What Redis is rebuilt from; any JSON. Sealed to the vault. */
  readonly record: unknown;
}

/** The marker's bytes, to be created at `markerKey`. */
export async function buildMarker(vault: Pick<Vault, "seal" | "mac">, content: MarkerContent): Promise<Uint8Array> {
  const sealed = await vault.seal(new TextEncoder().encode(JSON.stringify(content.record)));
  const unsigned: Omit<CommitMarker, "mac"> = {
    ...content,
    version: 1,
    record: Buffer.from(sealed).toString("base64"),
  };
  const marker = CommitMarker.parse({ ...unsigned, mac: vault.mac("marker", canonicalJson(unsigned)) });
  return new TextEncoder().encode(`${canonicalJson(marker)}\n`);
}

/**
 * The marker that was found in the store for this checkpoint.
 * @throws HangarError `checkpoint_invalid`: malformed, not signed by this vault, or another checkpoint's.
 */
export function verifyMarker(
  vault: Pick<Vault, "verify">,
  bytes: Uint8Array,
  place: { readonly session: string; readonly checkpoint: string },
): CommitMarker {
  const parsed = CommitMarker.safeParse(parse(bytes));
  if (!parsed.success)
    throw new HangarError("checkpoint_invalid", "The commit marker is malformed", { cause: parsed.error });
  const { mac, ...unsigned } = parsed.data;
  if (!vault.verify("marker", canonicalJson(unsigned), mac))
    throw new HangarError("checkpoint_invalid", "The commit marker was not made by this vault, or was changed");
  if (unsigned.session !== place.session || unsigned.checkpoint !== place.checkpoint)
    throw new HangarError("checkpoint_invalid", "The commit marker is another checkpoint's");
  return parsed.data;
}

/** The record within, still to be parsed by its schema. */
export async function openRecord(vault: Pick<Vault, "open">, marker: CommitMarker): Promise<unknown> {
  return parse(await vault.open(Buffer.from(marker.record, "base64")));
}

function parse(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
