/** Run on a disk of 4 MiB: fills it, and says what the store said. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { openVolumeStore } from "../../src/store/volume.ts";

const root = process.argv[2] ?? "";
const signer = { mac: () => "", verify: () => false };
const store = await openVolumeStore({ root, baseUrl: "http://127.0.0.1", signer });
await store.create("a", Buffer.alloc(3_000_000));
const full = await store.create("b", Buffer.alloc(3_000_000)).then(
  () => "taken",
  (error: unknown) => (error as { code: string }).code,
);
const left = readdirSync(join(root, "~tmp"));
await store.delete("a");
const after = await store.create("b", Buffer.alloc(3_000_000)).then(() => "taken");
console.log(JSON.stringify({ full, left, after }));
