import { createPublicKey, verify } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { stringToSign, workloadIdentity } from "../../src/store/gcs-signing.ts";
import { openGcsStore } from "../../src/store/gcs.ts";
import type { Store } from "../../src/store/store.ts";
import { storeContract } from "./contract.ts";
import { GOOGLE_KEY, GOOGLE_VECTORS } from "./google-vectors.ts";
import { StrictGoogle } from "./strict-google.ts";

const open = (google: StrictGoogle, prefix = "some/prefix"): Store =>
  openGcsStore({
    bucket: "bucket",
    prefix,
    endpoint: google.url,
    identity: workloadIdentity({ metadata: google.url, iam: google.url }),
  });

storeContract(
  "gs",
  async () => {
    const google = await StrictGoogle.open();
    return { store: open(google), close: async () => await google.close() };
  },
  { digestNotSigned: true },
);

describe("signed URLs", () => {
  const key = createPublicKey({ key: GOOGLE_KEY, format: "jwk" });

  it.each(GOOGLE_VECTORS)("are Google's own for: $description", (vector) => {
    const { signature, url, text } = parts(vector);
    expect(text.url).toBe(url);
    expect(verify("sha256", Buffer.from(text.text), key, Buffer.from(signature, "hex"))).toBe(true);
  });

  it("are checked by these vectors: another text does not fit", () => {
    const [vector] = GOOGLE_VECTORS;
    const { signature, text } = parts(vector!);
    expect(verify("sha256", Buffer.from(`${text.text}x`), key, Buffer.from(signature, "hex"))).toBe(false);
  });

  function parts(vector: (typeof GOOGLE_VECTORS)[number]) {
    const [url = "", signature = ""] = vector.expectedUrl.split(/&x-goog-signature=/i);
    const text = stringToSign("test-iam-credentials@dummy-project-id.iam.gserviceaccount.com", {
      method: vector.method,
      url: new URL(`https://storage.googleapis.com/${vector.bucket}/${vector.object}`),
      headers: vector.headers ?? {},
      seconds: Number(vector.expiration),
      at: new Date(vector.timestamp),
    });
    return { url, signature, text };
  }
});

describe("gs", () => {
  let google: StrictGoogle;
  beforeEach(async () => {
    google = await StrictGoogle.open();
  });
  afterEach(async () => {
    await google.close();
  });

  it("signs create-only and the exact length into an upload's URL", async () => {
    const url = await open(google).signPut(
      { key: "a/b", size: 5, sha256: "0".repeat(64) },
      new Date(Date.now() + 60_000),
    );
    expect(url.headers).toEqual({ "x-goog-content-length-range": "5,5", "x-goog-if-generation-match": "0" });
    const put = async (headers: Record<string, string>): Promise<number> =>
      (await fetch(url.url, { method: "PUT", headers, body: "hello" })).status;
    expect(await put({ ...url.headers, "x-goog-if-generation-match": "1" })).toBe(403);
    expect(await put({})).toBe(403);
    expect(await put(url.headers)).toBe(200);
    expect(await put(url.headers)).toBe(412);
  });

  it("asks for a token once while it holds, and hashes an object once while it is the same", async () => {
    const store = open(google);
    await store.create("x", Buffer.from("hello"));
    for (let i = 0; i < 3; i++) expect((await store.head("x"))?.size).toBe(5);
    expect(google.seen.filter((line) => line.endsWith("/token"))).toHaveLength(1);
    expect(google.seen.filter((line) => line === "GET /bucket/some/prefix/x")).toHaveLength(1);
    await store.delete("x");
    expect(await store.head("x")).toBeNull();
    await store.create("x", Buffer.from("other"));
    expect((await store.head("x"))?.sha256).toBe("d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa");
  });

  it("lists more than one answer holds", async () => {
    const store = open(google);
    const wanted = Array.from({ length: 120 }, (_, i) => `k/${i}`);
    await Promise.all(wanted.map(async (key) => await store.create(key, new Uint8Array(1))));
    const found: string[] = [];
    for await (const key of store.list("k/")) found.push(key);
    expect(found.toSorted()).toEqual(wanted.toSorted());
  });

  it("says in one line which right is missing, and when no one answers", async () => {
    google.refuse = "signBlob";
    await expect(open(google).signGet("x", new Date(Date.now() + 60_000))).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("Service Account Token Creator"),
    });
    const nobody = workloadIdentity({ metadata: "http://127.0.0.1:1", iam: "http://127.0.0.1:1" });
    await expect(nobody.email()).rejects.toMatchObject({ code: "store_unavailable" });
  });
});
