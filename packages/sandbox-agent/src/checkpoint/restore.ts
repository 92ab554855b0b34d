/** Puts a checkpoint back: everything is fetched and checked first, then the target is made to be it, then it is verified. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expectBulk } from "./bulk.ts";
import { conversationDigest, restoreConversations } from "./conversation.ts";
import { parentFrom, readDocument, readState } from "./decode.ts";
import { orDiskFull } from "./disk-full.ts";
import type { StateDocument } from "./document.ts";
import { differences, fingerprintOf, lookAtConversations } from "./fingerprint.ts";
import { createMemory } from "./memory.ts";
import { type Meta, parseMeta } from "./meta.ts";
import type { ParentState } from "./parent.ts";
import { PutBack } from "./put-back.ts";
import { type Scan, scanWorkspace, writeLost } from "./scan.ts";
import { Spool, openMeta } from "./spool.ts";
import { CHANNELS, type Files, type WorkspaceState } from "./state.ts";
import type { Restored, RestoreOptions, Workspace } from "./types.ts";

/**
 * The repo at `ws.repo` is a fresh clone (or nothing, or an empty folder): what its set-up left is replaced, what is ignored
 * stays. A restore that does not verify is reported, not thrown.
 * @throws HangarError `checkpoint_invalid`: damaged, forged, sealed to others, or built on commits that the remote has no
 * more; `workspace_has_work`: the target has commits that its remote lacks, and `force` is off; `disk_full`.
 */
