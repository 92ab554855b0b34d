/** A checkpoint costs what changed: parts that did not change are referenced, what was appended is what is sent. */
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseParent, serializeParent } from "../../src/checkpoint/engine.ts";
import { describeTree, place, putBack, shell, take, workspace, type MadeCheckpoint } from "./support.ts";

const names = (made: MadeCheckpoint): string[] => made.objects.map(({ file }) => file).sort();

test("unchanged parts are referenced, and only what changed is made", async () => {
  const here = place();
  const ws = workspace(here);
  shell(here, "echo 1 >u; echo 2 >>a.txt; echo c >c; git add c; git commit -qm c");
  const first = await take(here, {}, ws);
  shell(here, "echo 2 >>u");
  const second = await take(here, { parent: first.next }, ws);
  expect(names(second).filter((file) => !/review|git-state/.test(file))).toEqual(["untracked.2.tar.zst"]);
  const from = Object.fromEntries(second.parts.map((part) => [part.name, part.from]));
  expect(from).toMatchObject({
    "repo.bundle": first.meta.checkpoint,
    worktree: first.meta.checkpoint,
    untracked: first.meta.checkpoint,
  });
  expect(from["untracked.2"]).toBeUndefined();
  shell(here, "git commit -qam a");
  const third = await take(here, { parent: second.next }, ws);
  expect(names(third).filter((file) => !/review|git-state/.test(file))).toEqual(["repo.2.bundle"]);
  const expected = describeTree(here.repo, here.home);
  const { restored } = await putBack(here, [first, second, third]);
  expect(restored.report).toMatchObject({ verified: true, differs: [] });
  expect(describeTree(here.repo, here.home)).toEqual(expected);
  // And on from there, in another process: the parent survives its file.
  const parent = restored.next && parseParent(serializeParent(restored.next));
  shell(here, "echo 3 >>u");
  const fourth = await take(here, { parent }, workspace(here));
  expect(names(fourth).filter((file) => !/review|git-state/.test(file))).toEqual(["untracked.3.tar.zst"]);
  const last = describeTree(here.repo, here.home);
  expect((await putBack(here, [first, second, third, fourth])).restored.report.verified).toBe(true);
  expect(describeTree(here.repo, here.home)).toEqual(last);
});

test("files that go away leave no trace, also when they come back", async () => {
  const here = place();
  const ws = workspace(here);
  shell(here, "mkdir x; echo 1 >x/y; echo 2 >z");
  const chain = [await take(here, {}, ws)];
  for (const step of ["rm -r x; echo f >x", "rm x; mkdir -p x/y; echo d >x/y/w", "rm -r x z", "mkdir x; echo 1 >x/y"]) {
    shell(here, step);
    chain.push(await take(here, { parent: chain.at(-1)?.next ?? null }, ws));
    const expected = describeTree(here.repo, here.home);
    const { restored } = await putBack(here, chain);
    expect(restored.report).toMatchObject({ verified: true, differs: [] });
    expect(describeTree(here.repo, here.home)).toEqual(expected);
  }
});

test("an appended transcript and a large file travel as what was appended", async () => {
  const here = place();
  const ws = workspace(here);
  const transcript = join(here.home, ".claude/projects/-w/aaaaaaaa-0000-4000-8000-000000000001.jsonl");
  mkdirSync(join(here.home, ".claude/projects/-w"), { recursive: true });
  const noise = (): string => `${Array.from({ length: 20_000 }, () => Math.random().toString(36)).join(" ")}\n`;
  writeFileSync(transcript, noise().repeat(1) + noise());
  shell(here, "head -c 9000000 /dev/urandom >log");
  const first = await take(here, {}, ws);
  appendFileSync(transcript, "one more\n");
  shell(here, "echo more >>log");
  const second = await take(here, { parent: first.next }, ws);
  expect(second.report.new_bytes).toBeLessThan(20_000);
  const text = readFileSync(transcript);
  const log = readFileSync(join(here.repo, "log"));
  expect((await putBack(here, [first, second])).restored.report).toMatchObject({ verified: true, differs: [] });
  expect(readFileSync(transcript).equals(text)).toBe(true);
  expect(readFileSync(join(here.repo, "log")).equals(log)).toBe(true);
});

test("many small changes do not make the chain longer and longer", async () => {
  const here = place();
  const ws = workspace(here);
  const chain: MadeCheckpoint[] = [];
  for (let i = 0; i < 20; i++) {
    shell(here, `echo ${i} >>u; echo ${i} >>a.txt; git commit -qm ${i} -- a.txt`);
    chain.push(await take(here, { parent: chain.at(-1)?.next ?? null, prove: i === 19 }, ws));
  }
  const last = chain.at(-1);
  expect(last?.parts.length).toBeLessThan(40);
  const expected = describeTree(here.repo, here.home);
  expect((await putBack(here, chain)).restored.report.verified).toBe(true);
  expect(describeTree(here.repo, here.home)).toEqual(expected);
});

test("what is remembered between checkpoints is not trusted when its scratch folder is gone", async () => {
  const here = place();
  const ws = workspace(here);
  shell(here, "echo 2 >>a.txt; git add a.txt; echo u >u");
  const first = await take(here, {}, ws);
  rmSync(ws.scratch, { recursive: true });
  const second = await take(here, { parent: first.next }, ws);
  expect(second.meta.fingerprint).toBe(first.meta.fingerprint);
  shell(here, "git fetch -q --depth=1 origin main; echo 3 >>b.txt");
  const third = await take(here, { parent: second.next }, ws);
  const expected = describeTree(here.repo, here.home);
  const { restored } = await putBack(here, [first, second, third]);
  expect(restored.report).toMatchObject({ verified: true, differs: [] });
  expect(describeTree(here.repo, here.home)).toEqual(expected);
});

test.each([
  ["with a commit", "echo 1 >f; git add f; git commit -qm own; echo 2 >g"],
  ["without one", "echo 1 >f; git add f; echo 2 >g"],
  [
    "of another object format",
    "rm -rf .git; git init -q -b main --object-format=sha256; git add -A; git commit -qm own",
  ],
])("a repository that was made anew in the place of the parent's, %s", async (_name, script) => {
  const here = place();
  shell(here, "echo c >c; git add c; git commit -qm c; echo u >u");
  const first = await take(here);
  shell(here, `rm -rf .git; git init -q -b main; ${script}`);
  const second = await take(here, { parent: first.next });
  const expected = describeTree(here.repo, here.home);
  // The environment's repository is another one, too.
  shell(
    here,
    "rm -rf origin.git; git init -q --bare -b main origin.git; git init -q -b main s; cd s; git commit -q --allow-empty -m other; git push -q ../origin.git main; cd ..; rm -rf s",
    here.folder,
  );
  const sha256 = script.includes("sha256");
  const options = sha256 ? { setup: "rm -rf .git; git init -q --object-format=sha256" } : {};
  const { restored } = await putBack(here, [first, second], { ...options, force: true });
  expect(restored.report).toMatchObject({ verified: true, differs: [] });
  expect(describeTree(here.repo, here.home)).toEqual(expected);
});
