/** Makes a target's repositories and files those of a checkpoint, once it is certain that all of it can be read. */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { HangarError } from "@hangar/shared";
import type { StateDocument } from "./document.ts";
import { absolute, findGitDirs, fixedEnv, git, type GitDirs, OFF } from "./git.ts";
import type { Meta } from "./meta.ts";
import { fsPath, lstatRaw, type Raw, rawFrom, stringPath, toText } from "./raw.ts";
import { type RestoredRepository, restoreRepository, type Target } from "./restore-repository.ts";
import {
  fixRawBytes,
  type Planned,
  planWorktree,
  restoreWorktree,
  sweepWorktree,
  type WorktreeInput,
} from "./restore-tree.ts";
import type { Scan } from "./scan.ts";
import type { Spool } from "./spool.ts";
import { Stage } from "./stage.ts";
import { CHANNELS, type Channel, channelsOf, type Root, type TreeState } from "./state.ts";
import type { RestoreOptions, Workspace } from "./types.ts";
import { refuseWork } from "./work.ts";

interface PutBackOf {
  readonly ws: Workspace;
  readonly options: RestoreOptions;
  readonly meta: Meta;
  readonly spool: Spool;
  readonly document: StateDocument;
  readonly scratch: string;
  /** More are added. */
  readonly warnings: Set<string>;
  /** Folders that were not there before: more are added, the topmost of each. */
  readonly made: string[];
  readonly time: <T>(phase: string, work: () => Promise<T>) => Promise<T>;
}

/** Which paths came from archives. */
type Carried = Record<Channel, ReadonlySet<Raw>>;
type Targets = ReadonlyMap<number, Target | null>;

export class PutBack {
  readonly #of: PutBackOf;
  readonly #roots: Record<Root, Raw>;
  readonly #beside: Stage;
  #there: GitDirs | null = null;
  /** When the repository is. */
  #targets: Targets = new Map();
  #carried: Carried | null = null;

  constructor(of: PutBackOf) {
    this.#of = of;
    const repo = absolute(of.ws.repo);
    this.#roots = { repo, home: absolute(of.ws.home), parent: rawFrom(dirname(of.ws.repo)) };
    this.#beside = new Stage(of.ws.repo, of.scratch);
  }