export async function restoreCheckpoint(ws: Workspace, options: RestoreOptions): Promise<Restored> {
  // Whoever makes the clone says what is wrong with it, also where it is not waited for here.
  options.cloned?.catch(() => {});
  mkdirSync(ws.scratch, { recursive: true, mode: 0o700 });
  const scratch = mkdtempSync(join(ws.scratch, "restore-"));
  try {
    return await new Restore(ws, options, scratch).run();
  } catch (error) {
    throw orDiskFull(error, ws.repo);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

class Restore {
  readonly #ws: Workspace;
  readonly #options: RestoreOptions;
  readonly #scratch: string;
  readonly #seconds: Record<string, number> = {};
  readonly #warnings = new Set<string>();
  readonly #made: string[] = [];
  readonly #started = performance.now();

  constructor(ws: Workspace, options: RestoreOptions, scratch: string) {
    this.#ws = ws;
    this.#options = options;
    this.#scratch = scratch;
  }

  /** Where it throws, folders that it made are gone again. */
  async run(): Promise<Restored> {
    try {
      return await this.#run();
    } catch (error) {
      for (const folder of this.#made) rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  async #run(): Promise<Restored> {
    const { identities, source, signal } = this.#options;
    const meta = parseMeta(await openMeta(this.#options.meta, identities));
    expectBulk(meta.conversations.files.reduce((sum, { size }) => sum + size, 0));
    const spool = new Spool({ meta, source, folder: this.#scratch, identities, signal });
    const document = await this.#time("fetch", async () => {
      await spool.fetch(meta.parts.map((part) => part.name));
      const document = await readDocument(spool);
      const needed = [
        ...document.bundles.flat(),
        ...CHANNELS.flatMap((channel) => document.channels[channel].parts),
        ...meta.conversations.parts,
      ];
      for (const name of needed) spool.part(name);
      return document;
    });
    const placing = new PutBack({
      ws: this.#ws,
      options: this.#options,
      meta,
      spool,
      document,
      scratch: this.#scratch,
      warnings: this.#warnings,
      made: this.#made,
      time: (phase, work) => this.#time(phase, work),
    });
    await placing.begin();
    // The conversation lies beside its place until the repository is whole; both are unpacked while that is cloned. Neither
    // is changed before the other is known to be sound.
    const sound = Promise.withResolvers<void>();
    const repository = placing.repository(sound.promise);
    const place = async (): Promise<void> => {
      sound.resolve();
      await repository;
    };
    const conversations = this.#time("conversations", () => this.#conversations(spool, meta, place));
    conversations.catch(sound.reject);
    await Promise.allSettled([repository, conversations, sound.promise]);
    const { dirs } = await repository;
    await conversations;
    writeLost(dirs.commonDir, meta.left_out);
    const { scan, differs, found } = await this.#time("verify", () => this.#verify(spool, meta, document, placing));
    for (const text of meta.warnings) this.#warnings.add(text);
    const verified = found === meta.fingerprint;
    const next = verified ? await this.#time("remember", () => this.#parent(spool, meta, document, scan)) : null;
    return {
      meta,
      next,
      report: {
        checkpoint: meta.checkpoint,
        fingerprint: found,
        verified,
        differs,
        left_out: meta.left_out,
        not_kept: meta.not_kept,
        warnings: [...this.#warnings],
        head: meta.head,
        branch: meta.branch,
        bytes: meta.parts.reduce((sum, part) => sum + part.size, this.#options.meta.length),
        seconds: { ...this.#seconds, total: round((performance.now() - this.#started) / 1000) },
      },
    };
  }

  async #conversations(spool: Spool, meta: Meta, beforePlacing: () => Promise<void>): Promise<void> {
    const made = mkdirSync(this.#ws.home, { recursive: true, mode: 0o755 });
    if (made !== undefined) this.#made.push(made);
    await restoreConversations(this.#ws.home, meta.conversations, {
      unpack: async (name, stage, rule, bytes) => void (await spool.extract(name, stage, "now", rule, bytes)),
      beforePlacing,
      roots: this.#ws.conversationRoots,
      ...(this.#options.signal && { signal: this.#options.signal }),
    });
  }

  async #time<T>(phase: string, work: () => Promise<T>): Promise<T> {
    this.#options.signal?.throwIfAborted();
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.#seconds[phase] = round((this.#seconds[phase] ?? 0) + (performance.now() - start) / 1000);
    }
  }

  async #verify(
    spool: Spool,
    meta: Meta,
    document: StateDocument,
    placing: PutBack,
  ): Promise<{ scan: Scan; differs: string[]; found: string }> {
    const memory = this.#ws.memory ?? createMemory();
    const filtered = placing.filtered();
    const look = async (): Promise<{ scan: Scan; state: WorkspaceState; found: string }> => {
      const [scan, { record }] = await Promise.all([
        scanWorkspace(this.#ws, memory, Number.POSITIVE_INFINITY, this.#options.signal, filtered),
        lookAtConversations(this.#ws, meta.conversations, "full", this.#options.signal),
      ]);
      const state = {
        trees: scan.trees,
        files: scan.files,
        conversations: conversationDigest({ ...record, files: record.files.filter(isIn(meta)) }),
      };
      return { scan, state, found: fingerprintOf(state) };
    };
    let { scan, state, found } = await look();
    // A fresh clone has no leftovers as a rule: they are looked for when something is not as it should be.
    if (found !== meta.fingerprint) {
      await placing.sweep();
      ({ scan, state, found } = await look());
    }
    if (found !== meta.fingerprint && (await placing.fixRawBytes(scan))) ({ scan, state, found } = await look());
    if (found === meta.fingerprint) return { scan, differs: [], found };
    const expected = await readState(spool, meta, document);
    const differs = differences(expected, state);
    return {
      scan,
      differs: differs.length > 0 ? differs : ["the fingerprint: the meta's is not that of its parts"],
      found,
    };
  }

  async #parent(spool: Spool, meta: Meta, document: StateDocument, scan: Scan): Promise<ParentState> {
    // What was verified is what the parts hold, but for what later ones made void: those need no digest.
    const channels = Object.fromEntries(
      CHANNELS.map((channel) => {
        const held: Files = new Map(scan.files[channel]);
        for (const path of document.channels[channel].removed)
          held.set(path, { kind: "file", mode: 0, size: -1, sha256: "0".repeat(64) });
        const { parts, bytes } = document.channels[channel];
        return [channel, { parts, held, written: bytes }];
      }),
    ) as ParentState["channels"];
    return await parentFrom(spool, meta, document, channels);
  }
}

/** Other conversations that the target's home holds are none of the checkpoint's. */
const isIn = (meta: Meta): ((file: { path: string }) => boolean) => {
  const paths = new Set(meta.conversations.files.map((file) => file.path));
  return (file) => paths.has(file.path);
};

const round = (seconds: number): number => Math.round(seconds * 10_000) / 10_000;
