/** What of a place's files is new since the parent: the members of the next archive, and what the parts then hold. */
import { sha256 } from "./digest.ts";
import type { ArchiveEntry } from "./tar-header.ts";
import type { HeldChannel } from "./parent.ts";
import { byBytes, bytesOf, type Raw } from "./raw.ts";
import type { Files, FileState } from "./state.ts";

export interface ChannelPlan {
  /** Empty: the parent's parts hold all of it. */
  readonly entries: readonly ArchiveEntry[];
  /** What each entry must come out as: the digest of the member's own bytes. */
  readonly expect: ReadonlyMap<Raw, string>;
  /** Parts of the parent that stay in use. */
  readonly keep: readonly string[];
  readonly held: Files;
  /** Paths in the parts that are no more. */
  readonly removed: readonly Raw[];
  readonly written: number;
}

/** Files of this size or more travel in segments when they were appended to. */
const SEGMENTED = 8 * 1024 * 1024;
const MOST_PARTS = 12;

export interface ChannelInput {
  readonly files: Files;
  /** Absolute folder that the paths lie below. */
  readonly root: Raw;
  readonly parent: HeldChannel;
  /** Copies that stand in for files that change all the time. */
  readonly copies: ReadonlyMap<Raw, Raw>;
  /** Seconds since 1970, of a file. */
  readonly mtime: (abs: Raw) => number;
  /** Digests of a file's beginning, and of what follows it. */
  readonly split: (abs: Raw, at: number, size: number) => Promise<{ before: string; after: string }>;
}

export async function planChannel(input: ChannelInput): Promise<ChannelPlan> {
  const plan = await plan1(input, input.parent);
  if (plan.entries.length === 0 && plan.removed.length === plan.held.size && plan.held.size > 0)
    return { entries: [], expect: new Map(), keep: [], held: new Map(), removed: [], written: 0 };
  const live = [...input.files.values()].reduce((sum, file) => sum + file.size, 0);
  // What later members replaced is carried along for as long as it is less than what counts.
  const heavy = plan.written > 2 * live + SEGMENTED || plan.keep.length + 1 > MOST_PARTS;
  if (plan.entries.length === 0 || plan.keep.length === 0 || !heavy) return plan;
  return await plan1(input, { parts: [], held: new Map(), written: 0 });
}

async function plan1(input: ChannelInput, parent: HeldChannel): Promise<ChannelPlan> {
  const entries: ArchiveEntry[] = [];
  const expect = new Map<Raw, string>();
  const held: Files = new Map(parent.held);
  let written = parent.written;
  for (const path of [...input.files.keys()].sort(byBytes)) {
    const file = input.files.get(path);
    if (!file) continue;
    const before = parent.held.get(path);
    held.set(path, file);
    if (before && same(before, file)) continue;
    const abs = input.copies.get(path) ?? `${input.root}/${path}`;
    const { entry, digest } = await entryOf(path, file, before, abs, input);
    entries.push(entry);
    expect.set(path, digest);
    written += entry.size;
  }
  const removed = [...held.keys()].filter((path) => !input.files.has(path)).sort(byBytes);
  return { entries, expect, keep: parent.parts, held, removed, written };
}

const same = (a: FileState, b: FileState): boolean =>
  a.kind === b.kind && a.mode === b.mode && a.size === b.size && a.sha256 === b.sha256;

async function entryOf(
  path: Raw,
  file: FileState,
  before: FileState | undefined,
  abs: Raw,
  input: ChannelInput,
): Promise<{ entry: ArchiveEntry; digest: string }> {
  const common = { path: bytesOf(path), mode: file.mode, mtime: input.mtime(abs) };
  if (file.kind === "symlink") {
    const link = bytesOf(file.link ?? "");
    return { entry: { ...common, kind: "symlink", size: 0, link }, digest: sha256(link) };
  }
  if (before?.kind === "file" && before.size >= SEGMENTED && before.size < file.size) {
    const { before: prefix, after } = await input.split(abs, before.size, file.size);
    if (prefix === before.sha256) {
      const content = { file: bytesOf(abs), offset: before.size };
      return {
        entry: { ...common, kind: "file", size: file.size - before.size, segment: before.size, content },
        digest: after,
      };
    }
  }
  return {
    entry: { ...common, kind: "file", size: file.size, content: { file: bytesOf(abs), offset: 0 } },
    digest: file.sha256,
  };
}
