/**
 * What the XML protocols of S3 and of Google Cloud Storage have in common: objects of a bucket by HTTP, each request signed
 * or authorized by whoever asks.
 */
import { createHash } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { checkKey, checkPrefix } from "./keys.ts";
import type { ObjectInfo, Store } from "./store.ts";

export interface Call {
  readonly method?: "PUT" | "HEAD" | "DELETE";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer>;
}

export interface Bucket {
  readonly name: string;
  /** Where the bucket is, without a slash at the end. */
  readonly base: string;
  /** In front of every key, without slashes at its ends; empty for none. */
  readonly prefix: string;
  /** Gives a request its authority. */
  authorize(url: URL, call: Call): Promise<Request>;
  /** The header of an answer that changes whenever an object of that name does. */
  readonly versionHeader: string;
  /** Headers that make a PUT create-only, and its digest checked where the server can. */
  createHeaders(sha256: Buffer): Readonly<Record<string, string>>;
}

const MOST_DIGESTS = 20_000;
const MAX_READ = 1024 * 1024;
/** No answer for this long is a failure; moving large bodies is not done here. */
const TIMEOUT_MS = 30_000;

export const objectUrl = (bucket: Bucket, key: string): URL => {
  checkKey(key);
  return new URL(`${bucket.base}/${prefixed(bucket, key)}`);
};

export function bucketObjects(bucket: Bucket): Omit<Store, "name" | "signPut" | "signGet"> {
  const call = async (url: URL, call: Call = {}): Promise<Response> => await send(bucket, url, call);
  /** Of objects for which the server keeps none, as long as they are the same. */
  const digests = new Map<string, ObjectInfo>();
  return {
    async head(key) {
      const answer = await call(objectUrl(bucket, key), {
        method: "HEAD",
        headers: { "x-amz-checksum-mode": "ENABLED" },
      });
      if (answer.status === 404) return null;
      await mustBe(answer, 200);
      const size = Number(answer.headers.get("content-length"));
      const sha256 = wholeChecksum(answer.headers.get("x-amz-checksum-sha256"));
      if (sha256 !== null) return { key, size, sha256 };
      const version = `${key} ${answer.headers.get(bucket.versionHeader)}`;
      const known = digests.get(version);
      if (known) return known;
      const info = await digestOf(call, objectUrl(bucket, key), key);
      if (digests.size >= MOST_DIGESTS) digests.delete(digests.keys().next().value ?? "");
      if (info) digests.set(version, info);
      return info;
    },

    async read(key) {
      const answer = await call(objectUrl(bucket, key));
      if (answer.status === 404) return null;
      await mustBe(answer, 200);
      if (Number(answer.headers.get("content-length")) > MAX_READ) {
        await answer.body?.cancel();
        throw new HangarError("internal", `${key} is too large to be read whole`);
      }
      return new Uint8Array(await answer.arrayBuffer());
    },

    async create(key, bytes) {
      const digest = createHash("sha256").update(bytes).digest();
      const headers = bucket.createHeaders(digest);
      const answer = await call(objectUrl(bucket, key), { method: "PUT", headers, body: new Uint8Array(bytes) });
      if (answer.status === 412) {
        await answer.body?.cancel();
        throw new HangarError("object_exists");
      }
      await mustBe(answer, 200);
    },

    async replace(key, bytes) {
      await mustBe(await call(objectUrl(bucket, key), { method: "PUT", body: new Uint8Array(bytes) }), 200);
    },

    async *list(prefix) {
      checkPrefix(prefix);
      for (let token: string | null = ""; token !== null;) {
        const url = new URL(bucket.base);
        url.search = new URLSearchParams({
          "list-type": "2",
          prefix: prefixed(bucket, prefix),
          ...(token && { "continuation-token": token }),
        }).toString();
        const answer = await call(url);
        await mustBe(answer, 200);
        const text = await answer.text();
        for (const [, key = ""] of text.matchAll(/<Key>([^<]*)<\/Key>/g)) yield key.slice(prefixed(bucket, "").length);
        token = /<IsTruncated>true/.test(text)
          ? decodeXml(/<NextContinuationToken>([^<]*)</.exec(text)?.[1] ?? "") || null
          : null;
      }
    },

    async delete(key) {
      const answer = await call(objectUrl(bucket, key), { method: "DELETE" });
      if (answer.status !== 404) await mustBe(answer, 204, 200);
    },
  };
}

async function send(bucket: Bucket, url: URL, call: Call): Promise<Response> {
  try {
    return await fetch(await bucket.authorize(url, call), {
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (cause) {
    if (cause instanceof HangarError) throw cause;
    throw new HangarError("store_unavailable", `The checkpoint store at ${url.host} cannot be reached`, { cause });
  }
}

async function mustBe(answer: Response, ...wanted: number[]): Promise<void> {
  if (wanted.includes(answer.status)) return;
  const text = (await answer.text().catch(() => "")).slice(0, 2000);
  const code = /<Code>([A-Za-z]+)<\/Code>/.exec(text)?.[1] ?? "";
  const said = `HTTP ${answer.status}${code && ` ${code}`}`;
  if (code === "BadDigest" || code === "XAmzContentChecksumMismatch") throw new HangarError("digest_mismatch");
  if (answer.status === 403)
    throw new HangarError(
      "store_unavailable",
      `The checkpoint store refuses the coordinator's key (${said}): check its credentials and its rights on the bucket`,
    );
  throw new HangarError("store_unavailable", `The checkpoint store failed (${said})`);
}

/** For servers that keep no SHA-256 of an object: what they give now is hashed. */
async function digestOf(call: (url: URL) => Promise<Response>, url: URL, key: string): Promise<ObjectInfo | null> {
  const answer = await call(url);
  if (answer.status === 404) return null;
  await mustBe(answer, 200);
  const hash = createHash("sha256");
  let size = 0;
  try {
    for await (const piece of answer.body ?? []) {
      hash.update(piece as Uint8Array);
      size += (piece as Uint8Array).length;
    }
  } catch (cause) {
    throw new HangarError("store_unavailable", "The checkpoint store broke off", { cause });
  }
  return { key, size, sha256: hash.digest("hex") };
}

/** Of the whole object; one of several pieces (it has a `-`) says nothing here. */
function wholeChecksum(base64: string | null): string | null {
  if (base64 === null || base64.includes("-")) return null;
  const bytes = Buffer.from(base64, "base64");
  return bytes.length === 32 ? bytes.toString("hex") : null;
}

const prefixed = (bucket: Bucket, key: string): string => (bucket.prefix === "" ? key : `${bucket.prefix}/${key}`);

const decodeXml = (text: string): string =>
  text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
