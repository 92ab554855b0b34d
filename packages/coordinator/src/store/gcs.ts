/**
 * The checkpoint store in a Google Cloud Storage bucket. Sandboxes reach it by signed URLs; the coordinator itself moves
 * small objects, by the XML API.
 *
 * The bucket enforces create-only (`x-goog-if-generation-match: 0`) and the length (`x-goog-content-length-range`), both
 * signed into each upload's URL. It keeps no SHA-256: `head` reads the object once and hashes it.
 */
import type { SignedUrl } from "@hangar/shared";
import { bucketObjects, objectUrl, type Bucket } from "./bucket.ts";
import { signGcsUrl, type GcsIdentity } from "./gcs-signing.ts";
import type { Store } from "./store.ts";

export interface GcsOptions {
  readonly bucket: string;
  /** In front of every key, without slashes at its ends; empty for none. */
  readonly prefix: string;
  readonly identity: GcsIdentity;
  /** `https://storage.googleapis.com` but in tests. */
  readonly endpoint?: string;
  readonly now?: () => number;
}

const LONGEST_SECONDS = 7 * 86_400;

export function openGcsStore(options: GcsOptions): Store {
  const { identity } = options;
  const now = options.now ?? Date.now;
  const bucket: Bucket = {
    name: `gs://${options.bucket}${options.prefix === "" ? "" : `/${options.prefix}`}`,
    base: `${options.endpoint ?? "https://storage.googleapis.com"}/${options.bucket}`,
    prefix: options.prefix,
    async authorize(url, call) {
      const headers = { ...call.headers, authorization: `Bearer ${await identity.token()}` };
      return new Request(url, { ...call, headers });
    },
    versionHeader: "x-goog-generation",
    createHeaders: () => ({ "x-goog-if-generation-match": "0" }),
  };
  async function sign(
    method: "PUT" | "GET",
    key: string,
    headers: Record<string, string>,
    expiresAt: Date,
  ): Promise<SignedUrl> {
    const seconds = Math.floor((expiresAt.getTime() - now()) / 1000);
    const early = Math.max(0, 1 - seconds);
    const url = await signGcsUrl(identity, {
      method,
      url: objectUrl(bucket, key),
      headers,
      seconds: Math.min(Math.max(1, seconds), LONGEST_SECONDS),
      at: new Date(now() - early * 1000),
    });
    return { method, url, headers, expires_at: expiresAt.toISOString() };
  }

  return {
    ...bucketObjects(bucket),
    name: bucket.name,

    async signPut(intent, expiresAt) {
      const headers = {
        "x-goog-content-length-range": `${intent.size},${intent.size}`,
        "x-goog-if-generation-match": "0",
      };
      return await sign("PUT", intent.key, headers, expiresAt);
    },

    signGet: async (key, expiresAt) => await sign("GET", key, {}, expiresAt),
  };
}
