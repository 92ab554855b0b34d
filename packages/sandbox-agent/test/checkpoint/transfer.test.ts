import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SignedUrl } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { download, upload, type Expected, type TransferOptions } from "../../src/checkpoint/transfer.ts";
import { breakAfter, FaultyStore, hang, loseAnswer, reset, status } from "./faulty-store.ts";

const RETRY = { attempts: 4, firstMs: 1, mostMs: 5, silentMs: 10_000 };
let store: FaultyStore;
let folder: string;
beforeEach(async () => {
  store = await FaultyStore.open();
  folder = await mkdtemp(join(tmpdir(), "hangar-transfer-"));
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const expected = (bytes: Buffer): Expected => ({
  size: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex"),
});
function options(more: Partial<TransferOptions> = {}): TransferOptions {
  return {
    renew: async (): Promise<SignedUrl> => {
      throw new Error("renewed, though nothing had expired");
    },
    signal: new AbortController().signal,
    retry: RETRY,
    ...more,
  };
}
async function source(bytes: Buffer): Promise<string> {
  const path = join(folder, "source");
  await writeFile(path, bytes);
  return path;
}

describe("upload", () => {
  const bytes = randomBytes(3_000_000);
  const send = async (more: Partial<TransferOptions> = {}): Promise<{ verified: boolean }> =>
    await upload(await source(bytes), store.url("PUT", "key"), expected(bytes), options(more));

  it("sends the file, its length announced", async () => {
    let length: string | undefined;
    store.faults.push((request, response, store) => {
      length = request.headers["content-length"];
      return store.serve(request, response);
    });
    expect(await send()).toEqual({ verified: true });
    expect(store.objects.get("key")?.equals(bytes)).toBe(true);
    expect(length).toBe(String(bytes.length));
  });

  it.each([429, 500, 502, 503, 504, 408])("tries again after %d", async (code) => {
    store.faults.push(status(code), status(code, { "retry-after": "0" }));
    expect(await send()).toEqual({ verified: true });
    expect(store.seen).toHaveLength(3);
  });

  it("tries again when Amazon says that two uploads of one name met", async () => {
    store.faults.push(status(409, {}, "<Error><Code>ConditionalRequestConflict</Code></Error>"));
    expect(await send()).toEqual({ verified: true });
  });

  it("tries again after a reset", async () => {
    store.faults.push(reset, reset);
    expect(await send()).toEqual({ verified: true });
    expect(store.objects.get("key")?.equals(bytes)).toBe(true);
  });

  it("finds its own bytes there after an answer was lost", async () => {
    store.faults.push(loseAnswer);
    expect(await send()).toEqual({ verified: true });
    expect(store.seen).toHaveLength(2);
  });

  it("leaves it to the check at commit where the store does not say what it holds", async () => {
    store.tag = false;
    store.faults.push(loseAnswer);
    expect(await send()).toEqual({ verified: false });
  });

  it("does not take another object for its own", async () => {
    store.objects.set("key", randomBytes(10));
    await expect(send()).rejects.toMatchObject({ code: "object_exists" });
    store.faults.push(reset);
    await expect(send()).rejects.toMatchObject({ code: "object_exists" });
    store.tag = false;
    await expect(send()).rejects.toMatchObject({ code: "object_exists" });
  });

  it.each<[number, string]>([
    [403, ""],
    [410, ""],
    [400, "<Error><Code>ExpiredToken</Code></Error>"],
  ])("renews a URL that is refused with %d %s", async (code, body) => {
    store.faults.push(status(code, {}, body));
    const renewed: SignedUrl[] = [];
    const renew = async (): Promise<SignedUrl> => {
      renewed.push(store.url("PUT", "key?fresh"));
      return store.url("PUT", "key?fresh");
    };
    expect(await send({ renew })).toEqual({ verified: true });
    expect(renewed).toHaveLength(1);
    expect(store.seen).toEqual(["PUT /key", "PUT /key?fresh"]);
  });

  it("gives up on a URL that stays refused, and on a renewal that fails", async () => {
    for (let i = 0; i < RETRY.attempts; i++) store.faults.push(status(403));
    await expect(send({ renew: async () => store.url("PUT", "key") })).rejects.toMatchObject({
      code: "store_unavailable",
    });
    store.faults.push(status(403));
    const renew = async (): Promise<SignedUrl> => {
      throw new Error("stale");
    };
    await expect(send({ renew })).rejects.toThrow("stale");
  });

  it("gives up after its number of tries, saying where and why without the URL", async () => {
    for (let i = 0; i < 10; i++) store.faults.push(status(503));
    const failed = await send().then(
      () => new Error("it did not fail"),
      (error: unknown) => error as Error,
    );
    expect(failed).toMatchObject({ code: "store_unavailable", message: expect.stringContaining("503") });
    expect(failed.message).not.toContain("/key");
    expect(store.seen).toHaveLength(RETRY.attempts);
  });

  it.each<[number, string, string]>([
    [507, "", "disk_full"],
    [413, "", "body_too_large"],
    [507, '{"code":"disk_full"}', "disk_full"],
    [409, '{"code":"stale_generation"}', "object_exists"],
    [422, '{"code":"invalid_request"}', "invalid_request"],
  ])("does not try again after %d %s", async (code, body, meaning) => {
    store.faults.push(status(code, {}, body));
    await expect(send()).rejects.toMatchObject({ code: meaning });
    expect(store.seen).toHaveLength(1);
  });

  it("takes the answer that comes before the body is through", async () => {
    const large = randomBytes(30_000_000);
    // The server reads none of the body: it stays in the sockets' buffers, and most of it with the sender.
    store.faults.push((_request, response) => void response.writeHead(507).end());
    const path = await source(large);
    await expect(upload(path, store.url("PUT", "key"), expected(large), options())).rejects.toMatchObject({
      code: "disk_full",
    });
  });

  it("turns to another replica when its own is gone", async () => {
    const gone = await FaultyStore.open();
    const url = gone.url("PUT", "key");
    await gone.close();
    const path = await source(bytes);
    const renew = async (): Promise<SignedUrl> => store.url("PUT", "key");
    expect(await upload(path, url, expected(bytes), options({ renew }))).toEqual({ verified: true });
  });

  it("takes silence for a lost connection", async () => {
    store.faults.push(hang);
    expect(await send({ retry: { ...RETRY, silentMs: 300 } })).toEqual({ verified: true });
  });

  it("ends at once with its signal, in mid-transfer and while it waits", async () => {
    const controller = new AbortController();
    store.faults.push(() => {
      controller.abort(new Error("enough"));
    });
    await expect(send({ signal: controller.signal })).rejects.toThrow("enough");
    const waiting = new AbortController();
    store.faults.push((request, response, store) => {
      setTimeout(() => waiting.abort(new Error("no more")), 50);
      return status(503)(request, response, store);
    });
    const slow = { ...RETRY, firstMs: 600_000, mostMs: 600_000 };
    await expect(send({ signal: waiting.signal, retry: slow })).rejects.toThrow();
    expect(store.seen).toHaveLength(2);
  });

  it("says when the file itself is gone", async () => {
    const missing = upload(join(folder, "missing"), store.url("PUT", "key"), expected(bytes), options());
    await expect(missing).rejects.toMatchObject({ code: "ENOENT" });
  });
});

describe("download", () => {
  const bytes = randomBytes(2_000_000);
  const target = (): string => join(folder, "target");
  const fetchIt = async (want: Expected = expected(bytes), more: Partial<TransferOptions> = {}): Promise<void> =>
    await download(store.url("GET", "key"), want, target(), options(more));
  const whole = async (): Promise<boolean> => (await readFile(target())).equals(bytes);
  beforeEach(() => {
    store.objects.set("key", bytes);
  });

  it("fetches the object", async () => {
    await fetchIt();
    expect(await whole()).toBe(true);
    expect(await readdir(folder)).toEqual(["target"]);
  });

  it("fetches an empty object", async () => {
    store.objects.set("key", Buffer.alloc(0));
    await fetchIt(expected(Buffer.alloc(0)));
    expect((await readFile(target())).length).toBe(0);
  });

  it("goes on where a broken connection left off", async () => {
    store.faults.push(breakAfter(700_000), status(500), breakAfter(600_000), reset);
    await fetchIt();
    expect(await whole()).toBe(true);
    const ranges = store.seen.map((line) => Number(/bytes=(\d+)-/.exec(line)?.[1] ?? 0));
    expect(ranges[0]).toBe(0);
    expect(ranges.at(-1)).toBe(1_300_000);
  });

  it("counts failures anew as long as bytes come", async () => {
    for (let i = 0; i < 15; i++) store.faults.push(breakAfter(100_000));
    await fetchIt();
    expect(await whole()).toBe(true);
  });

  it("starts over with a store that gives no ranges", async () => {
    const noRange = (
      request: import("node:http").IncomingMessage,
      response: import("node:http").ServerResponse,
    ): void => {
      request.resume();
      response.writeHead(200, { "content-length": bytes.length }).end(bytes);
    };
    store.faults.push(breakAfter(700_000), noRange);
    await fetchIt();
    expect(await whole()).toBe(true);
  });

  it("renews an expired URL", async () => {
    store.faults.push(status(410));
    await fetchIt(expected(bytes), { renew: async () => store.url("GET", "key") });
    expect(await whole()).toBe(true);
  });

  it("tries again where bytes were changed on the way, and says so where they are in the store", async () => {
    const changed = Buffer.from(bytes);
    changed[1000] = (changed[1000] ?? 0) ^ 1;
    store.faults.push((request, response) => {
      request.resume();
      response.end(changed);
    });
    await fetchIt();
    expect(await whole()).toBe(true);
    await rm(target());
    store.objects.set("key", changed);
    await expect(fetchIt()).rejects.toMatchObject({ code: "digest_mismatch" });
    expect(await readdir(folder)).toEqual([]);
  });

  it("does not take more than it expects", async () => {
    store.objects.set("key", Buffer.concat([bytes, bytes]));
    await expect(fetchIt()).rejects.toMatchObject({ code: "digest_mismatch" });
    expect(existsSync(target())).toBe(false);
  });

  it("says when the store does not have it", async () => {
    store.objects.delete("key");
    await expect(fetchIt()).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(store.seen).toHaveLength(1);
  });

  it("ends with its signal and leaves nothing", async () => {
    const controller = new AbortController();
    store.faults.push((request, response, store) => {
      setTimeout(() => controller.abort(new Error("enough")), 50);
      response.writeHead(200, { "content-length": bytes.length });
      response.write(bytes.subarray(0, 1000));
      void request;
      void store;
    });
    await expect(fetchIt(expected(bytes), { signal: controller.signal })).rejects.toThrow();
    expect(await readdir(folder)).toEqual([]);
  });
});
