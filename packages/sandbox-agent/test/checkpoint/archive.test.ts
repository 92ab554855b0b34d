import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import { appendFile, lstat, mkdir, readdir, readFile, rm, stat, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { memberName, readArchive, writeArchive, type ArchiveEntry } from "../../src/checkpoint/archive.ts";
import { Bench, directory, file, raw, run, symbolic, tree } from "./archive-support.ts";

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

const ODD: ArchiveEntry[] = [
  file("plain.txt", "plain\n"),
  file("empty", ""),
  file("exactly a block", Buffer.alloc(512, "b")),
  file("run.sh", "#!/bin/sh\n", { mode: 0o755 }),
  file("read-only", "r", { mode: 0o444 }),
  file("private", "p", { mode: 0o600 }),
  file(raw("latin-\xe9-\xff\xfe.txt"), "not UTF-8"),
  file("utf8-é-日本.txt", "UTF-8"),
  file("new\nline\ttab and 'quotes\" \\ back", "odd"),
  file("-rf", "dash"),
  file(`long/${"d".repeat(90)}/${"e".repeat(90)}/${"f".repeat(90)}.txt`, "splits or not"),
  file("n".repeat(100), "100 bytes"),
  file("m".repeat(101), "101 bytes"),
  file(raw(`${"\xe9".repeat(150)}/${"\xff".repeat(120)}`), "long and not UTF-8"),
  file(`é${"ü".repeat(110)}`, "long UTF-8"),
  symbolic("link", "plain.txt"),
  symbolic("dangling", "/nowhere/at/all"),
  symbolic(raw("link-\xe9"), raw("target-\xff")),
  symbolic("long link", "t".repeat(300)),
  directory("folder", 0o700),
  file("folder/inside", "inside"),
  directory("shut", 0o555),
  file("shut/inside", "inside a folder that takes no files"),
  file("old", "before 1970", { mtime: -5 }),
  file("named like a segment@000000000000007", "a real name"),
];

describe("what is written", () => {
  it("comes back byte for byte", async () => {
    const { paths } = await bench.unpack(await bench.pack(ODD));
    expect(paths.map((path) => path.toString("latin1"))).toEqual(ODD.map(({ path }) => path.toString("latin1")));
    const found = await tree(root);
    for (const entry of ODD) {
      const got = found[entry.path.toString("latin1")];
      if (entry.kind === "symlink") expect(got).toEqual(["link", entry.link?.toString("latin1")]);
      else if (entry.kind === "directory") expect(got).toEqual(["folder", entry.mode]);
      else {
        const bytes = entry.content && "bytes" in entry.content ? entry.content.bytes : Buffer.alloc(0);
        expect(got).toEqual(["file", entry.mode, entry.mtime, createHash("sha1").update(bytes).digest("hex")]);
      }
    }
  });

  it.each(["C", "C.UTF-8"])("is unpacked the same by zstd and tar under %s", async (LC_ALL) => {
    const path = await bench.pack(ODD);
    const other = join(folder, "by-tar");
    await mkdir(other);
    await run("sh", ["-c", `zstd -dc "$1" | tar -x -p -C "$2"`, "sh", path, other], {
      env: { ...process.env, LC_ALL },
    });
    await bench.unpack(path);
    const [ours, theirs] = [await tree(root), await tree(other)];
    const name = "named like a segment@000000000000007";
    theirs[name] = theirs[`${name}@000000000000000`];
    delete theirs[`${name}@000000000000000`];
    expect(theirs).toEqual(ours);
  });

  it("is the same bytes for the same entries", async () => {
    const [one, two] = [await readFile(await bench.pack(ODD, "1")), await readFile(await bench.pack(ODD, "2"))];
    expect(one.equals(two)).toBe(true);
  });

  it("says how many bytes of tar it is", async () => {
    const out = new PassThrough();
    out.resume();
    const { entries, bytes } = await writeArchive([file("a", "x".repeat(600)), directory("d")], out);
    expect([entries, bytes]).toEqual([2, 512 + 1024 + 512 + 1024]);
  });

  it.each(["", "/etc/passwd", "../up", "a/../b", "a//b", "./a", "a/", "nul\0nul"])(
    "refuses the name %j",
    async (name) => {
      const out = new PassThrough();
      await expect(writeArchive([file(name, "x")], out)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    },
  );
});

describe("files that are read from disk", () => {
  const entryOf = (path: string, size: number, offset = 0): ArchiveEntry =>
    file("name", "", { size, content: { file: Buffer.from(path), offset } });

  it.each([10, 300_000, 5_000_000])("takes %d bytes, from an offset on, and no more than announced", async (size) => {
    const source = join(folder, "source");
    const bytes = randomBytes(size + 100);
    await writeFile(source, bytes);
    await bench.unpack(await bench.pack([entryOf(source, size, 50)]));
    expect((await readFile(join(root, "name"))).equals(bytes.subarray(50, 50 + size))).toBe(true);
  });

  it.each([10, 1_000_000])("says that a file of %d bytes shrank, went away, or became something else", async (size) => {
    const source = join(folder, "source");
    await writeFile(source, Buffer.alloc(size));
    await truncate(source, size - 1);
    await expect(bench.pack([entryOf(source, size)], "1")).rejects.toMatchObject({ name: "ArchiveChanged" });
    await rm(source);
    await expect(bench.pack([entryOf(source, size)], "2")).rejects.toMatchObject({ name: "ArchiveChanged" });
    await symlink("/etc/passwd", source);
    await expect(bench.pack([entryOf(source, size)], "3")).rejects.toMatchObject({ name: "ArchiveChanged" });
    await rm(source);
    await run("mkfifo", [source]);
    await expect(bench.pack([entryOf(source, size)], "4")).rejects.toMatchObject({ name: "ArchiveChanged" });
  });
});

describe("segments", () => {
  it("are put behind what is there, and by hand with cat", async () => {
    const first = await bench.pack([file("log", "one\n"), file("other", "whole")], "1");
    const second = await bench.pack([file("log", "two\n", { segment: 4 })], "2");
    const third = await bench.pack([file("log", "three\n", { segment: 8 })], "3");
    for (const path of [first, second, third]) await bench.unpack(path);
    expect(await readFile(join(root, "log"), "utf8")).toBe("one\ntwo\nthree\n");
    const hand = join(folder, "hand");
    await mkdir(hand);
    for (const path of [first, second, third])
      await run("sh", ["-c", `zstd -dc "$1" | tar -x -C "$2"`, "sh", path, hand]);
    const { stdout } = await run("sh", ["-c", "cat log log@*"], { cwd: hand });
    expect(stdout).toBe("one\ntwo\nthree\n");
  });

  it("are refused where bytes before them are missing or too many", async () => {
    await bench.unpack(await bench.pack([file("log", "one\n")], "1"));
    const gap = await bench.pack([file("log", "x", { segment: 5 })], "2");
    const overlap = await bench.pack([file("log", "x", { segment: 3 })], "3");
    const nothing = await bench.pack([file("none", "x", { segment: 3 })], "4");
    for (const path of [gap, overlap, nothing])
      await expect(bench.unpack(path)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readFile(join(root, "log"), "utf8")).toBe("one\n");
  });

  it("do not follow a link in the file's place", async () => {
    await writeFile(join(folder, "outside"), "abc");
    await symlink(join(folder, "outside"), join(root, "log"));
    await expect(bench.unpack(await bench.pack([file("log", "x", { segment: 3 })]))).rejects.toMatchObject({
      code: "checkpoint_invalid",
    });
    expect(await readFile(join(folder, "outside"), "utf8")).toBe("abc");
  });

  it("have names that sort in order", () => {
    const names = [0, 9, 10, 123_456_789_012].map((segment) => memberName(file("a", "", { segment })).toString());
    expect([...names].sort()).toEqual(names);
  });
});

describe("unpacking", () => {
  it("replaces a file whole, whoever has it open", async () => {
    await writeFile(join(root, "a"), "old content");
    const before = await stat(join(root, "a"));
    await bench.unpack(await bench.pack([file("a", "new", { mode: 0o600 })]));
    expect(await readFile(join(root, "a"), "utf8")).toBe("new");
    expect((await stat(join(root, "a"))).ino).not.toBe(before.ino);
  });

  it("replaces a link, not what it leads to", async () => {
    await writeFile(join(folder, "outside"), "outside");
    await symlink(join(folder, "outside"), join(root, "a"));
    await bench.unpack(await bench.pack([file("a", "new")]));
    expect(await readFile(join(folder, "outside"), "utf8")).toBe("outside");
    expect((await lstat(join(root, "a"))).isFile()).toBe(true);
  });

  it("changes kinds only where that is asked for", async () => {
    await mkdir(join(root, "was-folder/deep"), { recursive: true });
    await writeFile(join(root, "was-file"), "x");
    await mkdir(join(root, "empty-folder"));
    const path = await bench.pack([
      file("was-folder", "now a file"),
      file("was-file/inside", "now a folder"),
      file("empty-folder", "file"),
    ]);
    await expect(bench.unpack(path)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    await bench.unpack(path, { replace: true });
    expect(await readFile(join(root, "was-folder"), "utf8")).toBe("now a file");
    expect(await readFile(join(root, "was-file/inside"), "utf8")).toBe("now a folder");
    expect(await readFile(join(root, "empty-folder"), "utf8")).toBe("file");
  });

  it("gives files the present time where that is asked for", async () => {
    const before = Math.floor(Date.now() / 1000);
    await bench.unpack(await bench.pack([file("a", "x")]), { times: "now" });
    expect((await stat(join(root, "a"))).mtimeMs / 1000).toBeGreaterThanOrEqual(before);
  });

  it("skips what is not wanted and refuses what its caller refuses", async () => {
    const path = await bench.pack([file("a", "a"), file("b", "b".repeat(10_000)), file("c", "c")]);
    await bench.unpack(path, { want: (entry: ArchiveEntry) => entry.path.toString() !== "b" });
    expect((await readdir(root)).sort()).toEqual(["a", "c"]);
    const check = (entry: ArchiveEntry): void => {
      if (entry.path.toString() === "c") throw new Error("no c");
    };
    await expect(bench.unpack(path, { check })).rejects.toThrow("no c");
  });

  it("ends with its signal", async () => {
    const controller = new AbortController();
    controller.abort(new Error("enough"));
    await expect(bench.unpack(await bench.pack([file("a", "a")]), { signal: controller.signal })).rejects.toThrow();
  });
});

it("gives each member's content as a stream and skips what is not read", async () => {
  const big = randomBytes(1_000_000);
  const path = await bench.pack([file("a", big), file("b", "b"), symbolic("c", "a"), file("d", big)]);
  const seen: [string, number][] = [];
  await readArchive(createReadStream(path), async (entry, content) => {
    let length = 0;
    if (entry.path.toString() === "d") for await (const piece of content) length += (piece as Buffer).length;
    seen.push([entry.path.toString(), length]);
  });
  expect(seen).toEqual([
    ["a", 0],
    ["b", 0],
    ["c", 0],
    ["d", big.length],
  ]);
});

it("goes on with the next member where a member's stream is left half read", async () => {
  const big = randomBytes(3_000_000);
  const entries = Array.from({ length: 12 }, (_, i) => file(`f${i}`, big));
  const path = await bench.pack(entries);
  const seen: string[] = [];
  await readArchive(createReadStream(path), async (entry, content) => {
    await once(content, "readable");
    const first = content.read() as Buffer;
    expect(big.subarray(0, first.length).equals(first)).toBe(true);
    seen.push(entry.path.toString());
  });
  expect(seen).toEqual(entries.map((entry) => entry.path.toString()));
});

it("copies a file that grows meanwhile up to the size announced", async () => {
  const source = join(folder, "growing");
  await writeFile(source, "announced");
  const entries = async function* (): AsyncGenerator<ArchiveEntry> {
    await appendFile(source, " and more");
    yield file("a", "", { size: 9, content: { file: Buffer.from(source), offset: 0 } });
  };
  const path = join(folder, "out");
  await writeArchive(entries(), createWriteStream(path));
  await bench.unpack(path);
  expect(await readFile(join(root, "a"), "utf8")).toBe("announced");
});
