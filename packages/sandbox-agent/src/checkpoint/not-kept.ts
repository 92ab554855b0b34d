/** What a checkpoint does not keep: the largest ignored entries at the top of the repository, for people to know. */
import { readdirSync } from "node:fs";
import { setImmediate as breathe } from "node:timers/promises";
import type { LeftOut } from "@hangar/shared";
import { tryGit } from "./git.ts";
import type { Memory } from "./memory.ts";
import { fsPath, type Raw, splitZ, stringPath, toText, lstatRaw } from "./raw.ts";
import type { TreeScan } from "./scan-tree.ts";

const MOST_NAMED = 20;
/** Files looked at for one answer: a size is then a lower bound. */
const MOST_FILES = 20_000;
/** A large tree's sizes are looked up once in this time (ms). */
const FRESH = 10 * 60_000;

export async function notKept(memory: Memory, own: TreeScan, signal?: AbortSignal): Promise<LeftOut[]> {
  if (memory.notKept && Date.now() - memory.notKept.at < FRESH) return memory.notKept.entries;
  const result = await tryGit(
    ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory"],
    {
      env: {
        ...own.scratch.env,
        GIT_WORK_TREE: stringPath(own.dirs.worktree),
        GIT_INDEX_FILE: stringPath(own.indexPath),
      },
      cwd: own.dirs.worktree,
      signal,
    },
  );
  if (result.code !== 0) return [];
  const budget = { left: MOST_FILES };
  const entries: LeftOut[] = [];
  for (const name of splitZ(result.stdout)) {
    const path = name.replace(/\/$/, "");
    if (budget.left <= 0) break;
    entries.push({ path: toText(name), size: sizeOf(`${own.dirs.worktree}/${path}`, budget) });
    await breathe();
  }
  entries.sort((a, b) => b.size - a.size);
  const named = entries.slice(0, MOST_NAMED);
  memory.notKept = { stamp: "", at: Date.now(), entries: named };
  return named;
}

function sizeOf(path: Raw, budget: { left: number }): number {
  if (budget.left-- <= 0) return 0;
  const stat = lstatRaw(path);
  if (!stat) return 0;
  if (!stat.isDirectory()) return stat.size;
  let sum = 0;
  try {
    for (const name of readdirSync(fsPath(path), { encoding: "latin1" })) sum += sizeOf(`${path}/${name}`, budget);
  } catch {
    // a folder that cannot be read counts for nothing
  }
  return sum;
}
