/** Reads one working tree: its HEAD, refs, index, files and git state, as they are, without a lock or a write. */
import { hooksIn, readGitFiles } from "./git-files.ts";
import type { GitDirs, Scratch } from "./git.ts";
import type { IndexEntry } from "./index-file.ts";
import { type HeadChange, treeMemory } from "./memory.ts";
import { type Raw, toText } from "./raw.ts";
import { listOthers, readFiles } from "./read-files.ts";
import { headChanges, indexDelta, readTreeIndex } from "./read-index.ts";
import { readConfig, readHead, readRefs, scratchOf } from "./read-repository.ts";
import type { ScanContext } from "./scan-context.ts";
import type { Files, TreeState } from "./state.ts";

export interface TreeScan {
  readonly dirs: GitDirs;
  readonly scratch: Scratch;
  /** What git is given to read as this tree's index. */
  readonly indexPath: Raw;
  readonly state: Omit<TreeState, "kind" | "root" | "path" | "owner" | "id" | "gitDir">;
  readonly entries: readonly IndexEntry[];
  readonly changes: readonly HeadChange[];
  /** Tracked files that are not as in HEAD, and untracked ones; by path below the tree. */
  readonly tracked: Files;
  readonly untracked: Files;
  /** Folders with a git folder of their own. */
  readonly nested: readonly Raw[];
  /** Refs of remotes, with where a symbolic one leads. */
  readonly remoteRefs: ReadonlyMap<Raw, string>;
  readonly remoteHead: Raw | null;
  readonly remoteUrl: Raw | null;
  readonly partial: boolean;
}

export async function scanTree(context: ScanContext, dirs: GitDirs, keepIgnored: readonly string[]): Promise<TreeScan> {
  const memory = treeMemory(context.memory, dirs.gitDir);
  const readingRefs = readRefs(context, dirs, memory);
  // Each is awaited, also after a failure: no git is left running behind it.
  readingRefs.catch(() => {});
  const config = await readConfig(context, dirs, memory);
  const { objectFormat } = config;
  const scratch = scratchOf(context, dirs, memory, config);
  const index = await readTreeIndex(context, dirs, memory, scratch, objectFormat);
  const others = listOthers(context, dirs, scratch, index, keepIgnored);
  others.catch(() => {});
  const refs = await readingRefs;
  const { branch, head } = readHead(dirs, refs.all);
  const changing = headChanges(context, memory, scratch, index, head, objectFormat);
  changing.catch(() => {});
  const found = await readFiles(context, {
    dirs,
    scratch,
    index,
    changes: changing,
    others,
    objectFormat,
    memory,
    config,
    refs,
  });
  const changes = await changing;
  const gitFiles = readGitFiles(dirs.gitDir, dirs.commonDir);
  for (const warning of gitFiles.warnings) context.warnings.add(warning);
  const hooks = dirs.gitDir === dirs.commonDir ? hooksIn(dirs.commonDir) : [];
  if (hooks.length > 0)
    context.warnings.add(`git hooks are programs and are not kept: ${hooks.slice(0, 20).map(toText).join(", ")}`);
  return {
    dirs,
    scratch,
    indexPath: index.path,
    entries: index.file.entries,
    changes,
    tracked: found.tracked,
    untracked: found.untracked,
    nested: found.nested,
    remoteRefs: refs.remotes,
    remoteHead: refs.remoteHead,
    remoteUrl: config.value("remote.origin.url"),
    partial: config.partial,
    state: {
      objectFormat,
      branch,
      head,
      refs: refs.local,
      symrefs: refs.symrefs,
      index: indexDelta(index.file, changes),
      deleted: found.deleted,
      modes: found.modes,
      usualModes: found.usualModes,
      filtered: found.filtered,
      gitFiles: gitFiles.files,
      config: config.carried,
      missing: false,
    },
  };
}
