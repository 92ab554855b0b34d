/** Makes the parts of one checkpoint, each proved by what comes out of it again. */
import { rmSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { ArchiveChanged, type ArchiveEntry } from "./archive.ts";
import { type BundlePlan, proveBundle, writeBundle } from "./bundle.ts";
import type { ChannelPlan } from "./channels.ts";
import { sha256 } from "./digest.ts";
import type { ConversationRecord } from "./conversation.ts";
import { makeScratch } from "./git.ts";
import type { ObjectsPlan } from "./objects.ts";
import type { ParentState } from "./parent.ts";
import type { Packed } from "./pack.ts";
import { digestEntries, type PartWriter, proofFailed } from "./parts.ts";
import { bytesOf, fsPath, type Raw, rawOf, stringPath, toText } from "./raw.ts";
import type { Restless } from "./restless.ts";
import type { Scan } from "./scan.ts";

/** An archive of files, proved; what changed meanwhile is noted as restless and thrown as `ArchiveChanged`. */
export async function writeChannel(
  writer: PartWriter,
  restless: Restless,
  root: Raw,
  name: string,
  plan: ChannelPlan,
): Promise<void> {
  let packed: Packed;
  try {
    packed = await writer.archive(name, plan.entries, { of: "digests", expect: plan.expect });
  } catch (error) {
    if (error instanceof ArchiveChanged) restless.seen.add(`${root}/${rawOf(error.path)}`);
    throw error;
  }
  for (const path of packed.changed) restless.seen.add(`${root}/${path}`);
  allGood(packed, plan.entries.length, `The part ${name}`);
}

function allGood({ changed, good }: Packed, count: number, what: string): void {
  const [first] = changed;
  if (first !== undefined) throw new ArchiveChanged(bytesOf(first), "changed");
  if (good !== count) throw proofFailed(what);
}

/** The new bytes of conversations, proved. */
export async function writeConversations(
  writer: PartWriter,
  name: string,
  record: ConversationRecord,
  entries: readonly ArchiveEntry[],
): Promise<void> {
  // Of those only: a home may hold many thousands of others.
  const sent = new Set(entries.map((entry) => toText(rawOf(entry.path))));
  const files = record.files.filter((file) => sent.has(file.path));
  allGood(await writer.archive(name, entries, { of: "conversations", files }), entries.length, "A conversation");
}

/** New objects of a repository, made at `path` and, where asked, proved there. */
export async function writeObjects(
  writer: PartWriter,
  scan: Scan,
  name: string,
  objects: ObjectsPlan,
  plan: BundlePlan,
  options: { path: Raw; home: string; prove: boolean; signal?: AbortSignal | undefined },
): Promise<void> {
  const own = scan.scans[objects.tree];
  const tree = scan.trees[objects.tree];
  if (!own || !tree) throw new HangarError("internal", "a repository was not read");
  const { path, signal } = options;
  await writeBundle(own.scratch, tree.objectFormat, plan, { path, partial: own.partial, signal });
  if (options.prove) {
    const proof = makeScratch({
      dir: `${path}.proof`,
      home: options.home,
      objectFormat: tree.objectFormat,
      objects: [`${own.dirs.commonDir}/objects`, `${own.scratch.dir}/objects`],
      shallow: tree.gitFiles.get("shallow") ?? null,
    });
    await proveBundle(path, plan, proof, { partial: own.partial, signal });
    rmSync(fsPath(proof.dir), { recursive: true, force: true });
  }
  await writer.file(name, "", stringPath(path));
}

interface Whole {
  readonly extension: string;
  readonly bytes?: Buffer;
  readonly entries?: readonly ArchiveEntry[];
}
interface Held {
  readonly part: string;
  readonly sha256: string;
}

/** Parts that are made whole each time, or referenced when nothing in them changed. */
export async function writeWhole(
  writer: PartWriter,
  parent: ParentState | null,
  wanted: Record<string, Whole>,
): Promise<Record<string, Held>> {
  const one = async (kind: string, { extension, bytes, entries }: Whole): Promise<Held | null> => {
    if (bytes && bytes.length === 0) return null;
    const digest = bytes ? sha256(bytes) : digestEntries(entries ?? []);
    const before = parent?.whole[kind];
    if (before?.sha256 === digest) return before;
    if (bytes) await writer.bytes(kind, extension, bytes, true);
    else {
      const expect = new Map(
        (entries ?? []).map(({ path, content }) => [
          rawOf(path),
          sha256(content && "bytes" in content ? content.bytes : ""),
        ]),
      );
      const { good } = await writer.archive(kind, entries ?? [], { of: "digests", expect });
      if (good !== entries?.length) throw proofFailed(`The part ${kind}`);
    }
    return { part: kind, sha256: digest };
  };
  const kinds = Object.entries(wanted);
  const made = await Promise.allSettled(kinds.map(([kind, what]) => one(kind, what)));
  const done: Record<string, Held> = {};
  for (const [i, result] of made.entries()) {
    if (result.status === "rejected") throw result.reason;
    if (result.value !== null) done[kinds[i]?.[0] ?? ""] = result.value;
  }
  return done;
}
