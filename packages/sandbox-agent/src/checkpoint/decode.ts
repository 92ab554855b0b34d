/** What a checkpoint says and holds, read from its parts. */
import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import { HangarError } from "@hangar/shared";
import { readBundleHeader } from "./bundle.ts";
import { conversationDigest } from "./conversation.ts";
import { decodeDocument, encodeDocument, type StateDocument } from "./document.ts";
import type { Meta } from "./meta.ts";
import { bundleKey } from "./objects.ts";
import type { HeldBundles, HeldChannel, ParentState } from "./parent.ts";
import { digestMember } from "./pack.ts";
import { digestEntries } from "./parts.ts";
import { rawOf } from "./raw.ts";
import type { Spool } from "./spool.ts";
import { CHANNELS, type Channel, type Channels, type Files, noFiles, type WorkspaceState } from "./state.ts";
import { readMembers } from "./tar-read.ts";
import { decompressed, isZstdError } from "./zstd-frames.ts";

export const STATE_PART = "git-state";

export const readDocument = async (spool: Spool): Promise<StateDocument> =>
  decodeDocument(await spool.members(STATE_PART));

/** Reads every member of the file archives: what is there once all are unpacked. */
export async function readChannels(spool: Spool, document: StateDocument): Promise<Record<Channel, HeldChannel>> {
  const channels = {} as Record<Channel, HeldChannel>;
  for (const channel of CHANNELS) {
    const { parts } = document.channels[channel];
    const held: Files = new Map();
    let written = 0;
    for (const name of parts)
      await readMembers(await spool.open(name), async (member) => {
        const { entry } = member;
        const path = rawOf(entry.path);
        written += entry.size;
        if (entry.kind === "directory") return;
        const before = held.get(path);
        if (entry.segment !== undefined && entry.segment > 0) {
          // Its digest is over bytes of two parts: not known without both.
          if (before?.size !== entry.segment)
            throw new HangarError("checkpoint_invalid", `A segment in ${name} has nothing before it`);
          held.set(path, { ...before, mode: entry.mode, size: entry.segment + entry.size, sha256: UNKNOWN });
          return;
        }
        const digest = await digestMember(member);
        held.set(path, {
          kind: entry.kind,
          mode: entry.kind === "symlink" ? 0o777 : entry.mode,
          size: entry.size,
          sha256: digest,
          ...(entry.link && { link: rawOf(entry.link) }),
        });
      });
    channels[channel] = { parts, held, written };
  }
  return channels;
}

/** Of a file whose digest was not computed; equal to none. */
const UNKNOWN = "0".repeat(64);

/** The files of a channel that count. */
export function liveFiles(channels: Record<Channel, HeldChannel>, document: StateDocument): Channels {
  const files = noFiles();
  for (const channel of CHANNELS) {
    const removed = new Set(document.channels[channel].removed);
    for (const [path, file] of channels[channel].held) if (!removed.has(path)) files[channel].set(path, file);
  }
  return files;
}

export async function readState(spool: Spool, meta: Meta, document: StateDocument): Promise<WorkspaceState> {
  const channels = await readChannels(spool, document);
  return {
    trees: document.trees,
    files: liveFiles(channels, document),
    conversations: conversationDigest(meta.conversations),
  };
}

/** Longest part for people that is read, plain bytes. */
const MOST_FOR_PEOPLE = 64 * 1024 * 1024;

/** None: it is no such part. Nothing is restored from it, and the next checkpoint makes its own. */
async function digestForPeople(stored: Readable): Promise<string | null> {
  const hash = createHash("sha256");
  let left = MOST_FOR_PEOPLE;
  try {
    for await (const piece of decompressed(stored)) {
      left -= piece.length;
      if (left < 0) return null;
      hash.update(piece);
    }
  } catch (error) {
    if (!isZstdError(error)) throw error;
    return null;
  }
  return hash.digest("hex");
}

/** The parent that a checkpoint is to the next one, from its parts alone. */
export async function parentFrom(
  spool: Spool,
  meta: Meta,
  document: StateDocument,
  channels: Record<Channel, HeldChannel>,
): Promise<ParentState> {
  const bundles = new Map<string, HeldBundles>();
  for (const [n, tree] of document.trees.entries()) {
    const parts = document.bundles[n] ?? [];
    if (tree.kind === "linked") continue;
    const tips = new Set<string>();
    const prerequisites = new Set<string>();
    for (const name of parts) {
      const bundle = readBundleHeader(await spool.plainFile(name));
      for (const [, oid] of bundle.heads) tips.add(oid);
      for (const oid of bundle.prerequisites) if (!tips.has(oid)) prerequisites.add(oid);
    }
    bundles.set(bundleKey(tree), { parts, tips: [...tips], prerequisites: [...prerequisites] });
  }
  const whole: Record<string, { part: string; sha256: string }> = {
    [STATE_PART]: { part: STATE_PART, sha256: digestEntries(encodeDocument(document)) },
  };
  for (const name of ["wip.patch", "review.json"]) {
    if (!spool.has(name)) continue;
    const sha256 = await digestForPeople(await spool.open(name));
    if (sha256 !== null) whole[name] = { part: name, sha256 };
  }
  return { meta, channels, bundles, whole };
}
