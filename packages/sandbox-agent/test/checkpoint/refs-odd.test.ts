/** Refs that few repositories have: replacements, tags of what is no commit, thousands, broken ones. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const states: State[] = [
  {
    name: "a replaced commit, tree and blob",
    make: "echo x >>a.txt; git commit -qam x; git replace HEAD $(git commit-tree -m other HEAD~1^{tree}); git replace HEAD:b.txt $(echo replaced | git hash-object -w --stdin); git replace $(git --no-replace-objects rev-parse HEAD^{tree}) $(git mktree </dev/null); echo dirty >>d/c.txt",
    later: "git replace -d HEAD >/dev/null; echo y >>b.txt; git add b.txt",
  },
  {
    name: "a graft of histories",
    make: "git checkout -q --orphan old; git commit -qm old; git checkout -q work; git replace --graft $(git rev-list --max-parents=0 HEAD) old; git branch -qD old; git commit -q --allow-empty -m w",
    later: "git replace -d $(git rev-parse origin/main) >/dev/null; git commit -q --allow-empty -m v",
  },
  {
    name: "a replaced commit of a nested repository",
    make: "git init -q -b m n; cd n; echo 1 >f; git add f; git commit -qm 1; echo 2 >f; git commit -qam 2; git replace HEAD HEAD~1; echo 3 >f",
    later: "cd n; git replace -d HEAD >/dev/null; git replace HEAD~1 HEAD",
  },
  {
    name: "tags of a tree, a blob and a tag, light and annotated",
    make: "echo only >only; git add only; t=$(git write-tree); git reset -q; rm only; git tag tree $t; git tag -am t tree-too $t; git tag blob $(echo lone | git hash-object -w --stdin); git tag -am b blob-too $(echo lone too | git hash-object -w --stdin); git tag -am c c; git tag -am cc cc c; git tag -d c >/dev/null",
    later:
      "git tag -d tree blob-too >/dev/null; git tag -f blob $(echo other | git hash-object -w --stdin) >/dev/null; git tag -am new new blob",
  },
  {
    name: "notes of a blob, a tree and an object that is not there",
    make: "git notes add -m blob $(git rev-parse HEAD:a.txt); git notes --ref=trees add -m tree HEAD^{tree}; n=$(echo gone | git hash-object -w --stdin); git notes add -m 'of what is gone' $n; rm .git/objects/$(echo $n | sed 's,^..,&/,')",
    later:
      "git notes remove $(git rev-parse HEAD:a.txt) 2>/dev/null; git notes --ref=trees append -m more HEAD^{tree}; git notes add -m head HEAD",
  },
  {
    name: "five thousand refs",
    make: "c=$(git rev-parse HEAD); for i in $(seq 5000); do echo create refs/heads/many/$((i % 70))/$i $c; done | git -c core.fsync=none update-ref --stdin; git commit -q --allow-empty -m w",
    later:
      "git pack-refs --all; for i in $(seq 2000); do echo delete refs/heads/many/$((i % 70))/$i; done | git -c core.fsync=none update-ref --stdin; git branch many/0/x",
  },
  {
    name: "branches with names of any bytes, and one as long as a file's may be",
    make: "git branch $'caf\\xc3\\xa9'; git branch $'latin\\xe9'; git branch \"$(printf 'n%.0s' $(seq 240))\"; git branch 'a;b'; git branch -- \"it's\"; git branch '{}'; git branch '@x'; git branch 'refs/heads/x'",
    later: "git branch -qD $'latin\\xe9'; git branch '$x'; git symbolic-ref refs/heads/sym $'refs/heads/caf\\xc3\\xa9'",
  },
  {
    name: "symbolic refs, one over another",
    make: "git symbolic-ref refs/keep/main refs/heads/main; git symbolic-ref refs/keep/again refs/keep/main; git symbolic-ref HEAD refs/heads/main",
    later: "git symbolic-ref refs/keep/main refs/heads/work; git commit -q --allow-empty -m m",
  },
];

describe.concurrent("odd refs", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
