/** What can be done in a thread of its own: plain data in, plain data out. */
import { type Digest, digestOf, splitOf } from "./digest.ts";
import { piecesOf } from "./pieces.ts";
import { type ExtractRule, rulesOf } from "./extract-rules.ts";
import { type Packed, pack, type PackJob } from "./pack.ts";
import { type Raw, rawOf } from "./raw.ts";
import { openPieces, sealFile, type SealedFile } from "./seal.ts";
import { extractArchive } from "./tar-extract.ts";

export interface Jobs {
  /** Of a file as it is; `oid`: also the id that git would give it. */
  digest: { input: { path: Raw; size: number; oid: "sha1" | "sha256" | null }; output: Digest };
  /** Of the bytes before `at`, and of those from there to `size`. */
  split: { input: { path: Raw; at: number; size: number }; output: { before: string; after: string } };
  /** Of an open file, which stays open for as long: all threads of a process share its descriptors. */
  pieces: { input: { fd: number; size: number; known: readonly string[] }; output: string[] };
  pack: { input: PackJob; output: Packed };
  seal: { input: { source: string; destination: string; recipients: readonly string[] }; output: SealedFile };
  extract: { input: ExtractJob; output: Extracted };
}

export interface ExtractJob {
  /** The stored file. */
  readonly stored: string;
  /** None: it is plain. */
  readonly identities: readonly string[] | null;
  readonly root: string;
  readonly times: "kept" | "now";
  readonly rule: ExtractRule;
}

export interface Extracted {
  /** What was written, in the archive's order. */
  readonly paths: Raw[];
  /** Of all members' contents, also of what was not wanted. */
  readonly bytes: number;
}

type Job<K extends keyof Jobs> = (input: Jobs[K]["input"], signal?: AbortSignal) => Promise<Jobs[K]["output"]>;

export const JOBS: { readonly [K in keyof Jobs]: Job<K> } = {
  digest: async ({ path, size, oid }) => await digestOf(path, size, oid),
  split: async ({ path, at, size }) => await splitOf(path, at, size),
  pieces: async ({ fd, size, known }) => await piecesOf(fd, size, known),
  pack,
  seal: async ({ source, destination, recipients }) => await sealFile(source, destination, recipients),
  extract: async ({ stored, identities, root, times, rule }, signal) => {
    const rules = rulesOf(rule);
    const source = openPieces(stored, identities);
    const { paths } = await extractArchive(source, root, { times, replace: true, ...rules, ...(signal && { signal }) });
    return { paths: paths.map(rawOf), bytes: rules.bytes() };
  },
};
