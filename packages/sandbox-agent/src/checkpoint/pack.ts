/** Makes one archive part, sealed, and proves it by what comes out of it again. */
import { createHash } from "node:crypto";
import { zstdDecompressSync } from "node:zlib";
import type { RecordedFile } from "./conversation-record.ts";
import { provesConversation } from "./prove.ts";
import { type Raw, rawOf, toText } from "./raw.ts";
import { release } from "./release.ts";
import { type SealedFile, writeSealed } from "./seal.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import { type Member, readPlainMembers } from "./tar-read.ts";
import { archiveBlocks } from "./tar-write.ts";

export interface PackJob {
  /** Must not exist. */
  readonly destination: string;
  /** None: it stays plain. */
  readonly recipients: readonly string[];
  readonly entries: readonly ArchiveEntry[];
  readonly proof: Proof;
}

/** What each member must come out as. */
export type Proof =
  /** By path: the digest of the member's own bytes, or of a link's target. */
  | { readonly of: "digests"; readonly expect: ReadonlyMap<Raw, string> }
  | { readonly of: "conversations"; readonly files: readonly RecordedFile[] };

export interface Packed extends SealedFile {
  /** How many members came out as they must. */
  readonly good: number;
  /** Those that came out otherwise. */
  readonly changed: readonly Raw[];
}

/** @throws ArchiveChanged: an entry went away or shrank. */
export async function pack(job: PackJob, signal?: AbortSignal): Promise<Packed> {
  const entries = job.entries.map(withBuffers);
  const proves = prover(job.proof, entries);
  let good = 0;
  const changed: Raw[] = [];
  const { size, sha256 } = await writeSealed(job.destination, job.recipients, async (out) => {
    // What is proved is what comes out of the stored bytes, block by block, as soon as they are written.
    const back = async function* (): AsyncGenerator<Buffer> {
      for await (const { plain, stored } of archiveBlocks(entries, { entries: 0, bytes: 0 }, signal)) {
        out.write(stored);
        const again = zstdDecompressSync(stored, { chunkSize: plain.length, maxOutputLength: plain.length });
        yield again;
        release(again);
      }
    };
    await readPlainMembers(back(), async (member) => {
      if (await proves(member)) good++;
      else changed.push(rawOf(member.entry.path));
    });
  });
  return { size, sha256, good, changed };
}

function prover(proof: Proof, entries: readonly ArchiveEntry[]): (member: Member) => Promise<boolean> {
  if (proof.of === "digests")
    return async (member) => proof.expect.get(rawOf(member.entry.path)) === (await digestMember(member));
  const files = new Map(proof.files.map((file) => [file.path, file]));
  const key = (entry: ArchiveEntry): string => `${entry.segment ?? 0} ${rawOf(entry.path)}`;
  const sources = new Map(entries.map((entry) => [key(entry), entry]));
  return async (member) => {
    const file = files.get(toText(rawOf(member.entry.path)));
    const source = sources.get(key(member.entry));
    return file !== undefined && source !== undefined && (await provesConversation(member, file, source));
  };
}

/** Hex; of a member's bytes, or of a link's target. */
export async function digestMember({ entry, content }: Member): Promise<string> {
  const hash = createHash("sha256");
  if (entry.kind === "symlink") hash.update(entry.link ?? "");
  else for await (const piece of content()) hash.update(piece);
  return hash.digest("hex");
}

/** On its way to another thread a Buffer becomes a plain Uint8Array. */
function withBuffers(entry: ArchiveEntry): ArchiveEntry {
  if (Buffer.isBuffer(entry.path)) return entry;
  const { path, link, content } = entry;
  return {
    ...entry,
    path: asBuffer(path),
    ...(link && { link: asBuffer(link) }),
    ...(content && {
      content: "file" in content ? { ...content, file: asBuffer(content.file) } : { bytes: asBuffer(content.bytes) },
    }),
  };
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
