import { execFile, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openFile, openStream, sealFile, sealStream, writeSealed } from "../../src/checkpoint/seal.ts";

const run = promisify(execFile);
const CHUNK = 64 * 1024;
let folder: string;
let one: Key;
let two: Key;

interface Key {
  readonly file: string;
  readonly identity: string;
  readonly recipient: string;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "hangar-seal-"));
  one = await newKey("one");
  two = await newKey("two");
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function newKey(name: string): Promise<Key> {
  const file = join(folder, `${name}.key`);
  await run("age-keygen", ["-o", file]);
  const text = await readFile(file, "utf8");
  return { file, identity: /^AGE-SECRET-KEY-1\S+/m.exec(text)?.[0] ?? "", recipient: /age1\S+/.exec(text)?.[0] ?? "" };
}

const sealed = async (plain: Buffer, recipients = [one.recipient], piece = plain.length): Promise<Buffer> =>
  await through(plain, await sealStream(recipients), piece);
const opened = async (bytes: Buffer, identities = [one.identity], piece = bytes.length): Promise<Buffer> =>
  await through(bytes, await openStream(identities), piece);

/** Sends the bytes through in pieces of that size. */
async function through(bytes: Buffer, transform: NodeJS.ReadWriteStream, piece: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += piece) pieces.push(bytes.subarray(at, at + piece));
  const out = new PassThrough();
  const [all] = await Promise.all([buffer(out), pipeline(Readable.from(pieces), transform, out)]);
  return all;
}

async function age(args: string[], input: Buffer): Promise<Buffer> {
  const child = spawn("age", args, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(input);
  const out = await buffer(child.stdout);
  if ((await new Promise((resolve) => child.on("close", resolve))) !== 0) throw new Error("age failed");
  return out;
}

const SIZES = [0, 1, 15, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 17, 1_000_000];

describe.each(SIZES)("%d bytes", (size) => {
  const plain = randomBytes(size);

  it("sealed here are opened by age, with either identity", async () => {
    const bytes = await sealed(plain, [one.recipient, two.recipient]);
    for (const key of [one, two]) expect((await age(["-d", "-i", key.file], bytes)).equals(plain)).toBe(true);
  });

  it("sealed by age are opened here", async () => {
    const bytes = await age(["-r", one.recipient, "-r", two.recipient], plain);
    for (const key of [one, two]) expect((await opened(bytes, [key.identity])).equals(plain)).toBe(true);
  });

  it.each([1000, 7, CHUNK, CHUNK + 16])("come in pieces of %d", async (piece) => {
    if (size / piece > 20_000) return;
    const bytes = await sealed(plain, [one.recipient], piece);
    expect((await opened(bytes, [two.identity, one.identity], piece)).equals(plain)).toBe(true);
  });
});

describe("damage", () => {
  const refused = async (bytes: Buffer, identities = [one.identity]): Promise<void> => {
    await expect(opened(bytes, identities)).rejects.toMatchObject({ code: "checkpoint_invalid", name: "HangarError" });
    await expect(opened(bytes, identities, 1000)).rejects.toMatchObject({ code: "checkpoint_invalid" });
  };

  it("by cutting off is found wherever the cut is", async () => {
    const bytes = await sealed(randomBytes(2 * CHUNK + 100));
    const payload = bytes.length - (2 * (CHUNK + 16) + 116);
    const ends = [
      0,
      1,
      20,
      30,
      payload - 17,
      payload - 16,
      payload - 1,
      payload,
      payload + 1,
      payload + 15,
      payload + 16,
    ];
    const later = [payload + CHUNK + 16, payload + CHUNK + 17, payload + 2 * (CHUNK + 16), bytes.length - 1];
    for (const end of [...ends, ...later]) await refused(bytes.subarray(0, end));
  });

  it("by cutting whole chunks off is found where they fill the last one", async () => {
    const bytes = await sealed(randomBytes(2 * CHUNK));
    await refused(bytes.subarray(0, bytes.length - (CHUNK + 16)));
  });

  it("by adding is found", async () => {
    for (const size of [0, 10, CHUNK, 2 * CHUNK]) {
      const bytes = await sealed(randomBytes(size));
      await refused(Buffer.concat([bytes, Buffer.from("x")]));
      await refused(Buffer.concat([bytes, Buffer.alloc(16)]));
      await refused(Buffer.concat([bytes, bytes]));
    }
  });

  it("of any byte is found", async () => {
    const bytes = await sealed(randomBytes(300));
    for (let at = 0; at < bytes.length; at += 3) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      await refused(changed);
    }
  });

  it("by swapping chunks is found", async () => {
    const bytes = await sealed(randomBytes(3 * CHUNK));
    const start = bytes.length - 3 * (CHUNK + 16);
    const chunk = (n: number): Buffer => bytes.subarray(start + n * (CHUNK + 16), start + (n + 1) * (CHUNK + 16));
    await refused(Buffer.concat([bytes.subarray(0, start), chunk(1), chunk(0), chunk(2)]));
  });

  it("is not what a wrong identity, or no age file at all, is taken for", async () => {
    const bytes = await sealed(randomBytes(100));
    await expect(opened(bytes, [two.identity])).rejects.toThrow("not sealed to this identity");
    await expect(opened(randomBytes(200_000))).rejects.toThrow("no age file");
    await expect(
      opened(Buffer.concat([Buffer.from("age-encryption.org/v1\n"), Buffer.alloc(200_000, "a")]), undefined, 1000),
    ).rejects.toThrow("no age header");
  });
});

