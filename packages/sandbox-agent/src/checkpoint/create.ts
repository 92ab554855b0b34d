/** Takes a checkpoint: look, copy, prove, look again. */

import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HangarError, type Part } from "@hangar/shared";
import { ArchiveChanged, type ArchiveEntry } from "./archive.ts";
import { type BundlePlan, mergeBase } from "./bundle.ts";
import { type ChannelPlan, planChannel } from "./channels.ts";
import { Clock } from "./clock.ts";
import { Vanished } from "./digest.ts";
import { orDiskFull } from "./disk-full.ts";
import { captureConversations, conversationDigest, type ConversationRecord } from "./conversation.ts";
import { type ChannelParts, encodeDocument } from "./document.ts";
import { fingerprintOf, lookAtConversations } from "./fingerprint.ts";
import { withoutCredentials } from "./git-config.ts";
import type { Memory } from "./memory.ts";
import { serializeMeta, type Meta, META_FILE, META_VERSION, type MetaObject } from "./meta.ts";
import { notKept } from "./not-kept.ts";
import { askRemote, type ObjectsPlan, planObjects, type RemoteTips } from "./objects.ts";
import { type HeldBundles, type HeldChannel, noChannel, type ParentState } from "./parent.ts";
import { nextName, PartWriter } from "./parts.ts";
import { bytesOf, lstatRaw, rawFrom, toText } from "./raw.ts";
import { Restless, rootOf } from "./restless.ts";
import { keptPatch, makePatch, makeReview } from "./review.ts";
import { memoryOf, type Scan, scanWorkspace } from "./scan.ts";
import type { TreeScan } from "./scan-tree.ts";
import { type Channel, CHANNELS, type WorkspaceState } from "./state.ts";
import type { CreateOptions, CreateResult, MadeCheckpoint, SnapshotReport, Workspace } from "./types.ts";
import { writeChannel, writeConversations, writeObjects, writeWhole } from "./write-parts.ts";

const TRIES = 3;
/** Tries in all: from the third on, files that do not hold still are copied first, and each try knows more of them. */
const MOST_TRIES = 8;
/**
 * @throws HangarError `checkpoint_failed`: the repository or a conversation cannot be read, or a part did not come out as it
 * went in; `disk_full`; `missing_cli`.
 */
