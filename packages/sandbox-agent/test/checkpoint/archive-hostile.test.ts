import { randomBytes } from "node:crypto";
import { readdir, readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { zstdCompressSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { extractArchive, readArchive } from "../../src/checkpoint/archive.ts";
import { Bench, directory, file, forged, header, pax, symbolic, typed } from "./archive-support.ts";

let bench: Bench;
let folder: string;
let root: string;
beforeEach(async () => {
  bench = await Bench.open();
  ({ folder, root } = bench);
});
afterEach(async () => {
  await bench.close();
});

describe("hostile archives", () => {
  const body = Buffer.from("x");
  const cases: Record<string, Buffer> = {
    "an absolute name": forged({ head: header("/tmp/evil", undefined, 1), body }),
    "..": forged({ head: header("a/../../evil", undefined, 1), body }),
    "an empty name": forged({ head: header("", undefined, 1), body }),
    "an absolute name in a pax header": forged(pax("17 path=/tmp/evil\n"), { head: header("a", undefined, 1), body }),
    "a NUL in a pax header": forged(pax("12 path=a\0b\n"), { head: header("a", undefined, 1), body }),
    "a pax record with a wrong length": forged(pax("99 path=a\n"), { head: header("a") }),
    "a pax record that is repeated": forged(pax("10 path=a\n10 path=b\n"), { head: header("a") }),
    "a pax header of an unknown kind": forged(pax("21 GNU.sparse.major=1\n"), { head: header("a") }),
    "a hard link": forged({ head: header("a", typed("1", "/etc/passwd")) }),
    "a device": forged({ head: header("a", typed("3")) }),
    "a FIFO": forged({ head: header("a", typed("6")) }),
    "a global pax header": forged({ head: header("a", typed("g")) }),
    "a GNU long name": forged({ head: header("././@LongLink", typed("L"), 1), body }),
    "a link without a target": forged({ head: header("a", typed("2")) }),
    "a bad checksum": (() => {
      const head = header("a");
      head[0] = 98;
      return forged({ head });
    })(),
    "a size that is no number": forged({ head: header("a", (head) => head.write("99999999999", 124, "latin1")) }),
    "a size that is a lie": forged({ head: header("a", undefined, 1_000_000), body }),
    "no end": zstdCompressSync(header("a")),
    "half an end": zstdCompressSync(Buffer.concat([header("a"), Buffer.alloc(512)])),
    "members after its end": zstdCompressSync(Buffer.concat([header("a"), Buffer.alloc(1024), header("b")])),
    "no zstd": Buffer.from("not an archive at all"),
    nothing: Buffer.alloc(0),
    "cut-off zstd": forged({ head: header("a", undefined, 1), body }).subarray(0, -6),
  };

  it.each(Object.entries(cases))("with %s are refused", async (_name, bytes) => {
    await expect(extractArchive(Readable.from([bytes]), root)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    await expect(readArchive(Readable.from([bytes]), async () => {})).rejects.toMatchObject({
      code: "checkpoint_invalid",
    });
    expect((await readdir(folder)).filter((name) => name !== "root")).toEqual([]);
    expect((await readdir(root)).filter((name) => name !== "a")).toEqual([]);
  });

  it.each([{}, { replace: true }])("do not write through a link of their own (%j)", async (options) => {
    const path = await bench.pack([symbolic("a", folder), file("a/evil", "x")]);
    await expect(bench.unpack(path, options)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readdir(folder)).not.toContain("evil");
  });

  it("do not write through a link that is there already", async () => {
    await symlink(folder, join(root, "a"));
    await expect(bench.unpack(await bench.pack([file("a/evil", "x")], "1"))).rejects.toMatchObject({
      code: "checkpoint_invalid",
    });
    await bench.unpack(await bench.pack([file("a/evil", "x")], "2"), { replace: true });
    expect(await readdir(folder)).not.toContain("evil");
    expect(await readFile(join(root, "a/evil"), "utf8")).toBe("x");
  });

  it("do not write through a folder that they turn into a link on the way", async () => {
    const path = await bench.pack([file("a/one", "1"), directory("b"), symbolic("b", folder), file("b/evil", "x")]);
    await expect(bench.unpack(path)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readdir(folder)).not.toContain("evil");
    const replaced = await bench.pack([file("c/one", "1"), symbolic("c", folder), file("c/evil", "x")], "2");
    await expect(bench.unpack(replaced, { replace: true })).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readdir(folder)).not.toContain("evil");
  });

  it("of zeros without end are cut off at the bound, in little memory", async () => {
    const before = process.memoryUsage().rss;
    const bomb = zstdCompressSync(Buffer.concat([header("bomb", undefined, 200_000_000), Buffer.alloc(200_000_000)]));
    expect(bomb.length).toBeLessThan(100_000);
    await expect(extractArchive(Readable.from([bomb]), root, { maxBytes: 1_000_000 })).rejects.toMatchObject({
      code: "checkpoint_invalid",
      message: expect.stringContaining("more than was announced"),
    });
    expect(await readdir(root)).toEqual([]);
    expect(process.memoryUsage().rss - before).toBeLessThan(500_000_000);
  });

  it("pass a failure of their source on as it is", async () => {
    const source = Readable.from(
      (async function* (): AsyncGenerator<Buffer> {
        yield await readFile(await bench.pack([file("a", randomBytes(100_000))]));
        throw new Error("the source broke");
      })(),
    );
    await expect(extractArchive(source, root)).rejects.toThrow("the source broke");
  });
});
