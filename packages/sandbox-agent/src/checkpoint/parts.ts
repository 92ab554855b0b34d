/** Makes the objects of a checkpoint: sealed or plain files in one folder, with the sizes and digests that the meta names. */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import { join } from "node:path";
import { HangarError, type Part } from "@hangar/shared";
import { bulk } from "./bulk.ts";
import type { Packed, Proof } from "./pack.ts";
import { writeSealed } from "./seal.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import { compress } from "./tar-write.ts";
import type { NewObject } from "./types.ts";

export interface Written {
  readonly part: Part;
  readonly object: NewObject;
}

export class PartWriter {
  readonly #out: string;
  readonly #recipients: readonly string[];
  readonly #signal: AbortSignal | undefined;
  readonly made: Written[] = [];

  constructor(out: string, recipients: readonly string[] | null, signal?: AbortSignal) {
    this.#out = out;
    this.#recipients = recipients ?? [];
    this.#signal = signal;
  }

  /** `name` and its extension make the object's name: `worktree.2` and `.tar.zst`. */
  fileOf(name: string, extension: string): string {
    return `${name}${extension}${this.#recipients.length > 0 ? ".age" : ""}`;
  }

  /** An archive of these entries, proved. */
  async archive(name: string, entries: readonly ArchiveEntry[], proof: Proof): Promise<Packed> {
    const file = this.fileOf(name, ".tar.zst");
    const destination = join(this.#out, file);
    const bytes = entries.reduce((sum, entry) => sum + entry.size, 0);
    const job = { destination, recipients: this.#recipients, entries, proof };
    const packed = await bulk("pack", job, { bytes, signal: this.#signal });
    this.#done(name, file, destination, packed);
    return packed;
  }

  /** `.zst` is appended to the extension where they are compressed. */
  async bytes(name: string, extension: string, bytes: Buffer, compressed: boolean): Promise<Part> {
    const stored = compressed ? compress(bytes) : bytes;
    const file = this.fileOf(name, `${extension}${compressed ? ".zst" : ""}`);
    const path = join(this.#out, file);
    const sealed = await writeSealed(path, this.#recipients, async (out) => out.write(stored));
    return this.#done(name, file, path, sealed);
  }

  /** Of a file that lies elsewhere. */
  async file(name: string, extension: string, source: string): Promise<Part> {
    const file = this.fileOf(name, extension);
    const path = join(this.#out, file);
    const job = { source, destination: path, recipients: this.#recipients };
    return this.#done(
      name,
      file,
      path,
      await bulk("seal", job, { bytes: statSync(source).size, signal: this.#signal }),
    );
  }

  #done(name: string, file: string, path: string, { size, sha256 }: { size: number; sha256: string }): Part {
    const part: Part = { name, file, size, sha256 };
    this.made.push({ part, object: { file, size, sha256, path } });
    return part;
  }
}

/** Of an archive's plain content, whatever its compression makes of it. */
export function digestEntries(entries: readonly ArchiveEntry[]): string {
  const hash = createHash("sha256");
  for (const entry of entries) {
    hash.update(`${entry.path.length} ${entry.size} `).update(entry.path);
    if (entry.content && "bytes" in entry.content) hash.update(entry.content.bytes);
  }
  return hash.digest("hex");
}

/** The next free name of a kind: `worktree`, `worktree.2`, …; of bundles `repo.bundle`, `repo.2.bundle`. */
export function nextName(kind: string, used: readonly string[], ending = ""): string {
  let highest = 0;
  for (const name of used) {
    if (!name.startsWith(kind) || !name.endsWith(ending)) continue;
    const middle = name.slice(kind.length, name.length - ending.length);
    const n = middle === "" ? 1 : /^\.[0-9]+$/.test(middle) ? Number(middle.slice(1)) : 0;
    highest = Math.max(highest, n);
  }
  return highest === 0 ? `${kind}${ending}` : `${kind}.${highest + 1}${ending}`;
}

export const proofFailed = (what: string): HangarError =>
  new HangarError(
    "checkpoint_failed",
    `${what} does not come out of its part as it went in: take the checkpoint again`,
  );
