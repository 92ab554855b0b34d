/** Files of a git folder that are state: an operation in progress, the stash's log, excludes, sparse patterns. */
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { fsPath, type Raw, lstatRaw } from "./raw.ts";

/** Of one working tree: in its own git folder. A folder is taken with all it holds. */
const TREE_FILES =
  /^(?:MERGE_HEAD|MERGE_MSG|MERGE_MODE|MERGE_RR|MERGE_AUTOSTASH|SQUASH_MSG|CHERRY_PICK_HEAD|REVERT_HEAD|REBASE_HEAD|ORIG_HEAD|AUTO_MERGE|BISECT_[A-Z_]+|NOTES_MERGE_(?:PARTIAL|REF|WORKTREE)|rebase-merge|rebase-apply|sequencer)$/;
/** Of the whole repository. */
const COMMON_FILES = ["logs/refs/stash", "info/exclude", "info/attributes", "shallow", "rr-cache"];
const LINKED_FILES = ["locked"];
const SPARSE = "info/sparse-checkout";
/** All of them together, bytes. */
const MOST = 64 * 1024 * 1024;

/** What a restored file may be called: the same names, and no way out of the git folder. */
export function isGitFile(path: Raw): boolean {
  const pieces = path.split("/");
  if (pieces.some((piece) => piece === "" || piece === "." || piece === ".." || piece.includes("\0"))) return false;
  const top = pieces[0] ?? "";
  return (
    TREE_FILES.test(top) ||
    path === SPARSE ||
    COMMON_FILES.some((name) => path === name || path.startsWith(`${name}/`)) ||
    LINKED_FILES.includes(path)
  );
}

export interface FoundGitFiles {
  readonly files: Map<Raw, Buffer>;
  readonly warnings: string[];
}

export function readGitFiles(gitDir: Raw, commonDir: Raw): FoundGitFiles {
  const found: FoundGitFiles = { files: new Map(), warnings: [] };
  const budget = { left: MOST };
  for (const name of readdirSync(fsPath(gitDir), { encoding: "latin1" }))
    if (TREE_FILES.test(name)) take(found, budget, gitDir, name);
  take(found, budget, gitDir, SPARSE);
  if (gitDir === commonDir) for (const name of COMMON_FILES) take(found, budget, gitDir, name);
  else for (const name of LINKED_FILES) take(found, budget, gitDir, name);
  return found;
}

function take(found: FoundGitFiles, budget: { left: number }, gitDir: Raw, name: Raw): void {
  const at = `${gitDir}/${name}`;
  const stat = lstatRaw(at);
  if (stat === undefined || name.endsWith(".lock")) return;
  if (stat.isDirectory()) {
    for (const child of readdirSync(fsPath(at), { encoding: "latin1" }))
      take(found, budget, gitDir, `${name}/${child}`);
    return;
  }
  if (!stat.isFile()) return;
  budget.left -= stat.size;
  if (budget.left < 0) {
    found.warnings.push(`.git/${name} is not kept: the state of operations is over ${MOST} bytes`);
    return;
  }
  try {
    found.files.set(name, readFileSync(fsPath(at)));
  } catch (error) {
    // An operation that ends at this moment takes its files away.
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

/** Hooks that somebody put there: programs, which no checkpoint carries into another sandbox. */
export function hooksIn(commonDir: Raw): Raw[] {
  try {
    return readdirSync(fsPath(`${commonDir}/hooks`), { encoding: "latin1" }).filter(
      (name) => !name.endsWith(".sample") && ((lstatRaw(`${commonDir}/hooks/${name}`)?.mode ?? 0) & 0o111) !== 0,
    );
  } catch {
    return [];
  }
}

/** Files that name objects: what they name has to travel. Not the shallow list: it names what is not there. */
export const namesObjects = (path: Raw): boolean =>
  TREE_FILES.test(path.split("/")[0] ?? "") && !path.startsWith("rr-cache/");

/** Takes all such files away, before those of a checkpoint are put in their place. */
export function removeGitFiles(gitDir: Raw, commonDir: Raw): void {
  for (const name of readdirSync(fsPath(gitDir), { encoding: "latin1" }))
    if (TREE_FILES.test(name)) rmSync(fsPath(`${gitDir}/${name}`), { recursive: true, force: true });
  const more = gitDir === commonDir ? COMMON_FILES.filter((name) => name !== "shallow") : LINKED_FILES;
  for (const name of [SPARSE, ...more]) rmSync(fsPath(`${gitDir}/${name}`), { recursive: true, force: true });
}
