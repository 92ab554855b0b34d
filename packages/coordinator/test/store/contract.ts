/** What every checkpoint store must do, run over each adapter: `storeContract("volume", async () => …)`. */
import { createHash, randomBytes } from "node:crypto";
import type { SignedUrl } from "@hangar/shared";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { checkpointKey, sessionPrefix, type PutIntent, type Store } from "../../src/store/store.ts";

export interface Opened {
  readonly store: Store;
  close(): Promise<void>;
}

/** What a store that is not Hangar's own does not enforce; say so in its documentation. */
export interface Gaps {
  /** A signed PUT takes a body of another digest; `head` shows it. */
  readonly digestNotSigned?: boolean;
  readonly lengthNotSigned?: boolean;
  /** It knows no create-only write. */
  readonly overwrites?: boolean;
  /** A stand-in that takes any signature. */
  readonly signatureNotChecked?: boolean;
}

const soon = (): Date => new Date(Date.now() + 60_000);
const past = (): Date => new Date(Date.now() - 60_000);
const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
let count = 0;
const session = (): string => `ses-${(0x10000000 + count++).toString(16)}`;
const keyIn = (session: string, file = "agent.tar.zst.age"): string =>
  checkpointKey(session, "ckp-0193f0000000abcde", file);
const intentOf = (key: string, bytes: Uint8Array): PutIntent => ({ key, size: bytes.length, sha256: sha256(bytes) });

export async function send(
  url: SignedUrl,
  body?: Uint8Array,
  change: (url: URL) => void = () => {},
): Promise<Response> {
  const at = new URL(url.url);
  change(at);
  return await fetch(at, {
    method: url.method,
    headers: url.headers,
    ...(body && { body: new Uint8Array(body) }),
  });
}

async function keys(store: Store, prefix: string): Promise<string[]> {
  const found: string[] = [];
  for await (const key of store.list(prefix)) found.push(key);
  return found.sort();
}

