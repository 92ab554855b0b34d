/** Checkpoints in plain folders, made to lie by someone who can write all of their files. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { createZstdCompress } from "node:zlib";
import type { ArchiveEntry } from "../../src/checkpoint/archive.ts";
import type { Meta } from "../../src/checkpoint/engine.ts";
import { encodeHeader } from "../../src/checkpoint/tar-header.ts";
import { digest } from "./support.ts";

/** What it answers, or what it made of the meta, is the meta from then on. */
export function changeMeta(dir: string, change: (meta: Meta) => unknown): void {
  const meta = JSON.parse(readFileSync(join(dir, "meta.json"), "utf8")) as Meta;
  put(join(dir, "meta.json"), JSON.stringify(change(meta) ?? meta));
}

/** Puts other bytes in a part's place, its size and digest in the meta being those of the new bytes. */
export function forge(dir: string, name: string, bytes: Buffer): void {
  changeMeta(dir, (meta) => ({
    ...meta,
    parts: meta.parts.map((part) => {
      if (part.name !== name) return part;
      put(join(dir, part.file), bytes);
      return { ...part, size: bytes.length, sha256: digest(bytes) };
    }),
  }));
}

/** A file of its own: objects of several checkpoints may be one file. */
export function put(path: string, bytes: Buffer | string): void {
  rmSync(path, { force: true });
  writeFileSync(path, bytes);
}

/** An archive of one member: ten gigabytes of zeros, in a few kilobytes. */
export async function tenGigabytes(entry: ArchiveEntry): Promise<Buffer> {
  const zeros = Buffer.alloc(1 << 20);
  const tar = function* (): Generator<Buffer> {
    yield encodeHeader({ ...entry, size: 10 * 2 ** 30 });
    for (let i = 0; i < 10 * 1024; i++) yield zeros;
    yield Buffer.alloc(1024);
  };
  return await buffer(Readable.from(tar()).pipe(createZstdCompress()));
}