  /** Looks at the target, where it is there. Throws `workspace_has_work`. */
  async begin(): Promise<void> {
    if (!this.#of.options.cloned) this.#there = await this.#look();
  }

  /**
   * Repositories and files, and the git folders of the main one. Nothing is changed before its archives are unpacked beside
   * their places, the main repository's bundles too, and `sound` is done.
   */
  async repository(sound: Promise<unknown>): Promise<{ dirs: GitDirs }> {
    const { options, document, time } = this.#of;
    const staging = this.#stage();
    staging.catch(() => {});
    try {
      await options.cloned;
      const staged = await staging;
      const dirs = this.#there ?? (await this.#look()) ?? (await this.#make());
      const trees = this.#placeable();
      const repositories = await time("git", () => this.#repositories(dirs, trees, sound));
      const targets = new Map([...repositories].map(([n, { target }]) => [n, target]));
      this.#targets = targets;
      const settle = async (): Promise<void> => {
        for (const repository of repositories.values()) await repository.settle();
      };
      const settled = time("refs", settle);
      const planned = this.#plan();
      // Files need the repository's configuration only where a filter of it writes them.
      const isFirst = document.trees.some((tree) => tree.filtered.length > 0);
      const write = async (): Promise<void> => {
        if (isFirst) await settled;
        const carried = await time("files", () => this.#files(trees, staged));
        this.#carried = carried;
        await time("checkout", () => this.#checkOut(carried, "trusting", planned));
      };
      const written = write();
      // Also after a failure: nothing goes on behind it.
      await Promise.allSettled([settled, planned, written]);
      await settled;
      await written;
      return { dirs };
    } finally {
      await staging.catch(() => {});
      this.#beside.remove();
    }
  }

  /** Absolute paths and sizes of files that a filter of the image made. */
  filtered(): ReadonlyMap<Raw, number> {
    const filtered = new Map<Raw, number>();
    for (const target of this.#targets.values())
      for (const [path, size] of target?.tree.filtered ?? []) filtered.set(`${target?.dirs.worktree}/${path}`, size);
    return filtered;
  }

  /** Removes what set-up left, and looks at each file. */
  async sweep(): Promise<void> {
    if (!this.#carried) return;
    for (const [target, input] of this.#inputs(this.#carried)) await sweepWorktree(this.#of.ws, target, input);
    await this.#checkOut(this.#carried, "looking", this.#plan());
  }

  /** True: files were written anew that the clone had converted. */
  async fixRawBytes(scan: Scan): Promise<boolean> {
    const carried = this.#carried;
    if (!carried) return false;
    const carriedOf = (tree: TreeState): Set<Raw> => below(carried[channelsOf(tree.root).tracked], tree.path);
    return await fixRawBytes(this.#targets, carriedOf, scan, this.#of.options.signal);
  }

  // ---- the target --------------------------------------------------------------------------------------------------

  /** Its git folders, when it may be made the checkpoint's; none: there is no repository yet. */
  async #look(): Promise<GitDirs | null> {
    const { ws, options } = this.#of;
    const { repo } = this.#roots;
    const found = findGitDirs(repo);
    if (found) {
      if (!options.force) await refuseWork(ws, found, options.signal);
      return found;
    }
    const there = lstatRaw(repo);
    if (there && (!there.isDirectory() || readdirSync(fsPath(repo)).length > 0))
      throw new HangarError(
        "workspace_has_work",
        `${ws.repo} is not empty and no git repository: name a fresh clone or a new folder`,
      );
    return null;
  }

  /** A repository without a commit. */
  async #make(): Promise<GitDirs> {
    const { meta, ws, made } = this.#of;
    const { repo } = this.#roots;
    made.push(mkdirSync(stringPath(repo), { recursive: true }) ?? `${stringPath(repo)}/.git`);
    await git(["init", "-q", "--template=", `--object-format=${meta.object_format}`, stringPath(repo)], {
      env: fixedEnv(ws.home),
      cwd: "/",
    });
    const dirs = findGitDirs(repo);
    if (!dirs) throw new HangarError("internal", "git init made no repository");
    if (meta.remote !== null)
      await git([...OFF, "remote", "add", "origin", meta.remote], {
        env: { ...fixedEnv(ws.home), GIT_DIR: stringPath(dirs.gitDir) },
        cwd: repo,
      });
    return dirs;
  }

  /** Which trees can be put back: a linked one must not take the place of something else. */
  #placeable(): Set<number> {
    const { document, warnings } = this.#of;
    const place = new Set<number>();
    for (const [n, tree] of document.trees.entries()) {
      if (tree.kind === "linked" && !tree.missing) {
        const at = `${this.#roots[tree.root]}/${tree.path}`;
        if (!isFreeFor(at, this.#roots.repo)) {
          warnings.add(`the linked working tree ${toText(at)} is not put back: something else is there`);
          continue;
        }
      }
      place.add(n);
    }
    return place;
  }

  async #repositories(
    main: GitDirs,
    trees: ReadonlySet<number>,
    sound: Promise<unknown>,
  ): Promise<Map<number, RestoredRepository>> {
    const { document, spool, ws, warnings, options } = this.#of;
    const roots = this.#roots;
    const repositories = new Map<number, RestoredRepository>();
    for (const [n, tree] of document.trees.entries()) {
      if (!trees.has(n)) continue;
      const bundles: Raw[] = [];
      for (const name of document.bundles[n] ?? []) bundles.push(await spool.plainFile(name));
      const repository = await restoreRepository(ws, {
        tree,
        worktree: tree.path === "" ? roots.repo : `${roots[tree.root]}/${tree.path}`,
        root: roots[tree.root],
        repo: roots.repo,
        main: n === 0 ? main : null,
        owner: tree.kind === "linked" ? (repositories.get(tree.owner)?.target ?? null) : null,
        linked: document.trees.filter((other) => other.kind === "linked" && other.owner === n),
        bundles,
        sound,
        warnings,
        signal: options.signal,
      });
      repositories.set(n, repository);
    }
    return repositories;
  }

  // ---- files -------------------------------------------------------------------------------------------------------

  /** Unpacks the archives beside the repository; answers which paths. */
  async #stage(): Promise<ReadonlyMap<Channel, Set<Raw>>> {
    const { document, time } = this.#of;
    const staged = new Map<Channel, Set<Raw>>();
    const all = new Set(document.trees.keys());
    for (const channel of CHANNELS) {
      if (document.channels[channel].parts.length === 0) continue;
      const folder = this.#beside.make(channel);
      staged.set(channel, await time("stage", () => this.#unpack(channel, folder, all)));
    }
    return staged;
  }

  /** Puts the archives' files in place; answers which paths. */
  async #files(trees: ReadonlySet<number>, staged: ReadonlyMap<Channel, Set<Raw>>): Promise<Carried> {
    const isAll = trees.size === this.#of.document.trees.length;
    const carried = {} as Record<Channel, ReadonlySet<Raw>>;
    for (const channel of CHANNELS) {
      const root = this.#roots[rootOf(channel)];
      const paths = staged.get(channel);
      carried[channel] =
        paths && isAll && this.#beside.moveInto(channel, root, paths)
          ? paths
          : await this.#unpack(channel, stringPath(root), trees);
    }
    return carried;
  }

  async #unpack(channel: Channel, folder: string, trees: ReadonlySet<number>): Promise<Set<Raw>> {
    const { document, spool } = this.#of;
    const root = rootOf(channel);
    const paths = new Set<Raw>();
    const removed = new Set(document.channels[channel].removed);
    const places = document.trees.flatMap(({ root: of, path }, n) =>
      of === root ? [{ path, wanted: trees.has(n) }] : [],
    );
    let { bytes } = document.channels[channel];
    for (const name of document.channels[channel].parts) {
      const rule = { of: "files", root, bytes, removed, trees: places } as const;
      const written = await spool.extract(name, folder, "kept", rule, bytes);
      bytes -= written.bytes;
      for (const path of written.paths) paths.add(path);
    }
    return paths;
  }

  // ---- working trees -----------------------------------------------------------------------------------------------

  async #plan(): Promise<ReadonlyMap<Target, Planned>> {
    const { ws, scratch, options } = this.#of;
    const planned = new Map<Target, Planned>();
    const place = { scratch: rawFrom(scratch), signal: options.signal };
    for (const target of this.#targets.values()) if (target) planned.set(target, await planWorktree(ws, target, place));
    return planned;
  }

  async #checkOut(
    carried: Carried,
    how: "trusting" | "looking",
    planning: Promise<ReadonlyMap<Target, Planned>>,
  ): Promise<void> {
    const plans = await planning;
    for (const [target, input] of this.#inputs(carried)) {
      const planned = plans.get(target);
      if (planned) await restoreWorktree(this.#of.ws, target, planned, input, how);
    }
  }

  *#inputs(carried: Carried): Iterable<[Target, WorktreeInput]> {
    const { document, scratch, warnings, options } = this.#of;
    for (const [n, target] of this.#targets) {
      const tree = document.trees[n];
      if (!tree || !target) continue;
      yield [
        target,
        {
          tree,
          carried: below(carried[channelsOf(tree.root).tracked], tree.path),
          untracked: below(carried[channelsOf(tree.root).untracked], tree.path),
          nested: nestedIn(document.trees, n),
          scratch: rawFrom(scratch),
          warnings,
          signal: options.signal,
        },
      ];
    }
  }
}

const rootOf = (channel: Channel): Root =>
  channel === "worktree.parent" ? "parent" : channel === "worktree.home" ? "home" : "repo";

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
