/** Reads a whole workspace: the repository, what is nested in it, its linked working trees. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { HangarError, type LeftOut, LeftOut as LeftOutSchema } from "@hangar/shared";
import { z } from "zod";
import { parseConfigList, type ConfigEntry } from "./git-config.ts";
import { absolute, findGitDirs, git, type GitDirs, resolveRaw, userEnv } from "./git.ts";
import { createMemory, type Memory } from "./memory.ts";
import { byBytes, fromText, fsPath, joinRaw, lstatRaw, type Raw, rawFrom, toText } from "./raw.ts";
import { type ScanContext, stampOf } from "./scan-context.ts";
import { scanTree, type TreeScan } from "./scan-tree.ts";
import { type Channels, channelsOf, noFiles, type Root, type TreeState } from "./state.ts";
import type { Workspace } from "./types.ts";

export interface Scan {
  /** Without conversations. */
  readonly trees: readonly TreeState[];
  readonly files: Channels;
  /** By place in `trees`; none for a linked tree whose folder is gone. */
  readonly scans: readonly (TreeScan | null)[];
  readonly roots: Readonly<Record<Root, Raw>>;
  readonly leftOut: readonly LeftOut[];
  readonly warnings: readonly string[];
}

const MAX_TREES = 1000;

/**
 * @param maxUntracked bytes of untracked files; the largest are left out until the rest fits.
 * @throws HangarError `checkpoint_failed`: not a repository, or one that cannot be read.
 */
export async function scanWorkspace(
  ws: Workspace,
  memory: Memory,
  maxUntracked: number,
  signal?: AbortSignal,
  filtered: ReadonlyMap<Raw, number> = new Map(),
): Promise<Scan> {
  const repo = absolute(ws.repo);
  const home = absolute(ws.home);
  const roots = { repo, home, parent: rawFrom(dirname(ws.repo)) };
  const dirs = findGitDirs(repo);
  if (!dirs)
    throw new HangarError("checkpoint_failed", `${ws.repo} is no git repository: run git init there, or name another`);
  const scratch = `${absolute(ws.scratch)}/git`;
  mkdirSync(fsPath(scratch), { recursive: true, mode: 0o700 });
  const context: ScanContext = {
    home: ws.home,
    memory,
    scratch,
    userConfig: await readUserConfig(ws, memory),
    warnings: new Set(),
    unreadable: new Map(),
    filtered,
    signal,
  };
  const walk = new Walk(context, roots, ws.keepIgnored);
  await walk.repository(dirs, { kind: "main", root: "repo", path: "", gitDir: null });
  const leftOut = limitUntracked(walk, maxUntracked);
  for (const [at, size] of context.unreadable)
    leftOut.push({ path: toText(at.startsWith(`${repo}/`) ? at.slice(repo.length + 1) : at), size });
  for (const lost of readLost(dirs.commonDir))
    if (!leftOut.some(({ path }) => path === lost.path) && !lstatRaw(`${repo}/${fromText(lost.path)}`))
      leftOut.push(lost);
  for (const { path } of leftOut.slice(0, 50)) context.warnings.add(`left out: ${path}`);
  return {
    trees: walk.trees,
    files: walk.files,
    scans: walk.scans,
    roots,
    leftOut,
    warnings: [...context.warnings],
  };
}

const Lost = z.array(LeftOutSchema);
const LOST_FILE = "hangar/left-out.json";

/** What the checkpoint that this workspace was restored from had left out: it stays named for as long as it is not there. */
function readLost(commonDir: Raw): LeftOut[] {
  try {
    return Lost.parse(JSON.parse(readFileSync(fsPath(`${commonDir}/${LOST_FILE}`), "utf8")));
  } catch {
    return [];
  }
}

export function writeLost(commonDir: Raw, leftOut: readonly LeftOut[]): void {
  if (leftOut.length === 0) {
    rmSync(fsPath(`${commonDir}/${LOST_FILE}`), { force: true });
    return;
  }
  mkdirSync(fsPath(`${commonDir}/hangar`), { recursive: true });
  writeFileSync(fsPath(`${commonDir}/${LOST_FILE}`), JSON.stringify(leftOut));
}

export const memoryOf = (ws: Workspace): Memory => ws.memory ?? createMemory();

