/** Repositories of other shapes, inside others, and with more than one working tree. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const allow = "printf '[protocol \"file\"]\\n\\tallow = always\\n' >$HOME/.gitconfig;";
const sub = `${allow} git init -q --bare -b main $D/sub.git; git init -q -b main $D/s; (cd $D/s; echo s >s.txt; git add -A; git commit -qm s; git push -q $D/sub.git main:main); rm -rf $D/s;`;
const withSub = `${sub} echo a >a.txt; git submodule --quiet add $D/sub.git deps/sub >/dev/null 2>&1`;
const up = "git submodule --quiet update --init >/dev/null 2>&1;";

const states: State[] = [
  { name: "a submodule that is not checked out", base: withSub, make: "echo b >>a.txt" },
  { name: "a submodule as it should be", base: withSub, make: up, later: "echo x >>deps/sub/s.txt" },
  {
    name: "a submodule with work of its own",
    base: withSub,
    make: `${up} cd deps/sub; git checkout -q -b topic; echo t >t; git add t; git commit -qm t; echo dirty >>s.txt; echo u >u; git stash -q; echo again >>s.txt`,
    later: "git add deps/sub; cd deps/sub; echo v >v; git add v",
  },
  {
    name: "a submodule that set-up checks out again",
    base: withSub,
    make: `${up} echo mine >deps/sub/s.txt`,
    setup: up,
  },
  { name: "a submodule staged but new", make: `${sub} git submodule --quiet add $D/sub.git lib >/dev/null 2>&1` },
  { name: "a submodule removed again", base: withSub, make: `${up} git rm -qf deps/sub` },
  {
    name: "untracked repositories, one without commits",
    make: "git init -q -b w tools/one; (cd tools/one; echo x >x; echo '*.o' >.gitignore; git add -A; git commit -qm one; echo y >>x; echo n >n); git init -q tools/empty; echo i >tools/empty/i",
    later: "cd tools/one; git add n; git commit -qm two; echo j >../empty/j; git -C ../empty add j",
  },
  {
    name: "a repository in a repository in a repository",
    make: "git init -q -b a one; cd one; echo 1 >f; git add -A; git commit -qm 1; git init -q -b b two; cd two; echo 2 >f; git add -A; git commit -qm 2; echo u >u",
    later: "cd one/two; git checkout -q --detach; echo 3 >f; git commit -qam 3",
  },
  {
    name: "a repository staged as a link",
    make: "git init -q -b m vendor/lib; (cd vendor/lib; echo l >l; git add -A; git commit -qm l; echo dirty >>l; echo u >u); git -c advice.addEmbeddedRepo=false add vendor/lib 2>/dev/null",
  },
  {
    name: "a nested repository in the middle of a merge, with a stash",
    make: "git init -q -b m n; cd n; echo 1 >f; git add f; git commit -qm 1; echo s >>f; git stash -q; git checkout -q -b o; echo o >f; git commit -qam o; git checkout -q m; echo m >f; git commit -qam m; git merge o >/dev/null 2>&1 || true",
  },
  {
    name: "a nested repository of another object format",
    make: "git init -q --object-format=sha256 -b m n; cd n; echo 1 >f; git add f; git commit -qm 1; echo 2 >f",
  },
  {
    name: "linked working trees beside the repository",
    make: "git worktree add -q ../wt -b side; cd ../wt; echo s >s; git add s; git commit -qm s; echo u >u; echo x >>a.txt",
    later: "cd ../wt; git add u; rm b.txt",
    also: ["wt"],
  },
  {
    name: "linked working trees inside, ignored and not, detached, locked",
    make: "echo .trees/ >.gitignore; git add .gitignore; git commit -qm i; git worktree add -q .trees/one --detach; echo x >>.trees/one/a.txt; git worktree add -q seen -b seen; git worktree lock --reason 'mine now' seen; echo y >>seen/b.txt; git -C seen add b.txt",
    also: ["repo/.trees/one", "repo/seen"],
  },
  {
    name: "a linked working tree in the home, in the middle of a rebase",
    make: "git checkout -q -b o; echo o >a.txt; git commit -qam o; git checkout -q work; git worktree add -q $HOME/w -b side; cd $HOME/w; echo m >a.txt; git commit -qam m; git rebase o >/dev/null 2>&1 || true",
    also: ["home/w"],
  },
  { name: "a linked working tree whose folder is gone", make: "git worktree add -q ../gone -b gone; rm -rf ../gone" },
  {
    name: "a sparse checkout in cone mode",
    base: "mkdir -p app lib docs; for d in app lib docs; do echo $d >$d/f; done; echo r >r",
    make: "git sparse-checkout set --cone app >/dev/null; echo e >>app/f; mkdir -p docs; echo stray >docs/stray",
    later: "git sparse-checkout add lib >/dev/null; echo l >>lib/f",
  },
  {
    name: "a sparse checkout by patterns",
    base: "mkdir -p app lib; echo a >app/f; echo l >lib/f; echo r >r",
    make: "git sparse-checkout set --no-cone '/*' '!/lib/' >/dev/null; echo e >>app/f",
    later: "git sparse-checkout disable",
  },
  {
    name: "a shallow clone, the remote gone on",
    base: "echo 1 >a.txt",
    clone: "--depth=1",
    make: "echo w >w; git add w; git commit -qm w",
    later: "git fetch -q --depth=1 origin main; git commit -qam late --allow-empty; echo more >>w",
    between:
      "git clone -q origin.git mate; cd mate; for i in 1 2; do echo $i >m$i; git add -A; git commit -qm m$i; done; git push -q; cd ..; rm -rf mate",
  },
  {
    name: "a shallow clone with a branch of its own",
    clone: "--depth=1 --no-single-branch",
    make: "echo w >w; git add w; git commit -qm w; git checkout -q -b two; git commit -q --allow-empty -m e",
    later: "git branch -qD two 2>/dev/null || git checkout -q work; git fetch -q --unshallow; echo x >>a.txt",
  },
  {
    name: "a shallow clone, deepened step by step",
    base: "for i in 1 2 3 4; do echo $i >a.txt; git add a.txt; git commit -qm $i; done; echo 5 >a.txt",
    clone: "--depth=1",
    make: "git fetch -q --depth=3 origin main; git checkout -q --detach origin/main~1; echo w >w; git add w; git commit -qm w",
    later: "git fetch -q --depth=4 origin main; git branch old origin/main~3; echo x >>w",
  },
  {
    name: "a shallow clone in the middle of a rebase",
    base: "for i in 1 2 3; do echo $i >a.txt; git add a.txt; git commit -qm $i; done; echo 4 >a.txt",
    clone: "--depth=2",
    make: "echo m >a.txt; git commit -qam m; git checkout -q -b o HEAD~1; echo o >a.txt; git commit -qam o; git checkout -q work; git rebase o >/dev/null 2>&1 || true",
    later: "echo solved >a.txt; git add a.txt; git stash list",
    finish: "echo solved >a.txt; git add a.txt; git rebase --continue",
  },
  {
    name: "a shallow clone inside, deepened later",
    make: "git init -q --bare -b m $D/n.git; git clone -q $D/n.git $D/n 2>/dev/null; (cd $D/n; git checkout -q -b m; for i in 1 2 3; do echo $i >f; git add f; git commit -qm $i; done; git push -q origin m); git clone -q --depth=1 file://$D/n.git inner; cd inner; echo x >>f; git commit -qam x",
    later: "cd inner; git fetch -q --unshallow; git branch old HEAD~2; echo y >y",
  },
  {
    name: "a shallow clone inside of another remote's, its history whole later",
    make: "git init -q --bare -b m $D/n.git; git clone -q $D/n.git $D/n 2>/dev/null; (cd $D/n; git checkout -q -b m; for i in 1 2 3; do echo $i >f; git add f; git commit -qm $i; done; git push -q origin m); git clone -q --depth=1 file://$D/n.git inner; git remote add other file://$D/n.git; git fetch -q --depth=1 other; git branch theirs other/m",
    later: "git fetch -q --unshallow other; cd inner; git fetch -q --unshallow; echo y >y",
  },
  {
    name: "a partial clone",
    base: "mkdir d; for i in 1 2 3 4; do echo $i >d/$i; done",
    clone: "--filter=blob:none",
    make: "git mv d/1 d/one; echo x >>d/one; git add -A; git commit -qm local; echo e >>d/2; echo u >u",
  },
  {
    name: "a partial clone inside, whose remote still has what it never fetched",
    base: "echo a >a.txt",
    make: "git init -q --bare -b main $D/n.git; git -C $D/n.git config uploadpack.allowFilter true; git -C $D/n.git config uploadpack.allowAnySHA1InWant true; git clone -q $D/n.git $D/n 2>/dev/null; (cd $D/n; for i in 1 2 3; do echo $i >f$i; git add .; git commit -qm $i; done; git rm -q f1; git commit -qm rm; git push -q origin HEAD:main); git clone -q --filter=blob:none file://$D/n.git inner; cd inner; echo x >>f2; git commit -qam x; echo more >>f3",
    later: "cd inner; git show HEAD~3:f1 >back; git add back",
  },
  {
    name: "a repository in SHA-256",
    init: "--object-format=sha256",
    make: "echo b >>b.txt; git add b.txt; git commit -qm b; echo s >s; git add s; echo w >>a.txt; git stash -q",
    later: "git stash pop -q",
  },
  {
    name: "a repository with alternates",
    make: "git clone -q --bare . $D/cache.git; echo $D/cache.git/objects >.git/objects/info/alternates; git repack -qadl; echo x >x; git add x; git commit -qm x",
  },
  {
    name: "local configuration",
    make: "git config user.name Me; git config core.autocrlf input; git config pull.rebase true; git config --add remote.origin.fetch '+refs/pull/*:refs/remotes/pull/*'; git config alias.x '!echo ran'; git config core.hooksPath hooks",
  },
];

describe.concurrent("repositories", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
