/** The index entry by entry: staged apart from unstaged, stages, flags, modes; and versions that git writes it in. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const states: State[] = [
  {
    name: "staged, unstaged and both",
    make: "echo 2 >a.txt; git add a.txt; echo 3 >a.txt; echo 2 >b.txt; git add b.txt; echo 2 >d/c.txt; echo new >new; git add new",
    later: "git reset -q a.txt; git add d/c.txt; echo 4 >new",
  },
  {
    name: "staged, then undone on the disk",
    make: "echo 2 >a.txt; git add a.txt; git show HEAD:a.txt >a.txt; echo draft >draft; git add draft; rm draft; echo k >k; git add k; : >k",
  },
  {
    name: "staged removals, one of a file that stays",
    make: "git rm -q b.txt; git rm -q --cached a.txt",
    later: "git add a.txt",
  },
  {
    name: "out of the index and ignored since",
    make: "git rm -q --cached a.txt; echo a.txt >.gitignore; echo more >>a.txt",
    later: "git add -f a.txt",
  },
  {
    name: "intent to add",
    make: "echo p >planned; git add -N planned; : >empty; git add -N empty; echo x >>a.txt",
    later: "git add planned; echo q >more; git add -N more",
  },
  { name: "intent to add of a file that is gone", make: "echo p >planned; git add -N planned; rm planned" },
  {
    name: "executable bits, staged and not",
    make: "chmod +x a.txt; git update-index --chmod=+x b.txt; chmod +x d/c.txt; git add d/c.txt",
    later: "chmod -x a.txt; git update-index --chmod=-x d/c.txt",
  },
  {
    name: "assume-unchanged and skip-worktree over edits",
    make: "echo mine >a.txt; git update-index --assume-unchanged a.txt; echo mine >b.txt; git update-index --skip-worktree b.txt",
    later: "git update-index --no-assume-unchanged a.txt; echo more >>b.txt",
  },
  {
    name: "flags on files that are gone or as they were",
    make: "rm a.txt; git update-index --assume-unchanged a.txt; git update-index --skip-worktree b.txt; rm d/c.txt; git update-index --skip-worktree d/c.txt",
  },
  {
    name: "index version 4",
    make: "git update-index --index-version 4; echo 2 >a.txt; git add a.txt; echo n >newer; git add newer",
    later: "git update-index --skip-worktree b.txt",
  },
  {
    name: "a split index",
    make: "git update-index --split-index; echo 2 >a.txt; git add a.txt; echo 3 >b.txt",
    later: "git add b.txt; git rm -q --cached d/c.txt",
  },
  {
    name: "a sparse index",
    make: "mkdir -p e/f; echo e >e/f/g; git add -A; git commit -qm e; git sparse-checkout set --cone --sparse-index d >/dev/null; echo x >>d/c.txt; git add d/c.txt",
    later: "echo y >>d/c.txt",
  },
  {
    name: "entries that git added without a file",
    make: "git update-index --add --cacheinfo 100644,$(echo ghost | git hash-object -w --stdin),ghost/file; git update-index --add --cacheinfo 120000,$(printf target | git hash-object -w --stdin),ghostlink",
  },
  {
    name: "a file where a folder is staged, and the reverse",
    make: "rm -r d; echo f >d; rm a.txt; mkdir a.txt; echo i >a.txt/i; git add -A; rm -r a.txt; echo again >a.txt",
  },
  {
    name: "renames staged",
    make: "git mv a.txt moved.txt; echo more >>moved.txt; git mv b.txt tmp; git mv d/c.txt b.txt; git mv tmp d/c.txt",
  },
  {
    name: "a conflict by stash pop",
    make: "echo mine >a.txt; git stash -q; echo theirs >a.txt; git commit -qam theirs; git stash pop -q >/dev/null 2>&1 || true",
    later: "git add a.txt",
  },
  {
    name: "a conflict of modes and kinds",
    make: "git checkout -q -b o; rm a.txt; ln -s b.txt a.txt; git commit -qam link; git checkout -q work; echo m >a.txt; git commit -qam m; git merge o >/dev/null 2>&1 || true",
  },
  {
    name: "times that say nothing",
    make: "echo 2 >a.txt; git add a.txt; echo 3 >a.txt; touch -d 2001-01-01Z a.txt b.txt; printf 'tw0\\n' >b.txt; touch -d 2001-01-01Z b.txt",
    later: "printf 'tw1\\n' >b.txt; touch -d 2001-01-01Z b.txt",
  },
  { name: "no index at all", make: "rm .git/index", later: "git reset -q" },
];

describe.concurrent("index", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
