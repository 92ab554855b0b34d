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
import { bucketObjects, objectUrl, type Bucket } from "./bucket.ts";
import type { Store } from "./store.ts";

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

export function openS3Store(options: S3Options): Store {
  const client = new AwsClient({ ...options.credentials, region: options.region, service: "s3", retries: 0 });
  const bucket: Bucket = {
    name: `s3://${options.bucket}${options.prefix === "" ? "" : `/${options.prefix}`}`,
    base: baseOf(options),
    prefix: options.prefix,
    authorize: async (url, call) => await client.sign(url.toString(), { ...call, aws: { allHeaders: true } }),
    versionHeader: "etag",
    createHeaders,
  };

  async function sign(
    method: "PUT" | "GET",
    key: string,
    headers: Record<string, string>,
    expiresAt: Date,
  ): Promise<SignedUrl> {
    const url = objectUrl(bucket, key);
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
    ...bucketObjects(bucket),
    name: bucket.name,
    async signPut(intent, expiresAt) {
      const headers = { "content-length": String(intent.size), ...createHeaders(Buffer.from(intent.sha256, "hex")) };
      return await sign("PUT", intent.key, headers, expiresAt);
    },
    signGet: async (key, expiresAt) => await sign("GET", key, {}, expiresAt),
  };
}

const createHeaders = (sha256: Buffer): Record<string, string> => ({
  "if-none-match": "*",
  "x-amz-checksum-sha256": sha256.toString("base64"),
});

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

const baseOf = (options: S3Options): string =>
  options.endpoint === null
    ? `https://${options.bucket}.s3.${options.region}.amazonaws.com`
    : `${options.endpoint.replace(/\/$/, "")}/${options.bucket}`;

const amzDate = (ms: number): string => new Date(ms).toISOString().replace(/[:-]|\.\d{3}/g, "");
