/** Operations in progress and stashes: they come back, and end as they would have. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const sides =
  "git checkout -q -b o; echo other >a.txt; git commit -qam other; echo o2 >>b.txt; git commit -qam o2; git checkout -q work; echo mine >a.txt; git commit -qam mine;";
const quiet = ">/dev/null 2>&1 || true";

const states: State[] = [
  {
    name: "a merge with conflicts, continued",
    make: `${sides} git merge o ${quiet}; echo u >u`,
    later: "echo half >a.txt; git add a.txt; rm u",
    finish: "echo both >a.txt; git add a.txt; git merge --continue",
  },
  {
    name: "a merge with conflicts, aborted",
    make: `${sides} echo keep >>d/c.txt; git merge o ${quiet}`,
    later: "git checkout -q --ours a.txt; git add a.txt; git checkout -q -m a.txt",
    finish: "git merge --abort",
  },
  {
    name: "a merge that waits for its commit",
    make: `git checkout -q -b o; echo n >n; git add n; git commit -qm n; git checkout -q work; echo m >m; git add m; git commit -qm m; git merge -q --no-ff --no-commit o ${quiet}`,
    later: "echo more >>n; git add n; git stash list",
    finish: "git commit -qm merged",
  },
  {
    name: "a squashed merge",
    make: `git checkout -q -b o; echo n >n; git add n; git commit -qm n; git checkout -q work; git merge -q --squash o ${quiet}`,
    later: "echo more >>n; echo message >.git/SQUASH_MSG",
    finish: "git commit -q --no-edit",
  },
  {
    name: "a rebase stopped at a conflict, continued",
    make: `${sides} git rebase o ${quiet}`,
    later: "echo solved >a.txt; git add a.txt",
    finish: "echo solved >a.txt; git add a.txt; git rebase --continue",
  },
  {
    name: "a rebase stopped at a conflict, aborted",
    make: `${sides} git rebase o ${quiet}`,
    later: "git checkout -q --theirs a.txt; echo u >u",
    finish: "git rebase --abort",
  },
  {
    name: "a rebase stopped at a conflict, skipped",
    make: `${sides} git rebase o ${quiet}`,
    later: "echo half >a.txt; echo b >>b.txt",
    finish: "git rebase --skip",
  },
  {
    name: "an interactive rebase at an edit, with an autostash",
    make: `for i in 1 2 3; do echo $i >f$i; git add -A; git commit -qm f$i; done; echo dirty >>a.txt; GIT_SEQUENCE_EDITOR="sed -i 's/^pick \\(.*f2\\)/edit \\1/'" git rebase -q --autostash -i HEAD~3 ${quiet}; echo amended >>f2`,
    later: "git commit -qa --amend --no-edit; echo again >>f2; echo x pwd >>.git/rebase-merge/git-rebase-todo",
    finish: "git commit -qa --amend --no-edit; git rebase --continue",
  },
  {
    name: "a rebase of merges with the apply backend",
    make: `${sides} git rebase --apply o ${quiet}`,
    later: "echo solved >a.txt; git add a.txt",
    finish: "echo solved >a.txt; git add a.txt; git rebase --continue",
  },
  {
    name: "a sequence of cherry-picks, continued",
    make: `git checkout -q -b o; for i in 1 2 3; do echo $i >a.txt; git commit -qam c$i; done; git checkout -q work; echo w >a.txt; git commit -qam w; git cherry-pick o~2 o~1 o ${quiet}`,
    later: "echo 1 >a.txt; git add a.txt; git cherry-pick --continue >/dev/null 2>&1 || true",
    finish: "echo 1 >a.txt; git add a.txt; git cherry-pick --continue",
  },
  {
    name: "a cherry-pick, aborted after the branch is gone",
    make: `${sides} git cherry-pick o~1 ${quiet}; git branch -qD o`,
    later: "echo half >a.txt; git add a.txt; echo u >u",
    finish: "git cherry-pick --abort",
  },
  {
    name: "a revert, continued",
    make: `echo 1 >a.txt; git commit -qam one; echo 2 >a.txt; git commit -qam two; git revert --no-edit HEAD~1 ${quiet}`,
    later: "echo half >a.txt",
    finish: "echo r >a.txt; git add a.txt; git revert --continue",
  },
  {
    name: "a sequence of reverts, skipped",
    make: `echo 1 >a.txt; git commit -qam one; echo 2 >a.txt; git commit -qam two; echo 3 >b.txt; git commit -qam three; git revert --no-edit HEAD~2 HEAD ${quiet}`,
    later: "git checkout -q --ours a.txt",
    finish: "git revert --skip",
  },
  {
    name: "a bisection, gone on with",
    make: "for i in 1 2 3 4 5 6; do echo $i >a.txt; git commit -qam c$i; done; git bisect start HEAD HEAD~6 >/dev/null",
    later: "git bisect good >/dev/null",
    finish: "git bisect bad; git bisect bad; git bisect bad",
  },
  {
    name: "a bisection with terms of its own, reset",
    make: "for i in 1 2 3 4; do echo $i >a.txt; git commit -qam c$i; done; git bisect start --term-old fast --term-new slow >/dev/null; git bisect slow >/dev/null; git bisect fast HEAD~4 >/dev/null",
    later: "git bisect fast >/dev/null",
    finish: "git bisect reset",
  },
  {
    name: "mails applied up to a conflict, continued",
    make: `${sides} git format-patch -q -o $D/mails work~1..o; git am $D/mails/* ${quiet}`,
    later: "echo half >a.txt; cp .git/rebase-apply/patch kept",
    finish: "echo am >a.txt; git add a.txt; git am --continue",
  },
  {
    name: "mails applied three-way, aborted",
    make: `${sides} git format-patch -q -o $D/mails work~1..o; git am -3 $D/mails/* ${quiet}`,
    later: "git checkout -q --ours a.txt; git add a.txt",
    finish: "git am --abort",
  },
  {
    name: "stash entries of every kind",
    make: "echo 1 >>a.txt; git stash -q; echo s >>a.txt; git add a.txt; echo w >>b.txt; git stash push -q -m both; echo u >u; git stash push -q -u -m untracked; echo now >>a.txt",
    later: "git stash drop -q stash@{1}; echo x >>b.txt; git stash -q",
    finish: "git reset -q --hard; git stash pop --index",
  },
  {
    name: "a stash of ignored files",
    make: "echo i >.gitignore; git add .gitignore; git commit -qm i; echo i >i; git stash -q -a; echo x >x",
    later: "git stash -q -u",
    finish: "git stash pop",
  },
  {
    name: "resolutions that git recorded",
    make: `git config rerere.enabled true; ${sides} git merge o ${quiet}; echo both >a.txt; git rerere; git add a.txt`,
    later: "echo other >a.txt; git rerere forget a.txt 2>/dev/null; git rerere; echo third >a.txt; git rerere",
    finish: "git reset -q --hard; git merge o; git add a.txt; git commit -qm merged",
  },
  {
    name: "an octopus that failed",
    make: `git checkout -q -b p; echo p >p; git add p; git commit -qm p; git checkout -q work; ${sides} git merge o p ${quiet}`,
  },
];

describe.concurrent("operations", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
