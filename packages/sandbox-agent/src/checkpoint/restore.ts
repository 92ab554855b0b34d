/** Puts a checkpoint back: everything is fetched and checked first, then the target is made to be it, then it is verified. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { HangarError } from "@hangar/shared";
import { conversationDigest, restoreConversations } from "./conversation.ts";
import { parentFrom, readDocument, readState } from "./decode.ts";
import type { StateDocument } from "./document.ts";
import { differences, fingerprintOf, lookAtConversations } from "./fingerprint.ts";
import { absolute, findGitDirs, git, type GitDirs, OFF, fixedEnv } from "./git.ts";
import { createMemory } from "./memory.ts";
import { type Meta, parseMeta } from "./meta.ts";
import type { ParentState } from "./parent.ts";
import { fsPath, type Raw, rawFrom, stringPath, toText, lstatRaw } from "./raw.ts";
import { type RestoredRepository, restoreRepository, type Target } from "./restore-repository.ts";
import {
  fixRawBytes,
  type Planned,
  planWorktree,
  restoreWorktree,
  sweepWorktree,
  type WorktreeInput,
} from "./restore-tree.ts";
import { type Scan, scanWorkspace, writeLost } from "./scan.ts";
import { Spool, openMeta } from "./spool.ts";
import {
  CHANNELS,
  type Channel,
  channelsOf,
  type Files,
  type Root,
  type TreeState,
  type WorkspaceState,
} from "./state.ts";
import type { Restored, RestoreOptions, Workspace } from "./types.ts";
import { refuseWork } from "./work.ts";

/**
 * The repo at `ws.repo` is a fresh clone (or nothing, or an empty folder): what its set-up left is replaced, what is ignored
 * stays. A restore that does not verify is reported, not thrown.
 * @throws HangarError `checkpoint_invalid`: damaged, forged, sealed to others, or built on commits that the remote has no
 * more; `workspace_has_work`: the target has commits that its remote lacks, and `force` is off; `disk_full`.
 */
