/** The stored objects of a checkpoint, each checked against the size and digest that the meta names before it is used. */
import { createHash } from "node:crypto";
import { createWriteStream, statSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { HangarError, type Part } from "@hangar/shared";
import { inParallel } from "../parallel.ts";
import { bulk } from "./bulk.ts";
import type { Extracted } from "./bulk-jobs.ts";
import type { ExtractRule } from "./extract-rules.ts";
import type { Meta } from "./meta.ts";
import { type Raw, rawFrom, rawOf } from "./raw.ts";
import { openFile, openStream } from "./seal.ts";
import { readMembers } from "./tar-read.ts";
import type { PartSource } from "./types.ts";

export class Spool {
  readonly #meta: Meta;
  readonly #source: PartSource;
  readonly #folder: string;
  readonly #identities: readonly string[] | null;
  readonly #signal: AbortSignal | undefined;
  readonly #paths = new Map<string, string>();

  constructor(of: {
    meta: Meta;
    source: PartSource;
    folder: string;
    identities: readonly string[] | null;
    signal?: AbortSignal | undefined;
  }) {
    this.#meta = of.meta;
    this.#source = of.source;
    this.#folder = of.folder;
    this.#identities = of.identities;
    this.#signal = of.signal;
  }

  /** Brings these parts here and checks them; all of them, or `checkpoint_invalid` for the first that is not as announced. */
  async fetch(names: readonly string[]): Promise<void> {
    const signal = this.#signal ?? new AbortController().signal;
    await inParallel(2, names, signal, async (name) => void (await this.#fetch(this.part(name))));
  }

  part(name: string): Part {
    const part = this.#meta.parts.find((one) => one.name === name);
    if (!part) throw damaged(`it has no part ${name}`);
    return part;
  }

  has(name: string): boolean {
    return this.#meta.parts.some((one) => one.name === name);
  }

  /** Unpacks an archive's members, of about so many plain bytes, below `root`. */
  async extract(
    name: string,
    root: string,
    times: "kept" | "now",
    rule: ExtractRule,
    bytes: number,
  ): Promise<Extracted> {
    const part = this.part(name);
    const stored = this.#paths.get(name) ?? (await this.#fetch(part));
    const identities = part.file.endsWith(".age") ? (this.#identities ?? noIdentity()) : null;
    return await bulk(
      "extract",
      { stored, identities, root, times, rule },
      { bytes: Math.max(bytes, part.size), signal: this.#signal },
    );
  }

  /** The plain bytes. */
  async open(name: string): Promise<Readable> {
    const part = this.part(name);
    const path = this.#paths.get(name) ?? (await this.#fetch(part));
    return openFile(path, part.file.endsWith(".age") ? (this.#identities ?? noIdentity()) : null);
  }

  /** A file of the plain bytes. */
  async plainFile(name: string): Promise<Raw> {
    const part = this.part(name);
    const path = this.#paths.get(name) ?? (await this.#fetch(part));
    if (!part.file.endsWith(".age")) return rawFrom(path);
    const plain = join(this.#folder, `plain-${part.file}`);
    await pipeline(await this.open(name), createWriteStream(plain, { flags: "w", mode: 0o600 }));
    return rawFrom(plain);
  }

  /** All members of a small archive. */
  async members(name: string): Promise<Map<Raw, Buffer>> {
    const members = new Map<Raw, Buffer>();
    let left = 512 * 1024 * 1024;
    await readMembers(await this.open(name), async ({ entry, content }) => {
      left -= entry.size;
      if (entry.kind !== "file" || left < 0) throw damaged(`the part ${name} holds what it may not`);
      const pieces: Buffer[] = [];
      for await (const piece of content()) pieces.push(Buffer.from(piece));
      members.set(rawOf(entry.path), Buffer.concat(pieces));
    });
    return members;
  }

  async #fetch(part: Part): Promise<string> {
    const known = this.#paths.get(part.name);
    if (known !== undefined) return known;
    const source = await this.#source(part);
    let size = 0;
    let digest = "";
    let path: string;
    if ("path" in source) {
      ({ path } = source);
      const there = statSync(path, { throwIfNoEntry: false });
      if (!there?.isFile()) throw damaged(`the object ${part.file} is not there (${path})`);
      ({ size } = there);
      if (size === part.size) {
        const job = { path: rawFrom(path), size, oid: null };
        digest = (await bulk("digest", job, { bytes: size, signal: this.#signal })).sha256;
      }
    } else {
      const hash = createHash("sha256");
      const check = async function* (bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
        for await (const piece of bytes) {
          hash.update(piece);
          size += piece.length;
          if (size > part.size) throw damaged(`the object ${part.file} is longer than announced`);
          yield piece;
        }
      };
      path = join(this.#folder, `${part.name}.stored`);
      const options = this.#signal ? { signal: this.#signal } : {};
      await pipeline(source, check, createWriteStream(path, { flags: "w", mode: 0o600 }), options);
      digest = hash.digest("hex");
    }
    if (size !== part.size) throw damaged(`the object ${part.file} has ${size} bytes instead of ${part.size}`);
    if (digest !== part.sha256) throw damaged(`the object ${part.file} has another digest than announced`);
    this.#paths.set(part.name, path);
    return path;
  }
}

/** The meta's plain bytes: sealed when they begin as an age file does. */
export async function openMeta(stored: Uint8Array, identities: readonly string[] | null): Promise<Buffer> {
  const bytes = Buffer.from(stored);
  if (!bytes.subarray(0, 22).equals(Buffer.from("age-encryption.org/v1\n"))) return bytes;
  const opener = await openStream(identities ?? noIdentity());
  const pieces: Buffer[] = [];
  await pipeline([bytes], opener, async (plain: AsyncIterable<Buffer>) => {
    for await (const piece of plain) pieces.push(piece);
  });
  return Buffer.concat(pieces);
}

function noIdentity(): never {
  throw new HangarError("checkpoint_invalid", "The checkpoint is sealed: give its identity (--identity FILE)");
}

const damaged = (why: string): HangarError =>
  new HangarError("checkpoint_invalid", `The checkpoint is damaged or forged: ${why}`);
