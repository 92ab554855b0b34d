/** A repository's configuration, refs and HEAD, as they are. */
import { statSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { type ConfigEntry, isPartialClone, parseConfigList, sortConfig } from "./git-config.ts";
import { OFF, fixedEnv, git, type GitDirs, gitFailed, makeScratch, type Scratch, tryGit } from "./git.ts";
import type { ListedRefs, TreeMemory } from "./memory.ts";
import { byBytes, fsPath, type Raw, rawFrom, rawOf, stringPath, toText } from "./raw.ts";
import { refsStamp } from "./refs-stamp.ts";
import { isFresh, readIfThere, type ScanContext, stampOf } from "./scan-context.ts";

export interface TreeConfig {
  readonly objectFormat: "sha1" | "sha256";
  readonly carried: (readonly ["local" | "worktree", Raw, Raw])[];
  /** The last value of a key, local or of the working tree. */
  readonly value: (key: Raw) => Raw | null;
  readonly partial: boolean;
}

export async function readConfig(context: ScanContext, dirs: GitDirs, memory: TreeMemory): Promise<TreeConfig> {
  const paths = { local: `${dirs.commonDir}/config`, worktree: `${dirs.gitDir}/config.worktree` };
  const stamp = `${stampOf(paths.local)} ${stampOf(paths.worktree)}`;
  if (memory.config?.stamp !== stamp || isFresh(paths.local) || isFresh(paths.worktree)) {
    const list = async (path: Raw): Promise<ConfigEntry[]> => {
      if (stampOf(path) === "") return [];
      const output = await git(["config", "--file", stringPath(path), "--no-includes", "--list", "-z"], {
        env: fixedEnv(context.home),
        cwd: "/",
        signal: context.signal,
      });
      return parseConfigList(output);
    };
    const [local, worktree] = await Promise.all([list(paths.local), list(paths.worktree)]);
    memory.config = { stamp, local, worktree };
  }
  const { local, worktree } = memory.config;
  const all = [...local, ...worktree];
  const value = (key: Raw): Raw | null => all.findLast(([name]) => name === key)?.[1] ?? null;
  const format = value("extensions.objectformat") === "sha256" ? "sha256" : "sha1";
  const carried: ["local" | "worktree", Raw, Raw][] = [];
  const refused: Raw[] = [];
  for (const [scope, entries] of [
    ["local", local],
    ["worktree", worktree],
  ] as const) {
    const sorted = sortConfig(entries);
    for (const [key, text] of sorted.allowed) carried.push([scope, key, text]);
    refused.push(...sorted.refused);
  }
  if (refused.length > 0)
    context.warnings.add(
      `local git configuration that may run programs or hold credentials is not kept: ${refused.slice(0, 20).map(toText).join(", ")}`,
    );
  if (value("extensions.refstorage") === "reftable")
    context.warnings.add("refs in the reftable format: reflogs, and stash entries behind the newest, are not kept");
  return { objectFormat: format, carried, value, partial: isPartialClone(all) };
}

export function scratchOf(context: ScanContext, dirs: GitDirs, memory: TreeMemory, config: TreeConfig): Scratch {
  const shallow = `${dirs.commonDir}/shallow`;
  const key = `${dirs.commonDir} ${config.objectFormat} ${stampOf(shallow)} ${config.value("core.ignorecase")}`;
  if (memory.scratch?.key === key && statSync(fsPath(`${memory.scratch.scratch.dir}/HEAD`), { throwIfNoEntry: false }))
    return memory.scratch.scratch;
  const name =
    memory.scratch?.scratch.dir ?? `${context.scratch}/tree-${context.memory.trees.size}-${Date.now().toString(36)}`;
  const scratch = makeScratch({
    dir: name,
    home: context.home,
    objectFormat: config.objectFormat,
    objects: [`${dirs.commonDir}/objects`],
    excludeFile: `${dirs.commonDir}/info/exclude`,
    shallow: readIfThere(shallow),
    ignoreCase: config.value("core.ignorecase") === "true",
  });
  memory.scratch = { key, scratch };
  // The copy of the index that lay in the old folder is gone with it.
  memory.index = null;
  return scratch;
}

export interface Refs {
  /** Every ref that is no symbolic one. */
  readonly all: ReadonlyMap<Raw, string>;
  readonly local: (readonly [Raw, string])[];
  readonly symrefs: (readonly [Raw, Raw])[];
  readonly remotes: ReadonlyMap<Raw, string>;
  /** Where `refs/remotes/origin/HEAD` leads. */
  readonly remoteHead: Raw | null;
}

export async function readRefs(context: ScanContext, dirs: GitDirs, memory: TreeMemory): Promise<Refs> {
  const { output, ignored } = await listRefs(context, dirs, memory);
  if (ignored.length > 0)
    context.warnings.add(`refs that git cannot read are not kept: ${ignored.slice(0, 20).map(toText).join(", ")}`);
  const all = new Map<Raw, string>();
  const local: [Raw, string][] = [];
  const symrefs: [Raw, Raw][] = [];
  const remotes = new Map<Raw, string>();
  let remoteHead: Raw | null = null;
  for (const line of rawOf(output).split("\n")) {
    const space = line.indexOf(" ");
    const nul = line.indexOf("\0");
    if (space < 0 || nul < 0) continue;
    const name = line.slice(space + 1, nul);
    const symref = line.slice(nul + 1);
    const oid = line.slice(0, space);
    if (symref !== "") {
      if (name === "refs/remotes/origin/HEAD") remoteHead = symref;
      if (!name.startsWith("refs/remotes/") && !name.startsWith("refs/hangar/")) symrefs.push([name, symref]);
      continue;
    }
    all.set(name, oid);
    if (name.startsWith("refs/remotes/")) remotes.set(name, oid);
    else if (!name.startsWith("refs/hangar/") && !name.startsWith("refs/prefetch/")) local.push([name, oid]);
  }
  local.sort((a, b) => byBytes(a[0], b[0]));
  symrefs.sort((a, b) => byBytes(a[0], b[0]));
  return { all, local, symrefs, remotes, remoteHead };
}

/** Git is asked again only when a file of the refs changed, or may have. */
async function listRefs(context: ScanContext, dirs: GitDirs, memory: TreeMemory): Promise<ListedRefs> {
  const stamp = refsStamp(dirs);
  if (stamp !== null && memory.refs?.stamp === stamp) return memory.refs.listed;
  const args = [...OFF, "-c", "core.worktree=/", "for-each-ref", "--format=%(objectname) %(refname)%00%(symref)"];
  const env = { ...fixedEnv(context.home), GIT_DIR: stringPath(dirs.gitDir) };
  const result = await tryGit(args, { env, cwd: "/", signal: context.signal });
  if (result.code !== 0) throw gitFailed(args, result);
  const listed = { output: result.stdout, ignored: ignoredRefs(result.stderr) };
  memory.refs = stamp === null ? null : { stamp, listed };
  return listed;
}

/** Refs that git passes over with a warning: of a name or with bytes that are no ref's. */
const ignoredRefs = (stderr: string): Raw[] =>
  [...stderr.matchAll(/^warning: ignoring (?:broken ref|ref with broken name) (.*)$/gm)]
    .map(([, name = ""]) => rawFrom(name))
    .filter((name) => !name.startsWith("refs/remotes/"));

export function readHead(dirs: GitDirs, refs: ReadonlyMap<Raw, string>): { branch: Raw | null; head: string | null } {
  const text = (readIfThere(`${dirs.gitDir}/HEAD`) ?? Buffer.alloc(0)).toString("latin1").replace(/[\r\n ]+$/, "");
  if (text.startsWith("ref:")) {
    const branch = text.slice(4).trim();
    return { branch, head: refs.get(branch) ?? null };
  }
  if (!/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(text))
    throw new HangarError("checkpoint_failed", "The repository's HEAD cannot be read: run git status in it");
  return { branch: null, head: text };
}
