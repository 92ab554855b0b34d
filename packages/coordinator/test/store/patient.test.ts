/** What the wrapper makes of a store that fails now and then. The store under it is a real one, on a disk. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import { afterEach, beforeEach, expect, it } from "vitest";
import { patientStore } from "../../src/store/patient.ts";
import type { Store } from "../../src/store/store.ts";
import { openVolumeStore } from "../../src/store/volume.ts";
import { openVault } from "../../src/vault/file-vault.ts";

let folder: string;
let disk: Store;
/** How many calls fail from now on, before they reach the disk or after. */
let failing: { count: number; after: boolean };
let calls: number;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "hangar-patient-"));
  const { vault } = await openVault(join(folder, "vault/identity.txt"));
  disk = await openVolumeStore({ root: join(folder, "store"), baseUrl: "http://127.0.0.1:1", signer: vault });
  failing = { count: 0, after: false };
  calls = 0;
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const patience = { tries: 4, pauseMs: 1 };
const flaky = (): Store =>
  new Proxy(disk, {
    get(target, name: keyof Store) {
      const real = target[name];
      if (typeof real !== "function" || name === "list") return real;
      return async (...args: never[]) => {
        calls++;
        const fails = failing.count-- > 0;
        const fail = new HangarError("store_unavailable");
        if (fails && !failing.after) throw fail;
        const result: unknown = await (real as (...args: never[]) => Promise<unknown>).apply(target, args);
        if (fails) throw fail;
        return result;
      };
    },
  });
const store = (): Store => patientStore(flaky(), patience);
const KEY = "sessions/ses-0a1b2c3d/ckp-00000000000000000/commit.json";

it("waits for a store that comes back, and gives up on one that does not", async () => {
  failing.count = 3;
  await store().create(KEY, Buffer.from("one"));
  failing.count = 3;
  expect(Buffer.from((await store().read(KEY)) ?? []).toString()).toBe("one");
  failing.count = 4;
  calls = 0;
  await expect(store().head(KEY)).rejects.toMatchObject({ code: "store_unavailable" });
  expect(calls).toBe(4);
});

it("takes a create whose answer was lost for done, and another one's object for what it is", async () => {
  failing = { count: 1, after: true };
  await store().create(KEY, Buffer.from("mine"));
  expect(Buffer.from((await disk.read(KEY)) ?? []).toString()).toBe("mine");
  await expect(store().create(KEY, Buffer.from("mine"))).rejects.toMatchObject({ code: "object_exists" });
  failing = { count: 1, after: false };
  await expect(store().create(KEY, Buffer.from("yours"))).rejects.toMatchObject({ code: "object_exists" });
  expect(Buffer.from((await disk.read(KEY)) ?? []).toString()).toBe("mine");
});

it("asks once where the answer is an answer", async () => {
  calls = 0;
  expect(await store().head(KEY)).toBeNull();
  await expect(store().head("../up")).rejects.toMatchObject({ code: "invalid_request" });
  expect(calls).toBe(2);
});

it("lists each key once, also when the list broke off", async () => {
  const keys = Array.from({ length: 20 }, (_, i) => `sessions/ses-0a1b2c3d/x${i}`);
  for (const key of keys) await disk.create(key, Buffer.from("x"));
  let breaks = 2;
  const breaking: Store = {
    ...disk,
    async *list(prefix) {
      let n = 0;
      for await (const key of disk.list(prefix)) {
        if (n++ === 7 && breaks-- > 0) throw new HangarError("store_unavailable");
        yield key;
      }
    },
  };
  const found: string[] = [];
  for await (const key of patientStore(breaking, patience).list("sessions/")) found.push(key);
  expect(found.toSorted()).toEqual(keys.toSorted());
});