/** What the home's configuration says of ignored files and conversions. */
async function readUserConfig(ws: Workspace, memory: Memory): Promise<readonly ConfigEntry[]> {
  const home = rawFrom(ws.home);
  const stamp = [`${home}/.gitconfig`, `${home}/.config/git/config`].map(stampOf).join(" ");
  if (stamp.trim() === "") return [];
  if (memory.userConfig?.stamp !== stamp) {
    const output = await git(
      [
        "config",
        "--global",
        "--includes",
        "--type=path",
        "-z",
        "--get-regexp",
        "^core[.](excludesfile|attributesfile)$",
      ],
      {
        env: userEnv(ws.home),
        cwd: "/",
      },
    ).catch(() => Buffer.alloc(0));
    const other = await git(["config", "--global", "--includes", "-z", "--get-regexp", "^core[.](autocrlf|eol)$"], {
      env: userEnv(ws.home),
      cwd: "/",
    }).catch(() => Buffer.alloc(0));
    memory.userConfig = { stamp, entries: [...parseConfigList(output), ...parseConfigList(other)] };
  }
  return memory.userConfig.entries;
}

type Identity = Pick<TreeState, "kind" | "root" | "path" | "gitDir">;

class Walk {
  readonly trees: TreeState[] = [];
  readonly scans: (TreeScan | null)[] = [];
  readonly files: Channels = noFiles();
  readonly context: ScanContext;
  readonly #roots: Readonly<Record<Root, Raw>>;
  readonly #keepIgnored: readonly string[];
  /** Working trees that were taken, absolute. */
  readonly #seen = new Set<Raw>();

  constructor(context: ScanContext, roots: Readonly<Record<Root, Raw>>, keepIgnored: readonly string[]) {
    this.context = context;
    this.#roots = roots;
    this.#keepIgnored = keepIgnored;
  }

  /** A repository, its linked working trees, and what is nested in any of them. */
  async repository(dirs: GitDirs, identity: Identity): Promise<void> {
    if (this.trees.length >= MAX_TREES)
      throw new HangarError("checkpoint_failed", `Over ${MAX_TREES} nested repositories: ignore some of them`);
    const owner = this.trees.length;
    const linked = this.#linkedTrees(dirs);
    for (const { worktree } of linked) this.#seen.add(worktree);
    const scan = await this.#take(dirs, { ...identity, owner, id: null });
    for (const { id, worktree } of linked) await this.#linked(dirs, owner, id, worktree, scan);
    await this.#nested(scan, identity);
  }

  async #take(dirs: GitDirs, identity: Identity & { owner: number; id: Raw | null }): Promise<TreeScan> {
    this.#seen.add(dirs.worktree);
    const at = this.trees.length;
    const scan = await scanTree(this.context, dirs, identity.kind === "main" ? this.#keepIgnored : []);
    const refs =
      identity.kind === "nested"
        ? [...scan.state.refs, ...scan.remoteRefs].sort((a, b) => byBytes(a[0], b[0]))
        : scan.state.refs;
    this.trees[at] = { ...scan.state, ...identity, refs: identity.kind === "linked" ? ownRefs(refs) : refs };
    this.scans[at] = scan;
    const channels = channelsOf(identity.root);
    for (const [path, file] of scan.tracked) this.files[channels.tracked].set(joinRaw(identity.path, path), file);
    for (const [path, file] of scan.untracked) this.files[channels.untracked].set(joinRaw(identity.path, path), file);
    return scan;
  }

