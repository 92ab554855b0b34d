/** `hangar-agent snapshot` and `restore`: what they print, how they exit, and that a folder of theirs is whole by itself. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateIdentity, identityToRecipient } from "age-encryption";
import { expect, test } from "vitest";
import { agent } from "./command.ts";
import { clone, describeTree, digest, place, shell, type Part, type Place } from "./support.ts";

const paths = (here: Place): string[] => ["--repo", here.repo, "--home", here.home];

/** Moves the workspace away and clones afresh. */
function fresh(here: Place, n: number): void {
  mkdirSync(join(here.folder, `old${n}`));
  renameSync(here.repo, join(here.folder, `old${n}/repo`));
  renameSync(here.home, join(here.folder, `old${n}/home`));
  mkdirSync(here.home);
  clone(here);
}

function checkFolder(folder: string): void {
  const meta = JSON.parse(readFileSync(join(folder, "meta.json"), "utf8")) as { parts: Part[] };
  for (const part of meta.parts) {
    const bytes = readFileSync(join(folder, part.file));
    expect({ file: part.file, size: bytes.length, sha256: digest(bytes), from: undefined }).toEqual({
      from: undefined,
      file: part.file,
      size: part.size,
      sha256: part.sha256,
    });
  }
  expect(readdirSync(folder).sort()).toEqual([...meta.parts.map((part) => part.file), "meta.json"].sort());
}

test("a chain of folders, each whole by itself, and unchanged ones not made", () => {
  const here = place();
  shell(here, "echo u >u; echo c >c; git add c; git commit -qm c; echo e >>a.txt");
  const one = agent(here, "snapshot", ...paths(here), "--out", join(here.folder, "one"));
  expect(one).toMatchObject({
    code: 0,
    stderr: "",
    report: { outcome: "made", paired: true, proved: true, left_out: [] },
  });
  expect(one.stdout.trimEnd().split("\n")).toHaveLength(1);
  checkFolder(join(here.folder, "one"));
  const same = agent(
    here,
    "snapshot",
    ...paths(here),
    "--out",
    join(here.folder, "same"),
    "--parent",
    join(here.folder, "one"),
    "--if-changed",
  );
  expect(same).toMatchObject({
    code: 0,
    report: { outcome: "unchanged", new_bytes: 0, fingerprint: one.report["fingerprint"] },
  });
  expect(existsSync(join(here.folder, "same"))).toBe(false);
  shell(here, "echo v >v");
  const two = agent(
    here,
    "snapshot",
    ...paths(here),
    "--out",
    join(here.folder, "two"),
    "--parent",
    join(here.folder, "one"),
    "--if-changed",
  );
  expect(two).toMatchObject({ code: 0, report: { outcome: "made" } });
  checkFolder(join(here.folder, "two"));
  expect(statSync(join(here.folder, "two/repo.bundle")).ino).toBe(statSync(join(here.folder, "one/repo.bundle")).ino);
  expect(two.report["new_bytes"]).toBeLessThan(two.report["bytes"] as number);

  const expected = describeTree(here.repo, here.home);
  fresh(here, 1);
  shell(here, "rm -r one", here.folder);
  const back = agent(here, "restore", "--from", join(here.folder, "two"), ...paths(here));
  expect(back).toMatchObject({ code: 0, stderr: "", report: { verified: true, differs: [] } });
  expect(describeTree(here.repo, here.home)).toEqual(expected);
  expect(readdirSync(here.folder).filter((name) => name.startsWith("."))).toEqual([]);
});

test("sealed folders, opened with an identity file only", async () => {
  const here = place();
  shell(here, "echo u >u");
  const identity = await generateIdentity();
  const file = join(here.folder, "key");
  writeFileSync(file, `# a comment\n${identity}\n`);
  const recipient = await identityToRecipient(identity);
  expect(
    agent(here, "snapshot", ...paths(here), "--out", join(here.folder, "one"), "--recipient", recipient).code,
  ).toBe(0);
  shell(here, "echo v >v");
  expect(
    agent(
      here,
      "snapshot",
      ...paths(here),
      "--out",
      join(here.folder, "two"),
      "--recipient",
      recipient,
      "--parent",
      join(here.folder, "one"),
      "--identity",
      file,
    ).report.outcome,
  ).toBe("made");
  const expected = describeTree(here.repo, here.home);
  fresh(here, 1);
  const closed = agent(here, "restore", "--from", join(here.folder, "two"), ...paths(here));
  expect(closed).toMatchObject({ code: 1, stdout: "" });
  expect(closed.stderr).toMatch(/^hangar-agent: .*--identity FILE/);
  expect(agent(here, "restore", "--from", join(here.folder, "two"), ...paths(here), "--identity", file)).toMatchObject({
    code: 0,
    report: { verified: true },
  });
  expect(describeTree(here.repo, here.home)).toEqual(expected);
});

test("a restore by hand, with age, zstd, tar and git alone", async () => {
  const here = place();
  shell(
    here,
    "echo u >u; echo c >c; git add c; git commit -qm c; echo e >>a.txt; mkdir -p $HOME/.claude/projects/-w; echo '{}' >$HOME/.claude/projects/-w/t.jsonl",
  );
  const identity = await generateIdentity();
  writeFileSync(join(here.folder, "key"), `${identity}\n`);
  const recipient = await identityToRecipient(identity);
  expect(
    agent(here, "snapshot", ...paths(here), "--out", join(here.folder, "one"), "--recipient", recipient).code,
  ).toBe(0);
  const head = shell(here, "git rev-parse HEAD").trim();
  fresh(here, 1);
  shell(
    here,
    `open() { age -d -i $D/key "$D/one/$1.age"; }
     open repo.bundle >$D/repo.bundle; git fetch -q $D/repo.bundle refs/hangar/checkpoint; git checkout -q -B work FETCH_HEAD
     open worktree.tar.zst | zstd -dc | tar -x; open untracked.tar.zst | zstd -dc | tar -x
     open agent.tar.zst | zstd -dc | tar -x -C $HOME`,
  );
  expect(
    shell(here, "git rev-parse HEAD; git status --porcelain; cat u; cat $HOME/.claude/projects/-w/t.jsonl").trim(),
  ).toBe(`${head}\n M a.txt\n?? u\nu\n{}`);
});

test.each([
  [["snapshot", "--repo", "x"], /--out is needed/],
  [["snapshot", "--out", "x", "--what"], /--what/],
  [["restore", "--from", "nowhere", "--repo", "repo", "--home", "home"], /holds no checkpoint/],
  [["snapshot", "--repo", "home", "--home", "home", "--out", "x"], /is no git repository/],
  [["snapshot", "--repo", "repo", "--home", "home", "--out", "repo"], /is not empty/],
  [["snapshot", "--repo", "repo", "--home", "home", "--out", "x", "--parent", "nowhere"], /holds no checkpoint/],
  [["snapshot", "--repo", "repo", "--home", "home", "--out", "x", "--recipient", "nobody"], /./],
] as [string[], RegExp][])("%j is one clear line", (args, message) => {
  const here = place();
  const run = agent(here, ...args);
  expect(run.code).toBeGreaterThan(0);
  expect(run.stdout).toBe("");
  expect(run.stderr).toMatch(message);
  expect(run.stderr.trimEnd().split("\n")).toHaveLength(1);
});
