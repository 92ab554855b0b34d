import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, readdir, symlink, utimes, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, expect, it } from "vitest";
import { send, storeContract } from "./contract.ts";
import { serveVolume, type ServedVolume } from "./support.ts";

storeContract("volume", async () => await serveVolume());

const open: ServedVolume[] = [];
async function served(options: Parameters<typeof serveVolume>[0] = {}): Promise<ServedVolume> {
  const volume = await serveVolume(options);
  open.push(volume);
  return volume;
}
afterEach(async () => {
  for (const volume of open.splice(0)) await volume.close();
});

const key = "sessions/ses-00000001/ckp-0193f0000000abcde/agent";
const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const soon = (): Date => new Date(Date.now() + 60_000);

it("names the digest of the object that is there, so that a sender whose answer was lost can tell its own", async () => {
  const { store } = await served();
  const bytes = Buffer.from("content");
  const url = await store.signPut({ key, size: bytes.length, sha256: sha256(bytes) }, soon());
  const first = await send(url, bytes);
  const second = await send(url, bytes);
  expect([first.status, second.status]).toEqual([201, 409]);
  expect(second.headers.get("etag")).toBe(`"sha256:${sha256(bytes)}"`);
  expect(await second.json()).toMatchObject({ code: "object_exists", status: 409 });
});

it("leaves nothing under the key, nor a temporary file, when the body breaks off", async () => {
  const { store, root } = await served();
  const url = new URL((await store.signPut({ key, size: 1_000_000, sha256: sha256(Buffer.from("x")) }, soon())).url);
  await new Promise<void>((resolve) => {
    const socket = connect(Number(url.port), url.hostname, () => {
      socket.write(
        `PUT ${url.pathname}${url.search} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n${"x".repeat(1000)}`,
        () => setTimeout(() => socket.destroy(), 100),
      );
    });
    socket.on("close", () => resolve());
  });
  const temporary = join(root, "~tmp");
  await expect.poll(async () => await readdir(temporary), { timeout: 10_000 }).toEqual([]);
  expect(await store.head(key)).toBeNull();
});

it("answers a refused upload although the body is still coming", async () => {
  const { store } = await served();
  await store.create(key, Buffer.from("there"));
  const bytes = randomBytes(8_000_000);
  const answer = await send(await store.signPut({ key, size: bytes.length, sha256: sha256(bytes) }, soon()), bytes);
  expect(answer.status).toBe(409);
  const other = await send(
    await store.signPut({ key: `${key}.2`, size: bytes.length, sha256: sha256(bytes) }, soon()),
    bytes,
  );
  expect(other.status).toBe(201);
});

it("goes on from the middle for a download that broke off", async () => {
  const { store } = await served();
  await store.create(key, Buffer.from("0123456789"));
  const url = await store.signGet(key, soon());
  const answer = await fetch(url.url, { headers: { range: "bytes=4-" } });
  expect(answer.status).toBe(206);
  expect(answer.headers.get("content-range")).toBe("bytes 4-9/10");
  expect(await answer.text()).toBe("456789");
});

it("tells a digest from the disk's bytes, not from what it once took", async () => {
  const { store, root } = await served();
  await store.create(key, Buffer.from("content"));
  await writeFile(join(root, key), "CONTENT");
  expect((await store.head(key))?.sha256).toBe(sha256(Buffer.from("CONTENT")));
});

it("sweeps temporary files of uploads that were cut off long ago, and no younger ones", async () => {
  const first = await served();
  const temporary = join(first.root, "~tmp");
  await writeFile(join(temporary, "old"), "x");
  await writeFile(join(temporary, "young"), "x");
  const longAgo = Date.now() / 1000 - 2 * 86_400;
  await utimes(join(temporary, "old"), longAgo, longAgo);
  await served({ root: first.root });
  expect(await readdir(temporary)).toEqual(["young"]);
});

it("does not follow a link that someone put under a key", async () => {
  const { store, root } = await served();
  await mkdir(join(root, "sessions"), { recursive: true });
  await symlink("/etc/passwd", join(root, "sessions/passwd"));
  await expect(store.read("sessions/passwd")).rejects.toMatchObject({ code: "store_unavailable" });
});

it("says that the disk is full, and takes objects again once there is room", async () => {
  const disk = ["--size", String(4 * 1024 * 1024), "--tmpfs", "/mnt"];
  const program = [process.execPath, fileURLToPath(new URL("full-disk.ts", import.meta.url)), "/mnt/store"];
  const view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
  const { stdout } = await promisify(execFile)("bwrap", [...view, ...disk, ...program]);
  expect(JSON.parse(stdout)).toEqual({ full: "disk_full", left: [], after: "taken" });
});

it("answers every mistake with a problem that has a code", async () => {
  let now = Date.now();
  const { store, reported } = await served({ now: () => now });
  const url = await store.signGet(key, new Date(now + 1000));
  const missing = await send(url);
  expect([missing.status, await missing.json()]).toMatchObject([404, { code: "not_found" }]);
  now += 1000;
  const expired = await send(url);
  expect(expired.headers.get("content-type")).toBe("application/problem+json");
  expect([expired.status, await expired.json()]).toMatchObject([410, { code: "url_expired" }]);
  const forged = await send(url, undefined, (at) => at.searchParams.set("expires", String(now + 9_000_000)));
  expect([forged.status, await forged.json()]).toMatchObject([403, { code: "forbidden" }]);
  expect(reported).toEqual([]);
});