export async function createCheckpoint(ws: Workspace, options: CreateOptions): Promise<CreateResult> {
  const memory = memoryOf(ws);
  mkdirSync(ws.scratch, { recursive: true, mode: 0o700 });
  mkdirSync(options.out, { recursive: true, mode: 0o700 });
  const scratch = mkdtempSync(join(ws.scratch, "make-"));
  const clock = new Clock();
  try {
    return await new Attempt(ws, options, memory, scratch, clock).run();
  } catch (error) {
    throw orDiskFull(error, options.out);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

interface Look {
  readonly scan: Scan;
  readonly state: WorkspaceState;
  readonly record: ConversationRecord;
  readonly agentEntries: readonly ArchiveEntry[];
  readonly warnings: readonly string[];
}

class Attempt {
  readonly #ws: Workspace;
  readonly #options: CreateOptions;
  readonly #memory: Memory;
  readonly #scratch: string;
  readonly #clock: Clock;
  readonly #restless: Restless;
  readonly #agentPart: string;
  #remote: Promise<RemoteTips | null> | null = null;

  constructor(ws: Workspace, options: CreateOptions, memory: Memory, scratch: string, clock: Clock) {
    this.#ws = ws;
    this.#options = options;
    this.#memory = memory;
    this.#scratch = scratch;
    this.#clock = clock;
    this.#restless = new Restless(scratch);
    this.#agentPart = nextName("agent", options.parent?.meta.conversations.parts ?? []);
  }

  async run(): Promise<CreateResult> {
    const { parent, ifChanged } = this.#options;
    let last: unknown;
    for (let n = 1; n <= MOST_TRIES; n++) {
      this.#options.signal?.throwIfAborted();
      const look = await this.#clock.time("scan", () => this.#look(n));
      const fingerprint = fingerprintOf(look.state);
      if (n === 1 && ifChanged && parent && this.#unchanged(look, fingerprint, parent)) {
        this.#memory.conversations = look.record;
        return { outcome: "unchanged", checkpoint: parent.meta.checkpoint, fingerprint };
      }
      try {
        const made = await this.#make(look, fingerprint, n);
        if (made.paired || n >= TRIES) return { outcome: "made", made: await this.#finish(made, made.paired) };
      } catch (error) {
        if (!(error instanceof ArchiveChanged) || n === MOST_TRIES) throw error;
        last = error;
      }
      for (const name of readdirSync(this.#options.out)) rmSync(join(this.#options.out, name), { recursive: true });
    }
    throw last;
  }

  #unchanged(look: Look, fingerprint: string, parent: ParentState): boolean {
    return (
      fingerprint === parent.meta.fingerprint &&
      JSON.stringify(look.scan.leftOut) === JSON.stringify(parent.meta.left_out) &&
      this.#options.harnessSession === parent.meta.harness_session
    );
  }

  async #look(n: number): Promise<Look> {
    const { limits, signal, quiesced, parent } = this.#options;
    const stores = join(this.#scratch, `stores-${n}`);
    mkdirSync(stores);
    const scanning = scanWorkspace(this.#ws, this.#memory, limits.maxUntrackedBytes, signal);
    const capturing = captureConversations(this.#ws.home, {
      parent: parent?.meta.conversations ?? null,
      part: this.#agentPart,
      scratch: stores,
      prefix: quiesced ? "full" : "edges",
      roots: this.#ws.conversationRoots,
      ...(signal && { signal }),
    });
    const [scan, capture] = await Promise.all([scanning, capturing]);
    if (n >= TRIES) this.#restless.copy(scan);
    const state = { trees: scan.trees, files: scan.files, conversations: conversationDigest(capture.record) };
    return {
      scan,
      state,
      record: capture.record,
      agentEntries: capture.entries,
      warnings: [...scan.warnings, ...capture.warnings],
    };
  }

  async #same(look: Look, fingerprint: string): Promise<boolean> {
    const { limits, signal } = this.#options;
    const [scan, again] = await Promise.all([
      scanWorkspace(this.#ws, this.#memory, limits.maxUntrackedBytes, signal),
      lookAtConversations(this.#ws, look.record, "edges", signal),
    ]);
    if (again.changed) return false;
    const now = fingerprintOf({ trees: scan.trees, files: scan.files, conversations: look.state.conversations });
    return now === fingerprint;
  }

  async #make(look: Look, fingerprint: string, n: number): Promise<Unfinished> {
    const { options, parent } = { options: this.#options, parent: this.#options.parent };
    const writer = new PartWriter(options.out, options.recipients, options.signal);
    const { scan } = look;
    const usedNames = parent?.meta.parts.map((part) => part.name) ?? [];

    const own = scan.scans[0];
    if (!own) throw new HangarError("internal", "the main working tree was not read");
    const remote = (): Promise<RemoteTips | null> => (this.#remote ??= askRemote(this.#ws, own, options.signal));

    const patching = makePatch(scan, options.signal);
    // Awaited once the archives are written: by then a failure has had its word.
    patching.catch(() => {});
    const [objects, channels] = await this.#clock.time("plan", () =>
      Promise.all([
        planObjects(this.#ws, scan, parent?.bundles ?? new Map(), remote, options.signal),
        this.#planChannels(scan),
      ]),
    );
    const base = await this.#baseOf(objects, own);

    return await this.#clock.time("write", async () => {
      const bundleNames: string[][] = scan.trees.map(() => []);
      const heldBundles = new Map<string, HeldBundles>();
      const bundles: { name: string; objects: ObjectsPlan; plan: BundlePlan }[] = [];
      const names = [...usedNames];
      for (const one of objects) {
        const parts = [...one.keep];
        if (one.plan) {
          const main = one.tree === 0;
          const name =
            main || names.includes("repo.bundle")
              ? nextName("repo", names, ".bundle")
              : nextName("repo", [...names, "repo.bundle"], ".bundle");
          names.push(name);
          parts.push(name);
          bundles.push({ name, objects: one, plan: one.plan });
        }
        bundleNames[one.tree] = parts;
        heldBundles.set(one.key, { parts, tips: one.tips, prerequisites: one.prerequisites });
      }
      const channelParts = {} as Record<Channel, ChannelParts>;
      const heldChannels = {} as Record<Channel, HeldChannel>;
      const archives: { channel: Channel; name: string; plan: ChannelPlan }[] = [];
      for (const channel of CHANNELS) {
        const plan = channels[channel];
        const parts = [...plan.keep];
        if (plan.entries.length > 0) {
          const name = nextName(
            channel,
            plan.keep.length > 0 ? usedNames.filter((used) => plan.keep.includes(used)) : [],
          );
          parts.push(name);
          archives.push({ channel, name, plan });
        }
        channelParts[channel] =
          parts.length > 0 ? { parts, removed: plan.removed, bytes: plan.written } : { parts, removed: [], bytes: 0 };
        heldChannels[channel] = { parts, held: parts.length > 0 ? plan.held : new Map(), written: plan.written };
      }
      const document = encodeDocument({ trees: scan.trees, bundles: bundleNames, channels: channelParts });
      const bundleOptions = { home: this.#ws.home, prove: options.prove, signal: options.signal };
      await allDone([
        ...archives.map(({ channel, name, plan }) =>
          writeChannel(writer, this.#restless, rootOf(scan, channel), name, plan),
        ),
        look.agentEntries.length > 0
          ? writeConversations(writer, this.#agentPart, look.record, look.agentEntries)
          : null,
        ...bundles.map(({ name, objects: one, plan }) =>
          writeObjects(writer, scan, name, one, plan, {
            ...bundleOptions,
            path: rawFrom(join(this.#scratch, `${n}-${name}`)),
          }),
        ),
      ]);
      const patch = await patching;
      // What counts is copied: whether it held still is looked at while the rest is written.
      const again = this.#options.quiesced || this.#clock.time("look again", () => this.#same(look, fingerprint));
      const whole = async (): Promise<Awaited<ReturnType<typeof writeWhole>>> =>
        writeWhole(writer, parent, {
          "git-state": { extension: ".tar.zst", entries: document },
          "wip.patch": { extension: "", bytes: keptPatch(patch.patch) },
          "review.json": {
            extension: "",
            bytes: await makeReview(scan, base, patch.patch, this.#memory, options.signal),
          },
        });
      const [wholes, paired] = await bothOrFirst(whole(), Promise.resolve(again));
      const warnings = [...look.warnings];
      if (patch.tooLarge.length > 0)
        warnings.push(
          `wip.patch leaves out files over 4 MiB, which travel in the worktree part: ${patch.tooLarge.slice(0, 5).map(toText).join(", ")}`,
        );
      const order = [
        ...look.record.parts,
        ...bundleNames.flat(),
        ...CHANNELS.flatMap((channel) => channelParts[channel].parts),
        ...Object.values(wholes).map(({ part }) => part),
      ];
      return {
        writer,
        look,
        paired,
        fingerprint,
        base,
        order,
        warnings,
        next: { channels: heldChannels, bundles: heldBundles, whole: wholes },
      };
    });
  }

  async #baseOf(objects: readonly ObjectsPlan[], own: TreeScan): Promise<string | null> {
    const { head } = own.state;
    const main = objects.find(({ tree }) => tree === 0);
    if (head === null || !main) return null;
    if (main.plan === null && main.keep.length === 0) return head;
    const key = `${own.scratch.dir} ${head} ${main.prerequisites.join(" ")}`;
    if (this.#memory.mergeBase?.key !== key)
      this.#memory.mergeBase = {
        key,
        base: await mergeBase(own.scratch, head, main.prerequisites, this.#options.signal),
      };
    return this.#memory.mergeBase.base;
  }

  async #planChannels(scan: Scan): Promise<Record<Channel, ChannelPlan>> {
    const contents = this.#memory.contents;
    const plans = {} as Record<Channel, ChannelPlan>;
    for (const channel of CHANNELS) {
      const root = rootOf(scan, channel);
      plans[channel] = await planChannel({
        files: scan.files[channel],
        root,
        parent: this.#options.parent?.channels[channel] ?? noChannel(),
        copies: new Map(
          [...this.#restless.copies]
            .filter(([abs]) => abs.startsWith(`${root}/`))
            .map(([abs, copy]) => [abs.slice(root.length + 1), copy]),
        ),
        mtime: (abs) => Math.floor((lstatRaw(abs)?.mtimeMs ?? 0) / 1000),
        split: async (abs, at, size) => {
          try {
            return await contents.split(abs, at, size);
          } catch (error) {
            if (error instanceof Vanished) throw new ArchiveChanged(bytesOf(abs), "went away", { cause: error });
            throw error;
          }
        },
      });
    }
    return plans;
  }

  async #finish(made: Unfinished, paired: boolean): Promise<MadeCheckpoint> {
    const { look, writer, fingerprint } = made;
    const { options } = this;
    const [main] = look.scan.trees;
    const own = look.scan.scans[0];
    if (!main || !own) throw new HangarError("internal", "the main working tree was not read");
    const kept = await this.#clock.time("not kept", () => notKept(this.#memory, own, options.signal));
    const fresh = new Map(writer.made.map(({ part }) => [part.name, part]));
    const before = new Map((options.parent?.meta.parts ?? []).map((part) => [part.name, part]));
    const parts: Part[] = [];
    for (const name of new Set(made.order)) {
      const part = fresh.get(name) ?? before.get(name);
      if (!part) throw new HangarError("internal", `the part ${name} is nowhere`);
      const from = fresh.has(name) || options.standalone ? part.from : (part.from ?? options.parent?.meta.checkpoint);
      parts.push(from === part.from ? part : { ...part, from });
    }
    const warnings = [...new Set(made.warnings)];
    if (!paired)
      warnings.push(
        "the workspace changed while it was copied, three times over: conversation and files may be of different moments",
      );
    for (const { part } of writer.made)
      if (part.size > options.limits.maxPartBytes) warnings.push(`the part ${part.name} has ${part.size} bytes`);
    const meta: Meta = {
      version: META_VERSION,
      checkpoint: options.checkpoint,
      session: options.session,
      generation: options.generation,
      parent: options.parent?.meta.checkpoint ?? null,
      ts: new Date().toISOString(),
      reason: options.reason,
      branch: main.branch === null ? null : toText(main.branch),
      head: main.head,
      base: made.base,
      remote: own.remoteUrl === null ? null : toText(withoutCredentials(own.remoteUrl)),
      object_format: main.objectFormat,
      harness: this.#ws.harness,
      harness_session: options.harnessSession,
      turn: options.turn,
      cwd: this.#ws.repo,
      home: this.#ws.home,
      fingerprint,
      parts,
      conversations: look.record,
      left_out: [...look.scan.leftOut],
      not_kept: kept,
      paired,
      proved: options.prove,
      warnings: warnings.map((text) => text.slice(0, 2000)).slice(0, 200),
    };
    const metaWriter = new PartWriter(options.out, options.recipients, options.signal);
    const metaPart = await metaWriter.bytes(META_FILE, "", serializeMeta(meta), false);
    const metaObject: MetaObject = { file: metaPart.file, size: metaPart.size, sha256: metaPart.sha256 };
    const next: ParentState = { meta, ...made.next };
    this.#memory.conversations = look.record;
    const newBytes = writer.made.reduce((sum, { part }) => sum + part.size, metaObject.size);
    return {
      dir: options.out,
      meta,
      metaObject,
      objects: writer.made.map(({ object }) => object),
      parts,
      next,
      report: reportOf(meta, metaObject, newBytes, this.#clock.total()),
    };
  }

  get options(): CreateOptions {
    return this.#options;
  }
}

/** Waits for all of them, also when one fails: nothing is still writing when the next try begins. */
async function allDone(work: readonly (Promise<void> | null)[]): Promise<void> {
  const results = await Promise.allSettled(work.filter((one) => one !== null));
  const failed = results.filter((result) => result.status === "rejected").map(({ reason }) => reason as unknown);
  // Another look is all that a file which changed asks for; anything else is worse.
  if (failed.length > 0) throw failed.find((error) => !(error instanceof ArchiveChanged)) ?? failed[0];
}

/** Both ended, whatever became of them: nothing goes on behind a failure's back. */
async function bothOrFirst<A, B>(a: Promise<A>, b: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([a, b]);
  return [await a, await b];
}

interface Unfinished {
  readonly paired: boolean;
  readonly writer: PartWriter;
  readonly look: Look;
  readonly fingerprint: string;
  readonly base: string | null;
  readonly order: readonly string[];
  readonly warnings: readonly string[];
  readonly next: Omit<ParentState, "meta">;
}

const reportOf = (
  meta: Meta,
  metaObject: MetaObject,
  newBytes: number,
  seconds: Record<string, number>,
): SnapshotReport => ({
  outcome: "made",
  checkpoint: meta.checkpoint,
  fingerprint: meta.fingerprint,
  parts: meta.parts,
  bytes: meta.parts.reduce((sum, part) => sum + part.size, metaObject.size),
  new_bytes: newBytes,
  left_out: meta.left_out,
  not_kept: meta.not_kept,
  warnings: meta.warnings,
  paired: meta.paired,
  proved: meta.proved,
  seconds,
});

/** The newest commit of HEAD's history that no bundle holds. */
