/** Bytes, modes and links of files: tracked, untracked, and those that a fresh clone would convert. */
import { describe, test } from "vitest";
import { roundTrip, type State } from "./support.ts";

const states: State[] = [
  {
    name: "untracked files and folders",
    make: "mkdir -p u/v; echo 1 >u/v/w; : >empty; head -c 100000 /dev/urandom >r.bin",
    later: "rm empty; echo 2 >>u/v/w; mv r.bin u/r.bin",
  },
  {
    name: "private, read-only and executable files",
    make: "echo p >key; chmod 600 key; echo r >ro; chmod 444 ro; echo s >s.sh; chmod 755 s.sh; chmod 600 a.txt; chmod 664 b.txt",
    later: "chmod 644 key; chmod 400 ro; chmod 644 a.txt",
  },
  { name: "all files of one's own permissions", make: "chmod 600 a.txt b.txt d/c.txt" },
  {
    name: "links of every kind",
    make: "ln -s a.txt to-file; ln -s d to-folder; ln -s nowhere dangling; ln -s /etc/hostname away; ln -s ../.. up; ln -s loop loop; rm b.txt; ln -s a.txt b.txt",
    later: "ln -sfn b.txt to-file; rm to-folder; mkdir to-folder; echo x >to-folder/x",
  },
  {
    name: "a folder becomes a link to another",
    base: "mkdir d e; echo 1 >d/k; echo 1 >e/k",
    make: "rm -r d; ln -s e d; echo 2 >e/k",
    later: "rm d; mkdir d; echo 3 >d/k",
  },
  {
    name: "a link becomes a folder",
    base: "mkdir e; echo 1 >e/k; ln -s e d",
    make: "rm d; mkdir d; echo own >d/k",
    setup: "echo setup >e/k",
  },
  {
    name: "names of any bytes",
    make: "for n in $'two\\nlines' $'tab\\t' 'quo\"te' 'back\\\\slash' -rf --all '@list' ' lead' $'caf\\xc3\\xa9' $'latin\\xe9' '*.txt' ':!x' 'hex:41' $'\\x01'; do echo \"$n\" >\"$n\"; done; mkdir $'d\\xff'; echo x >$'d\\xff/in\\xfe'; git add -- $'latin\\xe9' ./-rf; git commit -qm odd; echo more >>$'latin\\xe9'",
    later: "rm -- ./-rf; echo more >>$'two\\nlines'",
  },
  { name: "names that look like segments", make: "echo s >s@000000000000000; echo t >t@000000000000005; echo s >s" },
  {
    name: "long names and deep folders",
    make: "n=$(printf 'n%.0s' $(seq 200)); mkdir -p $n/$n; echo l >$n/$n/$n; d=$(printf 'deep/%.0s' $(seq 50)); mkdir -p $d; echo leaf >${d}leaf; ln -s $n/$n/$n long",
  },
  {
    name: "line endings by attribute",
    base: "printf '*.txt text=auto\\n*.bat text eol=crlf\\n*.sh text eol=lf\\n' >.gitattributes; printf 'a\\nb\\n' >u.txt; printf 'a\\r\\n' >r.bat; printf 'a\\n' >s.sh",
    make: "printf 'a\\r\\nb\\r\\n' >u.txt; git add u.txt; printf 'a\\r\\nb\\n' >r.bat",
    later: "printf 'x\\r\\ny\\n' >u.txt; printf 'a\\r\\n' >r.bat",
  },
  {
    name: "autocrlf in the image",
    base: "printf 'a\\nb\\n' >u.txt; printf 'a\\r\\nb\\r\\n' >w.txt; printf 'c\\n' >v.txt",
    make: "printf '[core]\\n\\tautocrlf = true\\n' >$HOME/.gitconfig; printf 'a\\nb\\nc\\n' >u.txt; printf 'c\\n' >v.txt; git status >/dev/null",
  },
  {
    name: "autocrlf in the image, long after the clone",
    base: "printf 'c\\n' >v.txt; for i in $(seq 50); do printf '%s\\n' $i >n$i; done",
    make: "printf '[core]\\n\\tautocrlf = true\\n' >$HOME/.gitconfig; for i in $(seq 50); do printf '%s\\n' $i >n$i; done; git status >/dev/null",
    setup: "touch -d '1 hour ago' *; git add -u; git update-index --refresh",
  },
  {
    name: "encodings and identifiers",
    base: "printf '*.rc working-tree-encoding=UTF-16LE\\nid.c ident\\n' >.gitattributes; printf 'one\\n' | iconv -t UTF-16LE >p.rc; echo '$Id$' >id.c",
    make: "printf 'one\\ntwo\\n' | iconv -t UTF-16LE >p.rc",
    later: "echo more >>id.c",
  },
  {
    name: "a large-file filter whose store is not in the checkpoint",
    base: "mkdir -p $D/server; printf '#!/bin/sh\\nh=$(tee /tmp/hangar-$$ | sha1sum | cut -c1-40); cp /tmp/hangar-$$ '$D'/server/$h; rm /tmp/hangar-$$; echo pointer $h\\n' >$D/clean; printf '#!/bin/sh\\nread w h; cat '$D'/server/$h\\n' >$D/smudge; chmod +x $D/clean $D/smudge; printf '[filter \"big\"]\\n\\tclean = %s/clean\\n\\tsmudge = %s/smudge\\n\\trequired = true\\n' $D $D >$HOME/.gitconfig; echo '*.big filter=big -text' >.gitattributes; seq 1000 >one.big; seq 2000 >two.big",
    make: "seq 3000 >one.big; git add one.big; git commit -qm mine; rm $D/server/$(seq 3000 | sha1sum | cut -c1-40); seq 10 >new.big",
    later: "seq 20 >new.big",
  },
  {
    name: "ignored files stay where they are",
    make: "echo '*.log' >.gitignore; echo l >x.log; echo n >n",
    later: "echo '*.tmp' >.gitignore; echo t >t.tmp",
  },
  {
    name: "ignored files that the environment keeps",
    make: "printf '.env\\nbuild/\\n' >.gitignore; echo S=1 >.env; mkdir build; echo b >build/keep.txt; echo n >build/not.txt",
    ws: { keepIgnored: [".env", "build/keep.txt"] },
  },
  {
    name: "what set-up left is replaced",
    make: "echo mine >a.txt; echo u >u",
    setup:
      "echo setup >a.txt; echo setup >b.txt; echo s >left; mkdir -p u.d; echo s >u.d/s; rm d/c.txt; git add -A; git init -q leftover; chmod 600 b.txt",
  },
  {
    name: "tracked files that set-up changed to others of the same length and time, or took away",
    base: "echo a line >a.txt; for i in $(seq 300); do echo $i >n$i; done",
    make: "echo u >u",
    setup:
      "touch -r a.txt t; printf %s 'set-up!' | head -c $(stat -c %s a.txt) >a.txt; touch -r t a.txt; rm t; rm n7; ln -s n1 n8.new; mv n8.new n8; rm n9; mkdir n9; echo x >n9/x",
  },
  {
    name: "permissions that set-up changed, of one file and of all",
    make: "echo u >u",
    setup: "chmod 600 b.txt; chmod -R g+w d",
  },
  {
    name: "a clone under another umask",
    make: "echo u >u; chmod 640 a.txt",
    setup: "cd ..; rm -rf repo; umask 077; git clone -q file://$D/origin.git repo",
  },
  {
    name: "an index that set-up wrote anew",
    base: "for i in $(seq 50); do echo $i >n$i; done",
    make: "echo 1 >>n1; git commit -qam one; echo 2 >>n2; git add n2",
    setup: "echo s >>n3; git add n3; git rm -q --cached n4; git update-index --assume-unchanged n5; echo s >>n5",
  },
  {
    name: "an index that set-up removed",
    make: "echo u >u; echo 1 >>a.txt",
    setup: "rm .git/index; echo s >b.txt",
  },
  {
    name: "a global ignore file of the image",
    make: "mkdir -p $HOME/.config/git; echo '*.swp' >$HOME/.config/git/ignore; echo n >n; echo s >s.swp",
  },
  {
    name: "local excludes",
    make: "echo private >>.git/info/exclude; echo p >private; echo q >q",
    later: "echo q >>.git/info/exclude",
  },
  {
    name: "config that colours, converts and formats diffs",
    make: "printf '[color]\\n\\tui = always\\n[diff]\\n\\tnoprefix = true\\n\\texternal = false\\n[apply]\\n\\twhitespace = fix\\n[status]\\n\\tshowUntrackedFiles = no\\n\\tshort = true\\n' >$HOME/.gitconfig; echo 'x ' >>a.txt; echo u >u",
  },
  {
    name: "a large file that grows",
    make: "head -c 9000000 /dev/urandom >log",
    later: "head -c 3000 /dev/urandom >>log; head -c 9000001 /dev/urandom >other",
  },
];

describe.concurrent("files", () => {
  for (const state of states) test(state.name, () => roundTrip(state));
});
