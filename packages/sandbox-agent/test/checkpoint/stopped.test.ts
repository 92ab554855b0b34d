/** Operations that wait in rarer places: at a break, in front of an autostash, among three branches. They end as they would have. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const quiet = ">/dev/null 2>&1 || true";
const commits = "for i in 1 2 3 4; do echo $i >f$i; git add f$i; git commit -qm f$i; done;";
const edited = (script: string, how: string): string =>
  `GIT_SEQUENCE_EDITOR="sed -i ${script}" git rebase ${how} ${quiet}`;
const sides =
  "git checkout -q -b o; echo other >a.txt; git commit -qam other; git checkout -q work; echo mine >a.txt; git commit -qam mine;";
const bisecting =
  "for i in 1 2 3 4 5 6 7 8; do echo $i >a.txt; git commit -qam c$i; done; git bisect start HEAD HEAD~8 >/dev/null;";
const octopus =
  "for b in o p q; do git checkout -q -b $b main; echo $b >$b; git add $b; git commit -qm $b; done; git checkout -q work; echo w >w; git add w; git commit -qm w;";

const states: State[] = [
  {
    name: "a rebase at a break, continued",
    make: `${commits} ${edited("'/f2/abreak'", "-i HEAD~3")}`,
    later: "echo extra >extra; git add extra; git commit -qm extra; echo u >u",
    finish: "git rebase --continue",
  },
  {
    name: "a rebase at a break, aborted",
    make: `${commits} ${edited("'/f2/abreak'", "-i HEAD~3")}`,
    later: "sed -i 1d .git/rebase-merge/git-rebase-todo",
    finish: "git rebase --abort",
  },
  {
    name: "a rebase at a command that failed, with branches to move along",
    make: `${commits} git branch part HEAD~1; ${edited("'/f2/aexec test -e go'", "-i --update-refs HEAD~3")}`,
    later: "touch go",
    finish: "git rebase --continue",
  },
  {
    name: "a rebase of merges, between the labels",
    make: `${commits} git checkout -q -b side HEAD~2; echo s >s; git add s; git commit -qm s; git checkout -q work; git merge -q --no-ff -m both side; ${edited("'/ s$/abreak'", "-i --rebase-merges main")}`,
    later: "echo extra >extra; git add extra; git commit -qm extra",
    finish: "git rebase --continue",
  },
  {
    name: "fixups with a message to be written",
    make: `${commits} echo other >a.txt; git commit -qam 'fixup! f2'; ${edited("'s/^pick \\(.*f3\\)/squash \\1/;/fixup/abreak'", "-i --autosquash HEAD~4")}`,
    later: "git commit -q --amend -m better",
    finish: "git rebase --continue",
  },
  {
    name: "an autostash that will conflict",
    make: `${sides} git checkout -q o; git rm -q b.txt; git commit -qm gone; git checkout -q work; echo dirty >>b.txt; git rebase -q --autostash o ${quiet}`,
    later: "echo solved >a.txt; git add a.txt",
    finish: "echo solved >a.txt; git add a.txt; git rebase --continue",
  },
  {
    name: "an autostash that did conflict",
    make: `${sides} git reset -q --hard HEAD~1; echo dirty >>a.txt; git rebase -q --autostash o ${quiet}`,
    later: "git checkout -q --theirs a.txt; git add a.txt",
    finish: "git reset -q --hard; git stash pop; git checkout --theirs a.txt; git add a.txt",
  },
  {
    name: "a merge in conflict with an autostash, aborted",
    make: `${sides} echo dirty >>b.txt; git add b.txt; git merge --autostash o ${quiet}`,
    later: "echo half >a.txt; echo more >>d/c.txt",
    finish: "git merge --abort",
  },
  {
    name: "a merge in conflict with an autostash, concluded",
    make: `${sides} echo dirty >>b.txt; git merge --autostash o ${quiet}`,
    later: "echo both >a.txt; git add a.txt",
    finish: "echo both >a.txt; git add a.txt; git merge --continue",
  },
  {
    name: "a bisection with skips, gone on with",
    make: `${bisecting} git bisect skip >/dev/null`,
    later: "git bisect skip >/dev/null; git bisect good >/dev/null; git bisect skip >/dev/null",
    finish: "git bisect bad; git bisect skip; git bisect good",
  },
  {
    name: "a bisection that stays at its place, by paths, replayed",
    make: `git bisect start --no-checkout HEAD HEAD -- a.txt ${quiet}; git bisect reset ${quiet}; for i in 1 2 3 4 5; do echo $i >a.txt; git commit -qam c$i; done; git bisect start --no-checkout --first-parent HEAD HEAD~5 -- a.txt >/dev/null`,
    later: "git bisect skip >/dev/null",
    finish: "git bisect log >../log; git bisect reset; git bisect replay ../log",
  },
  {
    name: "an octopus that waits for its commit",
    make: `${octopus} git merge -q --no-commit o p q ${quiet}`,
    later: "echo more >>o; git add o; echo u >u",
    finish: "git commit -qm octopus",
  },
  {
    name: "an octopus in conflict, aborted",
    make: `${octopus} git checkout -q q; echo q >p; git add p; git commit -qm clash; git checkout -q work; git merge o p q ${quiet}`,
    later: "echo half >>w",
    finish: "git merge --abort; git reset -q --merge",
  },
  {
    name: "an octopus in conflict, concluded",
    make: `${octopus} git checkout -q q; echo q >p; git add p; git commit -qm clash; git checkout -q work; git merge o p q ${quiet}`,
    later: "echo both >p; git add p",
    finish: "echo both >p; git add -A; git commit -qm octopus",
  },
  {
    name: "a cherry-pick of a merge, with an empty commit behind it",
    make: `${sides} git checkout -q -b e; git commit -q --allow-empty -m empty; git checkout -q -b m o; git merge -q --no-edit -s ours e; git checkout -q work; git cherry-pick -m 1 m e ${quiet}`,
    later: "echo u >u; git cherry-pick --skip >/dev/null 2>&1 || true",
    finish: "git cherry-pick --skip || git commit -q --allow-empty -m end",
  },
  {
    name: "notes in the middle of their merge",
    make: `git notes add -m one; git notes --ref=other add -m two; git notes merge other ${quiet}`,
    later: "echo both >.git/NOTES_MERGE_WORKTREE/$(git rev-parse HEAD)",
    finish: "git notes merge --commit; git notes show",
  },
  {
    name: "a sequence in one working tree, a bisection in another",
    make: `${sides} ${bisecting} git worktree add -q ../wt -b side work; cd ../wt; git cherry-pick o ${quiet}`,
    later: "git bisect skip >/dev/null; cd ../wt; git checkout -q --ours a.txt",
    finish: "git bisect bad; git bisect bad",
    also: ["wt"],
  },
];

describe.concurrent("stopped", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
