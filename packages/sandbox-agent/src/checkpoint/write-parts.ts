/** Makes the parts of one checkpoint, each proved by what comes out of it again. */
import { rmSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { ArchiveChanged, type ArchiveEntry } from "./archive.ts";
import { type BundlePlan, proveBundle, writeBundle } from "./bundle.ts";
import type { ChannelPlan } from "./channels.ts";
import { sha256 } from "./content.ts";
import type { ConversationRecord } from "./conversation.ts";
import { makeScratch } from "./git.ts";
import type { ObjectsPlan } from "./objects.ts";
import type { ParentState } from "./parent.ts";
import { digestEntries, digestMember, type PartWriter, proofFailed } from "./parts.ts";
import { provesConversation } from "./prove.ts";
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
  const changed: Raw[] = [];
  const seen = new Set<Raw>();
  try {
    // Also without a proof: only what comes out says that no file changed between the look and the copy.
    await writer.archive(name, plan.entries, async (member) => {
      const path = rawOf(member.entry.path);
      seen.add(path);
      if (plan.expect.get(path) !== (await digestMember(member))) changed.push(path);
    });
  } catch (error) {
    if (error instanceof ArchiveChanged) restless.seen.add(`${root}/${rawOf(error.path)}`);
    throw error;
  }
  for (const path of changed) restless.seen.add(`${root}/${path}`);
  const first = changed[0];
  if (first !== undefined) throw new ArchiveChanged(bytesOf(first), "changed");
  if (seen.size !== plan.entries.length) throw proofFailed(`The part ${name}`);
}

/** The new bytes of conversations, proved. */
export async function writeConversations(
  writer: PartWriter,
  name: string,
  record: ConversationRecord,
  entries: readonly ArchiveEntry[],
): Promise<void> {
  const files = new Map(record.files.map((file) => [file.path, file]));
  const sources = new Map(entries.map((entry) => [`${entry.segment ?? 0} ${rawOf(entry.path)}`, entry]));
  let good = 0;
  let changed: Buffer | null = null;
  await writer.archive(name, entries, async (member) => {
    const { entry } = member;
    const file = files.get(toText(rawOf(entry.path)));
    const source = sources.get(`${entry.segment ?? 0} ${rawOf(entry.path)}`);
    if (file && source && (await provesConversation(member, file, source))) good++;
    else changed ??= entry.path;
  });
  if (changed !== null) throw new ArchiveChanged(changed, "changed");
  if (good !== entries.length) throw proofFailed("A conversation");
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
      let members = 0;
      await writer.archive(kind, entries ?? [], async (member) => {
        const source = entries?.[members++]?.content;
        if (!source || !("bytes" in source) || sha256(source.bytes) !== (await digestMember(member)))
          throw proofFailed(`The part ${kind}`);
      });
      if (members !== entries?.length) throw proofFailed(`The part ${kind}`);
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
