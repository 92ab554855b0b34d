/** What the tests of archives share: entries by hand, a folder to unpack in, and what is in it. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { zstdCompressSync } from "node:zlib";
import { encodeHeader, padding } from "../../src/checkpoint/tar-header.ts";
import { extractArchive, writeArchive, type ArchiveEntry, type ExtractOptions } from "../../src/checkpoint/archive.ts";

export const run = promisify(execFile);

/** A temporary folder with an empty `root` in it. */
export class Bench {
  readonly folder: string;
  readonly root: string;
  constructor(folder: string) {
    this.folder = folder;
    this.root = join(folder, "root");
  }
  static async open(): Promise<Bench> {
    const bench = new Bench(await mkdtemp(join(tmpdir(), "hangar-archive-")));
    await mkdir(bench.root);
    return bench;
  }
  async close(): Promise<void> {
    await run("chmod", ["-R", "u+w", this.folder]);
    await rm(this.folder, { recursive: true, force: true });
  }
  async pack(entries: ArchiveEntry[], name = "a.tar.zst"): Promise<string> {
    const path = join(this.folder, name);
    await writeArchive(entries, createWriteStream(path));
    return path;
  }
  async unpack(path: string, options: ExtractOptions = {}): Promise<{ paths: Buffer[] }> {
    return await extractArchive(createReadStream(path), this.root, options);
  }
}

const MTIME = 1_700_000_000;
export const raw = (text: string): Buffer => Buffer.from(text, "latin1");
export function file(path: string | Buffer, bytes: Buffer | string, more: Partial<ArchiveEntry> = {}): ArchiveEntry {
  const content = Buffer.from(bytes);
  return {
    path: Buffer.from(path),
    kind: "file",
    mode: 0o644,
    mtime: MTIME,
    size: content.length,
    content: { bytes: content },
    ...more,
  };
}
export const symbolic = (path: string | Buffer, link: string | Buffer): ArchiveEntry => ({
  path: Buffer.from(path),
  kind: "symlink",
  mode: 0o777,
  mtime: MTIME,
  size: 0,
  link: Buffer.from(link),
});
export const directory = (path: string, mode = 0o755): ArchiveEntry => ({
  path: Buffer.from(path),
  kind: "directory",
  mode,
  mtime: MTIME,
  size: 0,
});

/** Everything below a folder: names as Latin-1, modes, times, bytes, targets. */
export async function tree(top: string): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  const walk = async (folder: Buffer, below: string): Promise<void> => {
    for (const name of await readdir(folder, { encoding: "buffer" })) {
      const path = Buffer.concat([folder, Buffer.from("/"), name]);
      const key = below + name.toString("latin1");
      const info = await lstat(path);
      if (info.isSymbolicLink())
        found[key] = ["link", (await readlink(path, { encoding: "buffer" })).toString("latin1")];
      else if (info.isDirectory()) {
        found[key] = ["folder", info.mode & 0o7777];
        await walk(path, `${key}/`);
      } else
        found[key] = [
          "file",
          info.mode & 0o7777,
          Math.floor(info.mtimeMs / 1000),
          createHash("sha1")
            .update(await readFile(path))
            .digest("hex"),
        ];
    }
  };
  await walk(Buffer.from(top), "");
  return found;
}

/** An archive made by hand, past what the writer would refuse. */
export function forged(...members: { head: Buffer; body?: Buffer }[]): Buffer {
  const pieces = members.flatMap(({ head, body = Buffer.alloc(0) }) => [
    head,
    body,
    Buffer.alloc(padding(body.length)),
  ]);
  return zstdCompressSync(Buffer.concat([...pieces, Buffer.alloc(1024)]));
}
export function header(name: string, change: (b: Buffer) => void = () => {}, size = 0): Buffer {
  const head = Buffer.from(encodeHeader(file("placeholder", "", { size })));
  head.fill(0, 0, 100);
  head.write(name, 0, "latin1");
  change(head);
  let sum = 8 * 32;
  for (let i = 0; i < 512; i++) if (i < 148 || i >= 156) sum += head[i] ?? 0;
  head.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return head;
}
export const typed =
  (type: string, link = "") =>
  (head: Buffer): void => {
    head.write(type, 156, "latin1");
    head.write(link, 157, "latin1");
  };
export const pax = (text: string): { head: Buffer; body: Buffer } => {
  const body = Buffer.from(text, "latin1");
  return { head: header("x", typed("x"), body.length), body };
};
