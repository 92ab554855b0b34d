/** The volume store's signed URLs: one object, one method, until a time; for a PUT also the length and the digest. */
import { HangarError, Sha256, type SignedUrl } from "@hangar/shared";
import type { Vault } from "../vault/vault.ts";
import { checkKey } from "./keys.ts";
import type { PutIntent } from "./store.ts";

export const STORE_PATH = "/store";

export type UrlSigner = Pick<Vault, "mac" | "verify">;
export type Grant =
  | { readonly method: "GET"; readonly key: string }
  | { readonly method: "PUT"; readonly key: string; readonly size: number; readonly sha256: string };

export function signPut(signer: UrlSigner, base: string, intent: PutIntent, expiresAt: Date): SignedUrl {
  checkKey(intent.key);
  const { key, size, sha256 } = intent;
  const query = { size: String(size), sha256, expires: String(expiresAt.getTime()) };
  return signed(signer, base, "PUT", key, query, expiresAt);
}

export function signGet(signer: UrlSigner, base: string, key: string, expiresAt: Date): SignedUrl {
  checkKey(key);
  return signed(signer, base, "GET", key, { expires: String(expiresAt.getTime()) }, expiresAt);
}

/**
 * What a request may do.
 * @throws HangarError `forbidden` for a URL that was not signed here or not for that method; `url_expired`.
 */
export function granted(signer: UrlSigner, method: string, url: URL, now: number): Grant {
  const key = url.pathname.slice(STORE_PATH.length + 1);
  const query = Object.fromEntries(url.searchParams);
  const { sig = "", ...said } = query;
  if (!signer.verify("url", toSign(method, key, said), sig))
    throw new HangarError("forbidden", "That URL was not signed here, or not for that");
  if (Number(said["expires"]) <= now) throw new HangarError("url_expired");
  checkKey(key);
  if (method === "GET") return { method, key };
  if (method === "PUT") return { method, key, size: Number(said["size"]), sha256: Sha256.parse(said["sha256"]) };
  throw new HangarError("method_not_allowed");
}

function signed(
  signer: UrlSigner,
  base: string,
  method: "GET" | "PUT",
  key: string,
  query: Record<string, string>,
  expiresAt: Date,
): SignedUrl {
  const sig = signer.mac("url", toSign(method, key, query));
  return {
    method,
    url: `${base}${STORE_PATH}/${key}?${new URLSearchParams({ ...query, sig }).toString()}`,
    headers: {},
    expires_at: expiresAt.toISOString(),
  };
}

/** Every field, named, in one order, a newline between: no two grants say the same. */
const toSign = (method: string, key: string, query: Readonly<Record<string, string>>): string =>
  [
    "hangar-store-url-1",
    method,
    key,
    ...Object.entries(query)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => `${name}=${value}`),
  ].join("\n");
