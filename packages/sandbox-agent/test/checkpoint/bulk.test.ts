/** Work in a thread of its own gives and fails as it would where it is asked for. */
import { createHash, randomBytes } from "node:crypto";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { zstdCompressSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ArchiveChanged, type ArchiveEntry } from "../../src/checkpoint/archive.ts";
import { BULK, bulk } from "../../src/checkpoint/bulk.ts";
import { PIECE } from "../../src/checkpoint/pieces.ts";
import { Vanished } from "../../src/checkpoint/digest.ts";
import { decompressed } from "../../src/checkpoint/zstd-frames.ts";

let dir: string;
const content = randomBytes(9 * 1024 * 1024);
const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "hangar-bulk-"));
  writeFileSync(join(dir, "file"), content);
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const entry = (name: string, size: number): ArchiveEntry => ({
  path: Buffer.from(name),
  kind: "file",
  mode: 0o644,
  mtime: 1,
  size,
  content: { file: Buffer.from(join(dir, name)), offset: 0 },
});

describe.each([
  ["here", 0],
  ["in a thread", BULK],
])("%s", (where, bytes) => {
  const options = { bytes };

  test("digests, also git's", async () => {
    const path = join(dir, "file");
    const { length } = content;
    expect(await bulk("digest", { path, size: length, oid: "sha1" }, options)).toEqual({
      sha256: sha256(content),
      oid: createHash("sha1").update(`blob ${length}\0`).update(content).digest("hex"),
      size: length,
    });
    expect((await bulk("digest", { path, size: 10, oid: null }, options)).sha256).toBe(sha256(content.subarray(0, 10)));
    const fd = openSync(path, "r");
    try {
      expect(await bulk("pieces", { fd, size: length, known: ["x"] }, options)).toEqual([
        "x",
        sha256(content.subarray(PIECE, 2 * PIECE)),
        sha256(content.subarray(2 * PIECE)),
      ]);
    } finally {
      closeSync(fd);
    }
  });

  test("packs, proves, and unpacks again", async () => {
    const destination = join(dir, `packed ${where}`);
    const expect256 = new Map([["file", sha256(content)]]);
    const entries = [entry("file", content.length)];
    const job = { destination, recipients: [], entries, proof: { of: "digests", expect: expect256 } } as const;
    const packed = await bulk("pack", job, options);
    expect(packed).toMatchObject({ good: 1, changed: [], sha256: sha256(readFileSync(destination)) });
    const root = mkdtempSync(join(dir, "out-"));
    const rule = { of: "files", root: "repo", bytes: content.length, removed: new Set<string>(), trees: [] } as const;
    const extract = { stored: destination, identities: null, root, times: "kept", rule } as const;
    expect(await bulk("extract", extract, options)).toEqual({ paths: ["file"], bytes: content.length });
    expect(readFileSync(join(root, "file")).equals(content)).toBe(true);
    await expect(bulk("extract", { ...extract, rule: { ...rule, bytes: 5 } }, options)).rejects.toMatchObject({
      code: "checkpoint_invalid",
      message: expect.stringContaining("more than it says"),
    });
  });

  test("says which file is not what it was", async () => {
    const proof = { of: "digests", expect: new Map([["file", sha256(Buffer.from("other"))]]) } as const;
    const job = { recipients: [], entries: [entry("file", content.length)], proof };
    const packed = await bulk("pack", { ...job, destination: join(dir, `changed ${where}`) }, options);
    expect(packed).toMatchObject({ good: 0, changed: ["file"] });
    const gone = { ...job, entries: [entry("gone", 3)], destination: join(dir, `gone ${where}`) };
    const failure: unknown = await bulk("pack", gone, options).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ArchiveChanged);
    expect(failure).toMatchObject({
      code: "checkpoint_failed",
      path: Buffer.from("gone"),
      message: expect.stringMatching(/went away/),
    });
    await expect(bulk("digest", { path: join(dir, "gone"), size: 3, oid: null }, options)).rejects.toBeInstanceOf(
      Vanished,
    );
  });

  test("keeps the code of a system's error", async () => {
    const job = { source: join(dir, "file"), destination: join(dir, "file"), recipients: [] };
    await expect(bulk("seal", job, options)).rejects.toMatchObject({ code: "EEXIST" });
  });

  test("ends with its signal", async () => {
    const stop = new AbortController();
    const entries = Array.from({ length: 40 }, () => entry("file", content.length));
    const job = { destination: join(dir, `ended ${where}`), recipients: [], entries };
    const proof = { of: "digests", expect: new Map() } as const;
    const working = bulk("pack", { ...job, proof }, { ...options, signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 50);
    await expect(working).rejects.toThrow(/enough|aborted/);
  });
});

describe("zstd files of whatever make", () => {
  const plain = Buffer.from("some text, again and again ".repeat(400_000));
  const read = async (stored: Buffer, piece: number): Promise<Buffer> => {
    const pieces = Array.from({ length: Math.ceil(stored.length / piece) }, (_, i) =>
      stored.subarray(i * piece, (i + 1) * piece),
    );
    const out: Buffer[] = [];
    for await (const one of decompressed(Readable.from(pieces))) out.push(Buffer.from(one));
    return Buffer.concat(out);
  };
  const small = plain.subarray(0, 300_000);
  const known = zstdCompressSync(small, { pledgedSrcSize: small.length });
  test.each([
    ["one large frame", zstdCompressSync(plain, { pledgedSrcSize: plain.length }), plain],
    ["of unknown length", zstdCompressSync(small), small],
    ["frames one after the other", Buffer.concat([known, known, known]), Buffer.concat([small, small, small])],
    ["a small one, then a large one", Buffer.concat([known, zstdCompressSync(plain)]), Buffer.concat([small, plain])],
    ["an empty frame", zstdCompressSync(Buffer.alloc(0), { pledgedSrcSize: 0 }), Buffer.alloc(0)],
    ["nothing", Buffer.alloc(0), Buffer.alloc(0)],
  ])("%s", async (_, stored, whole) => {
    for (const piece of [7, 1000, 1 << 20]) {
      if (piece === 7 && stored.length > 20_000) continue;
      expect((await read(stored, piece)).equals(whole)).toBe(true);
    }
  });

  test("cut off, changed, or with something behind", async () => {
    for (const bad of [
      known.subarray(0, -1),
      known.subarray(0, 10),
      Buffer.concat([known, known.subarray(0, 40)]),
      Buffer.concat([known, Buffer.from("and more, which is no frame")]),
      Buffer.concat([known.subarray(0, 40), Buffer.alloc(20), known.subarray(60)]),
    ])
      await expect(read(bad, 1000)).rejects.toMatchObject({ code: expect.stringMatching(/^(?:ZSTD_|Z_|ERR_BUFFER)/) });
  });

  test("a frame that says less than it holds", async () => {
    const lies = Buffer.from(known);
    // its length stands behind the descriptor, in four bytes
    lies.writeUInt32LE(1000, lies[4] === 0xa0 || lies[4] === 0xa4 ? 5 : 6);
    await expect(read(lies, 1000)).rejects.toThrow();
  });
});