  async #linked(owner: GitDirs, ownerAt: number, id: Raw, worktree: Raw, ownerScan: TreeScan): Promise<void> {
    const place = this.#place(worktree);
    if (place === null) {
      this.context.warnings.add(
        `the linked working tree ${toText(worktree)} lies outside the workspace and the home: its files are not kept`,
      );
      return;
    }
    const identity = { kind: "linked", ...place, owner: ownerAt, id, gitDir: null } as const;
    const dirs = findGitDirs(worktree);
    if (dirs && dirs.gitDir === `${owner.commonDir}/worktrees/${id}`) {
      const scan = await this.#take({ ...dirs, commonDir: owner.commonDir }, identity);
      await this.#nested(scan, identity);
      return;
    }
    // Its folder was removed without `git worktree remove`: git still lists it, with its HEAD.
    this.trees.push({
      ...MISSING,
      ...identity,
      ...headOf(`${owner.commonDir}/worktrees/${id}`, ownerScan),
      objectFormat: ownerScan.state.objectFormat,
    });
    this.scans.push(null);
  }

  async #nested(scan: TreeScan, identity: Identity): Promise<void> {
    for (const path of scan.nested) {
      const worktree = `${scan.dirs.worktree}/${path}`;
      if (this.#seen.has(worktree)) continue;
      const dirs = findGitDirs(worktree);
      if (!dirs) continue;
      if (dirs.commonDir !== dirs.gitDir) {
        this.context.warnings.add(
          `${toText(joinRaw(identity.path, path))} is a working tree of a repository elsewhere: it is not kept`,
        );
        continue;
      }
      const inside =
        dirs.gitFile &&
        /^(?:.*\/)?\.git\/modules\/./s.test(dirs.gitDir.slice(this.#roots.repo.length + 1)) &&
        dirs.gitDir.startsWith(`${this.#roots.repo}/`);
      await this.repository(dirs, {
        kind: "nested",
        root: identity.root,
        path: joinRaw(identity.path, path),
        gitDir: inside ? dirs.gitDir.slice(this.#roots.repo.length + 1) : null,
      });
    }
  }

  #linkedTrees(dirs: GitDirs): { id: Raw; worktree: Raw }[] {
    const folder = `${dirs.commonDir}/worktrees`;
    let ids: Raw[] = [];
    try {
      ids = readdirSync(fsPath(folder), { encoding: "latin1" }).sort(byBytes);
    } catch {
      return [];
    }
    const trees: { id: Raw; worktree: Raw }[] = [];
    for (const id of ids) {
      try {
        const gitFile = readFileSync(fsPath(`${folder}/${id}/gitdir`), "latin1").replace(/[\r\n]+$/, "");
        const at = resolveRaw(`${folder}/${id}`, gitFile);
        if (at.endsWith("/.git")) trees.push({ id, worktree: at.slice(0, -5) });
      } catch {
        // half made or half removed: git does not list it either
      }
    }
    return trees;
  }

  #place(worktree: Raw): { root: Root; path: Raw } | null {
    for (const root of ["repo", "parent", "home"] as const) {
      const at = this.#roots[root];
      if (at !== "/" && worktree.startsWith(`${at}/`)) return { root, path: worktree.slice(at.length + 1) };
    }
    return null;
  }
}

/** Refs that each working tree has for itself. */
const ownRefs = (refs: TreeState["refs"]): TreeState["refs"] =>
  refs.filter(([name]) => /^refs\/(?:bisect|worktree|rewritten)\//.test(name));

const MISSING = {
  refs: [],
  symrefs: [],
  index: { entries: [], removed: [], assumeUnchanged: [], skipWorktree: [], count: 0 },
  deleted: [],
  modes: [],
  usualModes: [0o644, 0o755] as const,
  filtered: [],
  gitFiles: new Map<Raw, Buffer>(),
  config: [],
  missing: true,
} as const;

function headOf(gitDir: Raw, owner: TreeScan): { branch: Raw | null; head: string | null } {
  let text = "";
  try {
    text = readFileSync(fsPath(`${gitDir}/HEAD`), "latin1").trim();
  } catch {
    return { branch: null, head: null };
  }
  if (!text.startsWith("ref:")) return { branch: null, head: text };
  const branch = text.slice(4).trim();
  return { branch, head: owner.state.refs.find(([name]) => name === branch)?.[1] ?? null };
}

/** Takes the largest untracked files out until the rest fits. */
function limitUntracked(walk: Walk, most: number): LeftOut[] {
  const { files, scans, trees } = walk;
  let sum = 0;
  const all: { channel: keyof Channels; path: Raw; size: number }[] = [];
  for (const [path, file] of files.untracked) {
    sum += file.size;
    all.push({ channel: "untracked", path, size: file.size });
  }
  for (const [i, tree] of trees.entries()) {
    if (tree.root === "repo") continue;
    const { untracked } = channelsOf(tree.root);
    for (const [name, file] of scans[i]?.untracked ?? []) {
      sum += file.size;
      all.push({ channel: untracked, path: joinRaw(tree.path, name), size: file.size });
    }
  }
  if (sum <= most) return [];
  const left: LeftOut[] = [];
  all.sort((a, b) => b.size - a.size || byBytes(a.path, b.path));
  for (const { channel, path, size } of all) {
    if (sum <= most) break;
    sum -= size;
    files[channel].delete(path);
    left.push({ path: toText(path), size });
  }
  return left;
}
