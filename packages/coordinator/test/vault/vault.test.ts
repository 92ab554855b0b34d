import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openVault } from "../../src/vault/file-vault.ts";
import { addKey, vaultKeyFile } from "../../src/vault/key-file.ts";

const run = promisify(execFile);
let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "hangar-vault-"));
  file = vaultKeyFile(folder);
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

it("makes its key once, readable by its owner alone, in the form that age takes", async () => {
  const first = await openVault(file);
  expect(first.created).toBe(true);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect((await run("age-keygen", ["-y", file])).stdout.trim()).toBe(first.vault.recipient);
  const second = await openVault(file);
  expect([second.created, second.vault.recipient]).toEqual([false, first.vault.recipient]);
});

it("makes one key when several start at once", async () => {
  const opened = await Promise.all([1, 2, 3, 4].map(() => openVault(file)));
  expect(new Set(opened.map(({ vault }) => vault.recipient)).size).toBe(1);
  expect(opened.filter(({ created }) => created)).toHaveLength(1);
});

it("refuses a key that others may read, and a file without one", async () => {
  await openVault(file);
  await chmod(file, 0o640);
  await expect(openVault(file)).rejects.toMatchObject({ code: "forbidden" });
  await writeFile(file, "nothing\n");
  await chmod(file, 0o600);
  await expect(openVault(file)).rejects.toMatchObject({ code: "checkpoint_invalid" });
});

it("seals what age opens with the key file, and opens only that", async () => {
  const { vault } = await openVault(file);
  const sealed = await vault.seal(Buffer.from("a secret"));
  await writeFile(join(folder, "sealed"), sealed);
  expect((await run("age", ["-d", "-i", file, join(folder, "sealed")])).stdout).toBe("a secret");
  expect(Buffer.from(await vault.open(sealed)).toString()).toBe("a secret");
  const changed = Uint8Array.from(sealed);
  changed[changed.length - 1]! ^= 1;
  await expect(vault.open(changed)).rejects.toMatchObject({ code: "checkpoint_invalid" });
  const other = await openVault(join(folder, "other.txt"));
  await expect(other.vault.open(sealed)).rejects.toMatchObject({ code: "checkpoint_invalid" });
});

it("gives sessions identities that age knows", async () => {
  const { vault } = await openVault(file);
  const { identity, recipient } = await vault.newIdentity();
  await writeFile(join(folder, "session"), `${identity}\n`, { mode: 0o600 });
  expect((await run("age-keygen", ["-y", join(folder, "session")])).stdout.trim()).toBe(recipient);
});

it("signs the same for the same key and purpose only", async () => {
  const { vault } = await openVault(file);
  const again = await openVault(file);
  const other = await openVault(join(folder, "other.txt"));
  const mac = vault.mac("marker", "data");
  expect(again.vault.verify("marker", "data", mac)).toBe(true);
  expect(vault.verify("url", "data", mac)).toBe(false);
  expect(vault.verify("marker", "dato", mac)).toBe(false);
  expect(vault.verify("marker", "data", "")).toBe(false);
  expect(vault.verify("marker", "data", mac.slice(0, -1))).toBe(false);
  expect(other.vault.verify("marker", "data", mac)).toBe(false);
  expect(await readFile(file, "utf8")).not.toContain(mac);
});

it("takes a new key in a rotation and goes on opening and verifying what is older", async () => {
  const { vault } = await openVault(file);
  const { vault: replica } = await openVault(file);
  const sealed = await vault.seal(Buffer.from("old"));
  const mac = vault.mac("marker", "data");
  const before = vault.recipient;
  const { recipient } = await addKey(file);

  // Both see it without being told.
  expect(Buffer.from(await vault.open(await replica.seal(Buffer.from("new")))).toString()).toBe("new");
  expect([vault.recipient, replica.recipient, vault.rotated]).toEqual([recipient, recipient, true]);
  expect(recipient).not.toBe(before);
  expect(Buffer.from(await vault.open(sealed)).toString()).toBe("old");
  expect(vault.verify("marker", "data", mac)).toBe(true);
  expect(vault.isCurrent("marker", "data", mac)).toBe(false);
  const anew = await vault.reseal(sealed);
  expect(await vault.reseal(anew!)).toBeNull();
  expect((await stat(file)).mode & 0o777).toBe(0o600);

  const retired = await vault.retire(new Date("2026-12-01T00:00:00Z"));
  expect(retired).toMatch(/retired-20261201T000000\.txt$/);
  expect((await stat(retired!)).mode & 0o777).toBe(0o600);
  await expect(vault.open(sealed)).rejects.toMatchObject({ code: "checkpoint_invalid" });
  expect(Buffer.from(await vault.open(anew!)).toString()).toBe("old");
  expect(vault.verify("marker", "data", mac)).toBe(false);
  await writeFile(join(folder, "sealed"), sealed);
  expect((await run("age", ["-d", "-i", retired!, join(folder, "sealed")])).stdout).toBe("old");
  expect(await vault.retire(new Date())).toBeNull();
});

it("knows a MAC by a key that another process has just put in", async () => {
  const { vault } = await openVault(file);
  await addKey(file);
  const { vault: other } = await openVault(file);
  expect(vault.verify("agent-token", "data", other.mac("agent-token", "data"))).toBe(true);
});