it("draws a new key and nonce each time", async () => {
  const plain = randomBytes(100);
  const [a, b] = [await sealed(plain), await sealed(plain)];
  expect(a.subarray(-116).equals(b.subarray(-116))).toBe(false);
});

describe("files", () => {
  it("are sealed with the size and digest of what was written, readable by their owner alone", async () => {
    const [source, target] = [join(folder, "plain"), join(folder, "sealed")];
    await writeFile(source, randomBytes(200_000));
    const told = await sealFile(source, target, [one.recipient]);
    const bytes = await readFile(target);
    expect(told).toEqual({ size: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") });
    expect((await stat(target)).mode & 0o777).toBe(0o600);
    expect((await buffer(openFile(target, [one.identity]))).equals(await readFile(source))).toBe(true);
    await expect(sealFile(source, target, [one.recipient])).rejects.toMatchObject({ code: "EEXIST" });
  });

  it("stay plain without recipients", async () => {
    const [source, target] = [join(folder, "plain-2"), join(folder, "copied")];
    await writeFile(source, "plain");
    await sealFile(source, target, []);
    expect(await readFile(target, "utf8")).toBe("plain");
    expect((await buffer(openFile(target, null))).toString()).toBe("plain");
  });

  it("pass on what went wrong while they were made, and do not hang", async () => {
    const making = writeSealed(join(folder, "broken"), [one.recipient], async (out) => {
      out.write(Buffer.from("some"));
      throw new Error("the producer broke");
    });
    await expect(making).rejects.toThrow("the producer broke");
    const nowhere = writeSealed(join(folder, "no/such/folder"), [one.recipient], async (out) =>
      out.write(randomBytes(1_000_000)),
    );
    await expect(nowhere).rejects.toMatchObject({ code: "ENOENT" });
  });

  it("tell their reader of damage", async () => {
    const target = join(folder, "damaged");
    const bytes = await sealed(randomBytes(300_000));
    await writeFile(target, bytes.subarray(0, -1));
    await expect(buffer(openFile(target, [one.identity]))).rejects.toMatchObject({ code: "checkpoint_invalid" });
    await expect(buffer(openFile(join(folder, "missing"), [one.identity]))).rejects.toMatchObject({
      code: "ENOENT",
    });
    expect(await readdir(folder)).not.toContain("missing");
  });
});

it("refuses recipients and identities that are none", async () => {
  await expect(sealStream(["age1nonsense"])).rejects.toThrow();
  await expect(sealStream([])).rejects.toThrow();
  await expect(openStream(["nonsense"])).rejects.toThrow();
});