export function storeContract(name: string, open: () => Promise<Opened>, gaps: Gaps = {}): void {
  describe(`store contract: ${name}`, () => {
    let opened: Opened;
    let store: Store;
    beforeAll(async () => {
      opened = await open();
      store = opened.store;
    });
    afterAll(async () => {
      await opened.close();
    });

    it("keeps what is sent to a signed URL and gives it back", async () => {
      const bytes = randomBytes(3_000_000);
      const key = keyIn(session());
      const put = await send(await store.signPut(intentOf(key, bytes), soon()), bytes);
      expect(put.ok).toBe(true);
      expect(await store.head(key)).toEqual({ key, size: bytes.length, sha256: sha256(bytes) });
      const got = await send(await store.signGet(key, soon()));
      expect(got.status).toBe(200);
      expect(Buffer.from(await got.arrayBuffer()).equals(bytes)).toBe(true);
    });

    it("keeps an empty object", async () => {
      const key = keyIn(session());
      const put = await send(await store.signPut(intentOf(key, new Uint8Array(0)), soon()), new Uint8Array(0));
      expect(put.ok).toBe(true);
      expect(await store.head(key)).toEqual({ key, size: 0, sha256: sha256(new Uint8Array(0)) });
    });

    it.skipIf(gaps.overwrites)("never overwrites, by URL or directly", async () => {
      const first = Buffer.from("first");
      const key = keyIn(session());
      const url = await store.signPut(intentOf(key, first), soon());
      expect((await send(url, first)).ok).toBe(true);
      expect([409, 412]).toContain((await send(url, first)).status);
      const other = Buffer.from("other");
      expect([409, 412]).toContain((await send(await store.signPut(intentOf(key, other), soon()), other)).status);
      await expect(store.create(key, other)).rejects.toMatchObject({ code: "object_exists" });
      expect(Buffer.from((await store.read(key)) ?? []).toString()).toBe("first");
    });

    it.skipIf(gaps.overwrites)("lets one of two racing creates win", async () => {
      const key = keyIn(session(), "commit.json");
      const outcomes = await Promise.allSettled(
        ["a", "b", "c", "d"].map((text) => store.create(key, Buffer.from(text))),
      );
      expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      const winner = ["a", "b", "c", "d"][outcomes.findIndex(({ status }) => status === "fulfilled")];
      expect(Buffer.from((await store.read(key)) ?? []).toString()).toBe(winner);
    });

    it.skipIf(gaps.overwrites)("replaces an object in one step: a reader gets one or the other", async () => {
      const key = keyIn(session(), "commit.json");
      const texts = ["a", "b"].map((letter) => letter.repeat(200_000));
      await store.create(key, Buffer.from(texts[0] ?? ""));
      const seen = new Set<string>();
      const stop = new AbortController();
      const reading = (async () => {
        while (!stop.signal.aborted) seen.add(Buffer.from((await store.read(key)) ?? []).toString());
      })();
      for (let i = 1; i < 6; i++) await store.replace(key, Buffer.from(texts[i % 2] ?? ""));
      stop.abort();
      await reading;
      expect([...seen].every((text) => texts.includes(text))).toBe(true);
      expect(Buffer.from((await store.read(key)) ?? []).toString()).toBe(texts[1]);
      expect(await store.head(key)).toEqual({ key, size: 200_000, sha256: sha256(Buffer.from(texts[1] ?? "")) });
    });

    it.skipIf(gaps.digestNotSigned)("refuses a body of another digest and keeps nothing", async () => {
      const key = keyIn(session());
      const url = await store.signPut(intentOf(key, Buffer.from("right")), soon());
      expect((await send(url, Buffer.from("wrong"))).ok).toBe(false);
      expect(await store.head(key)).toBeNull();
      expect((await send(url, Buffer.from("right"))).ok).toBe(true);
    });

    it.skipIf(gaps.lengthNotSigned || gaps.signatureNotChecked)(
      "refuses a body of another length and keeps nothing",
      async () => {
        const key = keyIn(session());
        const url = await store.signPut(intentOf(key, Buffer.from("right")), soon());
        expect((await send(url, Buffer.from("rig"))).ok).toBe(false);
        expect((await send(url, Buffer.from("right and more"))).ok).toBe(false);
        expect(await store.head(key)).toBeNull();
      },
    );

    it.skipIf(gaps.signatureNotChecked)(
      "refuses a URL after its time, for another object, another method, or unsigned",
      async () => {
        const bytes = Buffer.from("bytes");
        const at = session();
        const key = keyIn(at);
        await store.create(key, bytes);
        expect((await send(await store.signGet(key, past()))).ok).toBe(false);
        expect((await send(await store.signPut(intentOf(keyIn(at, "late"), bytes), past()), bytes)).ok).toBe(false);
        const get = await store.signGet(key, soon());
        const elsewhere = (url: URL): void => void (url.pathname = url.pathname.replace("agent.tar", "other.tar"));
        await store.create(keyIn(at, "other.tar.zst.age"), bytes);
        expect((await send(get, undefined, elsewhere)).ok).toBe(false);
        expect((await send({ ...get, method: "PUT" }, bytes)).ok).toBe(false);
        const put = await store.signPut(intentOf(keyIn(at, "new"), bytes), soon());
        expect((await send({ ...put, method: "GET" })).ok).toBe(false);
        expect((await send(put, bytes, (url) => void (url.search = ""))).ok).toBe(false);
        expect(await store.head(keyIn(at, "new"))).toBeNull();
        expect((await send(get)).ok).toBe(true);
      },
    );

    it("says when an object is not there", async () => {
      const key = keyIn(session());
      expect(await store.head(key)).toBeNull();
      expect(await store.read(key)).toBeNull();
      expect((await send(await store.signGet(key, soon()))).status).toBe(404);
      await store.delete(key);
    });

    it("lists what is under a prefix, and only that", async () => {
      const [one, two] = [session(), session()];
      const wanted = [keyIn(one, "a"), keyIn(one, "b"), `${sessionPrefix(one)}identity.age`];
      for (const key of [...wanted, keyIn(two, "c")]) await store.create(key, Buffer.from("x"));
      expect(await keys(store, sessionPrefix(one))).toEqual([...wanted].sort());
      expect(await keys(store, sessionPrefix(session()))).toEqual([]);
      expect((await keys(store, "")).filter((key) => key.startsWith(sessionPrefix(two)))).toEqual([keyIn(two, "c")]);
    });

    it("deletes, twice without an error, and takes the object again afterwards", async () => {
      const key = keyIn(session());
      await store.create(key, Buffer.from("x"));
      await store.delete(key);
      await store.delete(key);
      expect(await store.head(key)).toBeNull();
      await store.create(key, Buffer.from("y"));
      expect(Buffer.from((await store.read(key)) ?? []).toString()).toBe("y");
    });

    it.each([
      "../x",
      "sessions/../../etc/passwd",
      "/etc/passwd",
      "a//b",
      "a/./b",
      "a b",
      "a\0b",
      "",
      "é",
      "sessions/x/",
    ])("refuses the key %j", async (key) => {
      await expect(store.create(key, Buffer.from("x"))).rejects.toMatchObject({ code: "invalid_request" });
      await expect(store.read(key)).rejects.toMatchObject({ code: "invalid_request" });
      await expect(store.delete(key)).rejects.toMatchObject({ code: "invalid_request" });
      await expect(store.signGet(key, soon())).rejects.toMatchObject({ code: "invalid_request" });
    });
  });
}
