/**
 * The checkpoint store in an S3 bucket, or one of any server that speaks its protocol. Sandboxes reach it by presigned URLs;
 * the coordinator itself moves small objects only.
 *
 * What the server must enforce, since no one else can: `If-None-Match: *` (an object is never overwritten) and
 * `x-amz-checksum-sha256` (the body is the one announced). Both are signed into each upload's URL. Amazon S3 does both;
 * `probeS3` finds out about others.
 */
import { createHash } from "node:crypto";
import { HangarError, type SignedUrl } from "@hangar/shared";
import { AwsClient, AwsV4Signer } from "aws4fetch";
import { checkKey, checkPrefix } from "./keys.ts";
import type { ObjectInfo, Store } from "./store.ts";

export interface S3Options {
  readonly bucket: string;
  /** In front of every key, without slashes at its ends; empty for none. */
  readonly prefix: string;
  readonly region: string;
  /** `https://host[:port]` of another server than Amazon's; its buckets are then folders of it. */
  readonly endpoint: string | null;
  readonly credentials: S3Credentials;
}

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

const MAX_READ = 1024 * 1024;
/** No answer for this long is a failure; moving large bodies is not done here. */
const TIMEOUT_MS = 30_000;

export function openS3Store(options: S3Options): Store {
  const base = baseOf(options);
  const client = new AwsClient({ ...options.credentials, region: options.region, service: "s3", retries: 0 });
  const urlOf = (key: string): URL => {
    checkKey(key);
    return new URL(`${base}/${prefixed(options, key)}`);
  };
  const call = async (url: URL, init: CallInit = {}): Promise<Response> => await request(client, url, init);

  async function sign(
    method: "PUT" | "GET",
    key: string,
    headers: Record<string, string>,
    expiresAt: Date,
  ): Promise<SignedUrl> {
    const url = urlOf(key);
    const seconds = Math.floor((expiresAt.getTime() - Date.now()) / 1000);
    // The protocol knows no URL that has expired already; one that was signed long ago is the same.
    const early = Math.max(0, 1 - seconds);
    url.searchParams.set("X-Amz-Expires", String(Math.min(Math.max(1, seconds), 7 * 86_400)));
    const signer = new AwsV4Signer({
      ...options.credentials,
      region: options.region,
      service: "s3",
      method,
      url: url.toString(),
      headers,
      signQuery: true,
      allHeaders: true,
      datetime: amzDate(Date.now() - early * 1000),
    });
    const signed = await signer.sign();
    // The length is signed, and is sent by whoever has the body.
    const { "content-length": _length, ...sent } = headers;
    return { method, url: signed.url.toString(), headers: sent, expires_at: expiresAt.toISOString() };
  }

  return {
    name: `s3://${options.bucket}${options.prefix === "" ? "" : `/${options.prefix}`}`,

    async signPut(intent, expiresAt) {
      const headers = {
        "content-length": String(intent.size),
        "if-none-match": "*",
        "x-amz-checksum-sha256": Buffer.from(intent.sha256, "hex").toString("base64"),
      };
      return await sign("PUT", intent.key, headers, expiresAt);
    },

    signGet: async (key, expiresAt) => await sign("GET", key, {}, expiresAt),

    async head(key) {
      const answer = await call(urlOf(key), { method: "HEAD", headers: { "x-amz-checksum-mode": "ENABLED" } });
      if (answer.status === 404) return null;
      await mustBe(answer, 200);
      const size = Number(answer.headers.get("content-length"));
      const sha256 = wholeChecksum(answer.headers.get("x-amz-checksum-sha256"));
      return sha256 === null ? await digestOf(call, urlOf(key), key) : { key, size, sha256 };
    },

    async read(key) {
      const answer = await call(urlOf(key));
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
      const headers = { "if-none-match": "*", "x-amz-checksum-sha256": digest.toString("base64") };
      const answer = await call(urlOf(key), { method: "PUT", headers, body: new Uint8Array(bytes) });
      if (answer.status === 412 || answer.status === 409) {
        await answer.body?.cancel();
        throw new HangarError("object_exists");
      }
      await mustBe(answer, 200);
    },

    async *list(prefix) {
      checkPrefix(prefix);
      for (let token: string | null = ""; token !== null;) {
        const url = new URL(base);
        url.search = new URLSearchParams({
          "list-type": "2",
          prefix: prefixed(options, prefix),
          ...(token && { "continuation-token": token }),
        }).toString();
        const answer = await call(url);
        await mustBe(answer, 200);
        const text = await answer.text();
        for (const [, key = ""] of text.matchAll(/<Key>([^<]*)<\/Key>/g)) yield key.slice(prefixed(options, "").length);
        token = /<IsTruncated>true/.test(text)
          ? decodeXml(/<NextContinuationToken>([^<]*)</.exec(text)?.[1] ?? "") || null
          : null;
      }
    },

    async delete(key) {
      const answer = await call(urlOf(key), { method: "DELETE" });
      if (answer.status !== 404) await mustBe(answer, 204, 200);
    },
  };
}

/**
 * Whether the server refuses to overwrite, by trying it on an object of its own; to be asked once, at start.
 * @returns what it does not enforce, in one line each, for the log and `status`; empty when all is well.
 */
export async function probeS3(store: Store): Promise<string[]> {
  const key = `probe/${createHash("sha256")
    .update(String(performance.timeOrigin + performance.now()))
    .digest("hex")
    .slice(0, 16)}`;
  const gaps: string[] = [];
  await store.create(key, new TextEncoder().encode("first"));
  try {
    await store.create(key, new TextEncoder().encode("second"));
    gaps.push(
      `${store.name} overwrites objects (it ignores If-None-Match): whoever holds an upload's URL can replace that object`,
    );
  } catch (error) {
    if (!(error instanceof HangarError) || error.code !== "object_exists") throw error;
  } finally {
    await store.delete(key);
  }
  return gaps;
}

interface CallInit {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: Uint8Array<ArrayBuffer>;
}

async function request(client: AwsClient, url: URL, init: CallInit): Promise<Response> {
  try {
    const signed = await client.sign(url.toString(), { ...init, aws: { allHeaders: true } });
    return await fetch(signed, { redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (cause) {
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

const baseOf = (options: S3Options): string =>
  options.endpoint === null
    ? `https://${options.bucket}.s3.${options.region}.amazonaws.com`
    : `${options.endpoint.replace(/\/$/, "")}/${options.bucket}`;

const prefixed = (options: S3Options, key: string): string =>
  options.prefix === "" ? key : `${options.prefix}/${key}`;

const amzDate = (ms: number): string => new Date(ms).toISOString().replace(/[:-]|\.\d{3}/g, "");

const decodeXml = (text: string): string =>
  text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
