import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AwsV4Signer } from "aws4fetch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openS3Store, probeS3, type S3Credentials } from "../../src/store/s3.ts";
import type { Store } from "../../src/store/store.ts";
import { storeContract } from "./contract.ts";
import { KEY, StrictS3 } from "./strict-s3.ts";

const open = (endpoint: string, prefix = "some/prefix", credentials: S3Credentials = KEY): Store =>
  openS3Store({ bucket: "bucket", prefix, region: "us-east-1", endpoint, credentials });

storeContract("s3, a strict server", async () => {
  const s3 = await StrictS3.open();
  return { store: open(s3.endpoint), close: async () => await s3.close() };
});

// It checks no version 4 signature, and knows neither If-None-Match nor checksums; but its protocol is not of our making.
storeContract(
  "s3, s3rver",
  async () => {
    const directory = await mkdtemp(join(tmpdir(), "hangar-s3-"));
    const S3rver = createRequire(import.meta.url)("s3rver") as new (options: object) => S3rver;
    const buckets = { configureBuckets: [{ name: "bucket" }] };
    const server = new S3rver({ directory, port: 0, address: "127.0.0.1", silent: true, ...buckets });
    const { port } = await server.run();
    return {
      store: open(`http://127.0.0.1:${port}`, "some/prefix", { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" }),
      async close() {
        await server.close();
        await rm(directory, { recursive: true, force: true });
      },
    };
  },
  { overwrites: true, digestNotSigned: true, signatureNotChecked: true },
);
interface S3rver {
  run(): Promise<{ port: number }>;
  close(): Promise<void>;
}

describe("s3", () => {
  let s3: StrictS3;
  beforeEach(async () => {
    s3 = await StrictS3.open();
  });
  afterEach(async () => {
    await s3.close();
  });

  it("signs as in Amazon's own example of a presigned URL", async () => {
    const signer = new AwsV4Signer({
      method: "GET",
      url: "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Expires=86400",
      accessKeyId: "AKIAIOSFODNN7EXAMPLE",
      secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
      service: "s3",
      region: "us-east-1",
      signQuery: true,
      datetime: "20130524T000000Z",
    });
    const signature = (await signer.sign()).url.searchParams.get("X-Amz-Signature");
    expect(signature).toBe("aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
  });

  it("signs length, digest and create-only into an upload's URL", async () => {
    const intent = { key: "a/b", size: 5, sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" };
    const url = await open(s3.endpoint).signPut(intent, new Date(Date.now() + 60_000));
    const signed = new URL(url.url).searchParams.get("X-Amz-SignedHeaders");
    expect(signed).toBe("content-length;host;if-none-match;x-amz-checksum-sha256");
    expect(url.headers).toEqual({
      "if-none-match": "*",
      "x-amz-checksum-sha256": "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
    });
    const { "if-none-match": _dropped, ...overwriting } = url.headers;
    const other = { ...url.headers, "x-amz-checksum-sha256": "other" };
    for (const headers of [overwriting, other])
      expect((await fetch(url.url, { method: "PUT", headers, body: "hello" })).status).toBe(403);
    expect((await fetch(url.url, { method: "PUT", headers: url.headers, body: "hello" })).status).toBe(200);
    expect([...s3.objects.keys()]).toEqual(["some/prefix/a/b"]);
  });

  it("lists more than one answer holds, and keeps to its prefix", async () => {
    const [one, two] = [open(s3.endpoint, "one"), open(s3.endpoint, "one-more")];
    const wanted = Array.from({ length: 250 }, (_, i) => `k/${i}`);
    await Promise.all(wanted.map(async (key) => await one.create(key, new Uint8Array(1))));
    await two.create("k/y", new Uint8Array(1));
    const found: string[] = [];
    for await (const key of one.list("k/")) found.push(key);
    expect(found.toSorted()).toEqual(wanted.toSorted());
  });

  it("finds out whether the server overwrites, and leaves nothing of it", async () => {
    const store = open(s3.endpoint);
    expect(await probeS3(store)).toEqual([]);
    expect(s3.objects.size).toBe(0);
    const lax: Store = { ...store, create: async () => {} };
    expect(await probeS3(lax)).toEqual([expect.stringContaining("If-None-Match")]);
  });

  it("says in one line that its key is refused, that the server failed, or that no one answers", async () => {
    const wrong = open(s3.endpoint, "", { ...KEY, secretAccessKey: "wrong" });
    await expect(wrong.read("x")).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("SignatureDoesNotMatch"),
    });
    s3.faults.push(503);
    await expect(open(s3.endpoint).head("x")).rejects.toMatchObject({ code: "store_unavailable" });
    await expect(open("http://127.0.0.1:1").read("x")).rejects.toMatchObject({ code: "store_unavailable" });
  });
});