export async function restoreCheckpoint(ws: Workspace, options: RestoreOptions): Promise<Restored> {
  mkdirSync(ws.scratch, { recursive: true, mode: 0o700 });
  const scratch = mkdtempSync(join(ws.scratch, "restore-"));
  try {
    return await new Restore(ws, options, scratch).run();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOSPC" || code === "EDQUOT")
      throw new HangarError("disk_full", `The disk of ${ws.repo} is full: free some space and try again`, {
        cause: error,
      });
    throw error;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

interface PutBack {
  readonly targets: ReadonlyMap<number, Target | null>;
  /** Which paths came from archives. */
  readonly carried: Record<Channel, Set<Raw>>;
}

class Restore {
  readonly #ws: Workspace;
  readonly #options: RestoreOptions;
  readonly #scratch: string;
  readonly #seconds: Record<string, number> = {};
  readonly #warnings = new Set<string>();
  readonly #started = performance.now();

  constructor(ws: Workspace, options: RestoreOptions, scratch: string) {
    this.#ws = ws;
    this.#options = options;
    this.#scratch = scratch;
  }

  async run(): Promise<Restored> {
    const { identities, source, signal, force } = this.#options;
    const meta = parseMeta(await openMeta(this.#options.meta, identities));
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
    const roots = {
      repo: absolute(this.#ws.repo),
      home: absolute(this.#ws.home),
      parent: rawFrom(dirname(this.#ws.repo)),
    };
    const dirs = await this.#target(roots.repo, meta);
    if (!force) await refuseWork(this.#ws, dirs, signal);
    const trees = this.#placeable(document, roots);

    const putBack = async (): Promise<PutBack> => {
      const repositories = await this.#time("git", () => this.#repositories(spool, document, dirs, roots, trees));
      const targets = new Map([...repositories].map(([n, { target }]) => [n, target]));
      const settle = async (): Promise<void> => {
        for (const repository of repositories.values()) await repository.settle();
      };
      const settled = this.#time("refs", settle);
      const planned = this.#plan(targets);
      // Files need the repository's configuration only where a filter of it writes them.
      const isFirst = document.trees.some((tree) => tree.filtered.length > 0);
      const write = async (): Promise<Record<Channel, Set<Raw>>> => {
        if (isFirst) await settled;
        const carried = await this.#time("files", () => this.#files(spool, document, roots, trees));
        await this.#time("checkout", () => this.#checkOut(document, targets, carried, "trusting", planned));
        return carried;
      };
      const written = write();
      // Also after a failure: nothing goes on behind it.
      await Promise.allSettled([settled, planned, written]);
      await settled;
      return { targets, carried: await written };
    };
    // Side by side, since the repository's part is mostly git's work; the conversation takes its place after it.
    const repository = putBack();
    const conversations = this.#time("conversations", () => this.#conversations(spool, meta, repository));
    await Promise.allSettled([repository, conversations]);
    const { targets, carried } = await repository;
    await conversations;
    writeLost(dirs.commonDir, meta.left_out);
    const { scan, differs, found } = await this.#time("verify", () =>
      this.#verify(spool, meta, document, targets, carried),
    );
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

  async #plan(targets: ReadonlyMap<number, Target | null>): Promise<ReadonlyMap<Target, Planned>> {
    const planned = new Map<Target, Planned>();
    const place = { scratch: rawFrom(this.#scratch), signal: this.#options.signal };
    for (const target of targets.values()) if (target) planned.set(target, await planWorktree(this.#ws, target, place));
    return planned;
  }

  async #checkOut(
    document: StateDocument,
    targets: ReadonlyMap<number, Target | null>,
    carried: Record<Channel, Set<Raw>>,
    how: "trusting" | "looking",
    planning = this.#plan(targets),
  ): Promise<void> {
    const plans = await planning;
    for (const [target, input] of this.#inputs(document, targets, carried)) {
      const planned = plans.get(target);
      if (planned) await restoreWorktree(this.#ws, target, planned, input, how);
    }
  }

  *#inputs(
    document: StateDocument,
    targets: ReadonlyMap<number, Target | null>,
    carried: Record<Channel, Set<Raw>>,
  ): Iterable<[Target, WorktreeInput]> {
    for (const [n, target] of targets) {
      const tree = document.trees[n];
      if (!tree || !target) continue;
      yield [
        target,
        {
          tree,
          carried: below(carried[channelsOf(tree.root).tracked], tree.path),
          untracked: below(carried[channelsOf(tree.root).untracked], tree.path),
          nested: nestedIn(document.trees, n),
          scratch: rawFrom(this.#scratch),
          warnings: this.#warnings,
          signal: this.#options.signal,
        },
      ];
    }
  }

  async #conversations(spool: Spool, meta: Meta, placeAfter: Promise<unknown>): Promise<void> {
    mkdirSync(this.#ws.home, { recursive: true, mode: 0o755 });
    await restoreConversations(this.#ws.home, meta.conversations, {
      unpack: async (name, stage, rule, bytes) => void (await spool.extract(name, stage, "now", rule, bytes)),
      placeAfter,
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

  /** The repository to restore into; made where there is none. */
  async #target(repo: Raw, meta: Meta): Promise<GitDirs> {
    const found = findGitDirs(repo);
    if (found) return found;
    const there = lstatRaw(repo);
    if (there && (!there.isDirectory() || readdirSync(fsPath(repo)).length > 0))
      throw new HangarError(
        "workspace_has_work",
        `${this.#ws.repo} is not empty and no git repository: name a fresh clone or a new folder`,
      );
    mkdirSync(fsPath(repo), { recursive: true });
    await git(["init", "-q", "--template=", `--object-format=${meta.object_format}`, stringPath(repo)], {
      env: fixedEnv(this.#ws.home),
      cwd: "/",
    });
    const dirs = findGitDirs(repo);
    if (!dirs) throw new HangarError("internal", "git init made no repository");
    if (meta.remote !== null)
      await git([...OFF, "remote", "add", "origin", meta.remote], {
        env: { ...fixedEnv(this.#ws.home), GIT_DIR: stringPath(dirs.gitDir) },
        cwd: repo,
      });
    return dirs;
  }

  /** Which trees can be put back: a linked one must not take the place of something else. */
  #placeable(document: StateDocument, roots: Record<Root, Raw>): Set<number> {
    const place = new Set<number>();
    for (const [n, tree] of document.trees.entries()) {
      if (tree.kind === "linked" && !tree.missing) {
        const at = `${roots[tree.root]}/${tree.path}`;
        if (!isFreeFor(at, roots.repo)) {
          this.#warnings.add(`the linked working tree ${toText(at)} is not put back: something else is there`);
          continue;
        }
      }
      place.add(n);
    }
    return place;
  }

  async #repositories(
    spool: Spool,
    document: StateDocument,
    main: GitDirs,
    roots: Record<Root, Raw>,
    trees: ReadonlySet<number>,
  ): Promise<Map<number, RestoredRepository>> {
    const repositories = new Map<number, RestoredRepository>();
    for (const [n, tree] of document.trees.entries()) {
      if (!trees.has(n)) continue;
      const bundles: Raw[] = [];
      for (const name of document.bundles[n] ?? []) bundles.push(await spool.plainFile(name));
      const repository = await restoreRepository(this.#ws, {
        tree,
        worktree: tree.path === "" ? roots.repo : `${roots[tree.root]}/${tree.path}`,
        root: roots[tree.root],
        repo: roots.repo,
        main: n === 0 ? main : null,
        owner: tree.kind === "linked" ? (repositories.get(tree.owner)?.target ?? null) : null,
        linked: document.trees.filter((other) => other.kind === "linked" && other.owner === n),
        bundles,
        warnings: this.#warnings,
        signal: this.#options.signal,
      });
      repositories.set(n, repository);
    }
    return repositories;
  }

  /** Unpacks the archives; answers which paths they put where. */
  async #files(
    spool: Spool,
    document: StateDocument,
    roots: Record<Root, Raw>,
    trees: ReadonlySet<number>,
  ): Promise<Record<Channel, Set<Raw>>> {
    const carried = {} as Record<Channel, Set<Raw>>;
    for (const channel of CHANNELS) {
      const root = channel === "worktree.parent" ? "parent" : channel === "worktree.home" ? "home" : "repo";
      const paths = new Set<Raw>();
      const removed = new Set(document.channels[channel].removed);
      const places = document.trees.flatMap(({ root: of, path }, n) =>
        of === root ? [{ path, wanted: trees.has(n) }] : [],
      );
      let { bytes } = document.channels[channel];
      for (const name of document.channels[channel].parts) {
        const rule = { of: "files", root, bytes, removed, trees: places } as const;
        const written = await spool.extract(name, stringPath(roots[root]), "kept", rule, bytes);
        bytes -= written.bytes;
        for (const path of written.paths) paths.add(path);
      }
      carried[channel] = paths;
    }
    return carried;
  }

  async #verify(
    spool: Spool,
    meta: Meta,
    document: StateDocument,
    targets: ReadonlyMap<number, Target | null>,
    carried: Record<Channel, Set<Raw>>,
  ): Promise<{ scan: Scan; differs: string[]; found: string }> {
    const memory = this.#ws.memory ?? createMemory();
    const filtered = new Map<Raw, number>();
    for (const target of targets.values())
      for (const [path, size] of target?.tree.filtered ?? []) filtered.set(`${target?.dirs.worktree}/${path}`, size);
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
    const carriedOf = (tree: TreeState): Set<Raw> => below(carried[channelsOf(tree.root).tracked], tree.path);
    let { scan, state, found } = await look();
    // A fresh clone has no leftovers as a rule: they are looked for when something is not as it should be.
    if (found !== meta.fingerprint) {
      for (const [target, input] of this.#inputs(document, targets, carried))
        await sweepWorktree(this.#ws, target, input);
      await this.#checkOut(document, targets, carried, "looking");
      ({ scan, state, found } = await look());
    }
    if (found !== meta.fingerprint && (await fixRawBytes(targets, carriedOf, scan, this.#options.signal)))
      ({ scan, state, found } = await look());
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

/** Paths below a tree, as seen from it. */
function below(paths: ReadonlySet<Raw>, tree: Raw): Set<Raw> {
  if (tree === "") return new Set(paths);
  const inside = new Set<Raw>();
  for (const path of paths) if (path.startsWith(`${tree}/`)) inside.add(path.slice(tree.length + 1));
  return inside;
}

/** Working trees below another, as seen from it. */
function nestedIn(trees: readonly TreeState[], n: number): Set<Raw> {
  const own = trees[n];
  const inside = new Set<Raw>();
  for (const [i, tree] of trees.entries()) {
    if (!own || i === n || tree.root !== own.root || tree.missing) continue;
    if (own.path === "" ? tree.path !== "" : tree.path.startsWith(`${own.path}/`))
      inside.add(own.path === "" ? tree.path : tree.path.slice(own.path.length + 1));
  }
  return inside;
}

/** Nothing there, an empty folder, or a linked working tree of this very repository. */
function isFreeFor(at: Raw, repo: Raw): boolean {
  const there = lstatRaw(at);
  if (!there) return true;
  if (!there.isDirectory()) return at.startsWith(`${repo}/`);
  if (at.startsWith(`${repo}/`) || readdirSync(fsPath(at)).length === 0) return true;
  const dirs = findGitDirs(at);
  return dirs !== null && dirs.gitFile ? dirs.commonDir.startsWith(`${repo}/`) : pointsInto(at, repo);
}

function pointsInto(at: Raw, repo: Raw): boolean {
  try {
    return readFileSync(fsPath(`${at}/.git`), "latin1").startsWith(`gitdir: ${repo}/.git/worktrees/`);
  } catch {
    return false;
  }
}
const round = (seconds: number): number => Math.round(seconds * 10_000) / 10_000;
