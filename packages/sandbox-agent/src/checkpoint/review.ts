/** For people: `wip.patch`, and `review.json`, which may be shown without unpacking anything. Nothing here is restored from. */
import { git, type Scratch, tryGit } from "./git.ts";
import type { Memory, ReviewCommit } from "./memory.ts";
import { rawOf, stringPath, toText, type Raw } from "./raw.ts";
import type { Scan } from "./scan.ts";
import type { TreeScan } from "./scan-tree.ts";

/** Files over this are not in the patch; they are in the `worktree` part. */
const MAX_PATCHED = 4 * 1024 * 1024;
/** A patch over this is not kept: it would be sent anew with every change, and says nothing that the other parts do not. */
const MAX_PATCH = 64 * 1024;
const MAX_SHOWN_PATCH = 16 * 1024;
const MAX_COMMITS = 200;
const MAX_NAMES = 2000;

const DIFF = [
  "--no-ext-diff",
  "--no-textconv",
  "--no-color",
  "--no-renames",
  "--src-prefix=a/",
  "--dst-prefix=b/",
  "--unified=3",
  "--ignore-submodules=dirty",
];

/** `git diff --binary HEAD` of the main working tree. Empty: nothing tracked is changed, or no HEAD. */
export async function makePatch(scan: Scan, signal?: AbortSignal): Promise<{ patch: Buffer; tooLarge: Raw[] }> {
  const own = scan.scans[0];
  const tree = scan.trees[0];
  if (!own || !tree || tree.head === null) return { patch: Buffer.alloc(0), tooLarge: [] };
  if (own.tracked.size === 0 && tree.deleted.length === 0 && own.changes.length === 0)
    return { patch: Buffer.alloc(0), tooLarge: [] };
  const tooLarge = [...own.tracked].filter(([, file]) => file.size > MAX_PATCHED).map(([path]) => path);
  const result = await tryGit(
    [
      "diff",
      "--binary",
      "--full-index",
      ...DIFF,
      tree.head,
      "--",
      ".",
      ...tooLarge.map((path) => `:(exclude,literal,top)${stringPath(path)}`),
    ],
    {
      env: patchEnv(own),
      cwd: own.dirs.worktree,
      signal,
    },
  );
  // A partial clone may lack what the diff compares with, and the tree may change under it: the patch is not what counts.
  return { patch: result.code === 0 ? result.stdout : Buffer.alloc(0), tooLarge };
}

/** What of a patch is a part of its own: all or nothing. */
export const keptPatch = (patch: Buffer): Buffer => (patch.length <= MAX_PATCH ? patch : Buffer.alloc(0));

const patchEnv = (own: TreeScan): Record<string, string> => ({
  ...own.scratch.env,
  GIT_WORK_TREE: stringPath(own.dirs.worktree),
  GIT_INDEX_FILE: stringPath(own.indexPath),
});

export async function makeReview(
  scan: Scan,
  base: string | null,
  patch: Buffer,
  memory: Memory,
  signal?: AbortSignal,
): Promise<Buffer> {
  const tree = scan.trees[0];
  const own = scan.scans[0];
  const log = tree?.head && own ? await commits(own.scratch, tree.head, base, memory, signal) : [];
  const untracked = [...(own?.untracked ?? [])].map(([path, file]) => ({ path: toText(path), size: file.size }));
  const changed = [...(own?.tracked ?? [])].map(([path, file]) => ({ path: toText(path), size: file.size }));
  const whole = patch.length <= MAX_SHOWN_PATCH;
  const review = {
    version: 1,
    branch: tree?.branch === undefined || tree.branch === null ? null : toText(tree.branch),
    head: tree?.head ?? null,
    base,
    log,
    changed: changed.slice(0, MAX_NAMES),
    deleted: (tree?.deleted ?? []).slice(0, MAX_NAMES).map(toText),
    untracked: untracked.slice(0, MAX_NAMES),
    stashes: (rawOf(tree?.gitFiles.get("logs/refs/stash") ?? Buffer.alloc(0)).match(/\n/g) ?? []).length,
    patch: whole ? patch.toString("utf8") : patch.toString("utf8", 0, MAX_SHOWN_PATCH),
    patch_truncated: !whole,
    names_truncated: changed.length > MAX_NAMES || untracked.length > MAX_NAMES,
  };
  return Buffer.from(`${JSON.stringify(review, null, 1)}\n`);
}

async function commits(
  scratch: Scratch,
  head: string,
  base: string | null,
  memory: Memory,
  signal?: AbortSignal,
): Promise<readonly ReviewCommit[]> {
  if (base === head) return [];
  const key = `${scratch.dir} ${head} ${base}`;
  if (memory.log?.key === key) return memory.log.commits;
  const output = await git(
    [
      "log",
      "-z",
      `--max-count=${MAX_COMMITS}`,
      "--no-show-signature",
      "--format=%H%n%an%n%aI%n%s",
      head,
      ...(base ? [`^${base}`] : []),
      "--",
    ],
    { env: scratch.env, cwd: scratch.dir, signal },
  ).catch(() => null);
  if (output === null) return [];
  const commits = output
    .toString("utf8")
    .split("\0")
    .filter((record) => record.trim() !== "")
    .map((record) => {
      const [commit = "", author = "", date = "", subject = ""] = record.trim().split("\n");
      return { commit, author, date, subject };
    });
  memory.log = { key, commits };
  return commits;
}
