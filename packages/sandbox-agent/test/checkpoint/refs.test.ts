/** HEAD, branches with their upstreams, tags, notes: each comes back, whatever the remote does meanwhile. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const states: State[] = [
  { name: "nothing but a clone", make: ":" },
  {
    name: "commits that are pushed nowhere",
    make: "echo x >x; git add x; git commit -qm x; echo y >>a.txt; git commit -qam y",
    later: "git reset -q --soft HEAD~1",
  },
  {
    name: "a detached HEAD on no branch",
    make: "git checkout -q --detach; echo x >x; git add x; git commit -qm x; echo z >>b.txt",
    later: "git checkout -q work; git branch saved HEAD",
  },
  { name: "a detached HEAD on the remote's commit", make: "git checkout -q --detach origin/main; rm b.txt" },
  {
    name: "an orphan branch with a full index",
    make: "git checkout -q --orphan pages; git rm -q --cached a.txt; echo h >index.html; git add index.html",
    later: "git commit -qm pages",
  },
  {
    name: "an unborn branch with an empty index",
    make: "git checkout -q --orphan fresh; git rm -rqf .; echo u >u.txt",
  },
  { name: "the default branch is gone here", make: "git branch -qD main; echo x >x; git add x; git commit -qm x" },
  {
    name: "the local main went its own way",
    make: "git checkout -q main; echo m >m; git add m; git commit -qm m; git checkout -q work",
  },
  {
    name: "branches, tags, notes and refs of one's own",
    make: `git branch experiment; git checkout -q experiment; echo e >e; git add e; git commit -qm e; git tag -am 'a tag' v0; git tag light; git tag -am nested v00 v0
      git checkout -q work; git notes add -m note HEAD; git update-ref refs/keep/one experiment; git tag blob $(git hash-object -w a.txt)`,
    later: "git branch -qD experiment; git tag -d v0 >/dev/null; git branch other; git notes append -m more HEAD",
  },
  {
    name: "a branch whose name is a folder of the clone's branch",
    make: "git checkout -q --detach; git branch -qD main work; git branch main/deep; git checkout -q main/deep",
  },
  {
    name: "upstreams, ahead of them",
    make: "git push -q -u origin work 2>/dev/null; echo x >x; git add x; git commit -qm x; git branch --track side origin/main; git branch --set-upstream-to=main work -q; git config branch.side.rebase true; git config branch.side.description $'two\\nlines \"quoted\"'",
    later:
      "git branch --unset-upstream work; git config branch.work.merge refs/heads/elsewhere; git config branch.work.remote .",
  },
  {
    name: "a pushed branch that the server drops",
    make: "echo f >f; git add f; git commit -qm f; git push -q -u origin work 2>/dev/null; echo u >u",
    between:
      "cd origin.git; git update-ref -d refs/heads/work; git reflog expire --expire=now --all; git gc -q --prune=now",
  },
  {
    name: "a remote that moves on",
    make: "echo f >f; git add f; git commit -qm f",
    between:
      "git clone -q origin.git mate; cd mate; for i in 1 2 3; do echo $i >m$i; git add -A; git commit -qm m$i; done; git push -q; cd ..; rm -rf mate",
  },
  {
    name: "commits that another remote has",
    make: "git init -q --bare $D/fork.git; git remote add fork $D/fork.git; echo f >f; git add f; git commit -qm f; git push -q fork work:topic; echo g >g; git add g; git commit -qm g",
  },
  {
    name: "a merge of unrelated histories",
    make: "git checkout -q --orphan other; git commit -qm root; git checkout -q work; git merge -q --allow-unrelated-histories -m both other",
  },
  {
    name: "a commit of the past, with a symbolic branch",
    make: "git commit -q --allow-empty -m one; git checkout -q -b old HEAD~1; git symbolic-ref refs/heads/alias refs/heads/work",
    later: "git symbolic-ref -d refs/heads/alias",
  },
];

describe.concurrent("refs", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
