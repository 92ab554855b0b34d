/** Taking a checkpoint: sealed, within limits, beside other writers, without a trace in the user's repository. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateIdentity, identityToRecipient } from "age-encryption";
import { describe, expect, test } from "vitest";
import { fingerprintWorkspace } from "../../src/checkpoint/engine.ts";
import { describeTree, place, putBack, shell, take, workspace } from "./support.ts";

describe("sealed", () => {
  test("every object is an age file, and only the identity opens it", async () => {
    const here = place();
    const identity = await generateIdentity();
    const recipients = [await identityToRecipient(identity)];
    shell(
      here,
      "echo SECRET >u; echo SECRET >>a.txt; git commit -qm SECRET --allow-empty; git config branch.work.description SECRET",
    );
    const made = await take(here, { recipients });
    for (const file of readdirSync(made.dir)) {
      const bytes = readFileSync(join(made.dir, file));
      expect(bytes.subarray(0, 21).toString()).toBe("age-encryption.org/v1");
      expect(file).toMatch(/\.age$/);
      expect(bytes.includes("SECRET")).toBe(false);
    }
    const expected = describeTree(here.repo, here.home);
    await expect(putBack(here, [made], { identities: [await generateIdentity()] })).rejects.toMatchObject({
      code: "checkpoint_invalid",
    });
    const { restored } = await putBack(here, [made], { identities: [identity] });
    expect(restored.report.verified).toBe(true);
    expect(describeTree(here.repo, here.home)).toEqual(expected);
  });
});

describe("limits", () => {
  test("the largest untracked files are left out and named, until they are there again", async () => {
    const here = place();
    shell(
      here,
      "head -c 3000 /dev/zero >big; head -c 2000 /dev/zero >middle; echo s >small; mkdir d2; head -c 2500 /dev/zero >d2/big2; echo e >>a.txt",
    );
    const limits = { maxUntrackedBytes: 2100, maxPartBytes: 10 };
    const made = await take(here, { limits });
    expect(made.meta.left_out).toEqual([
      { path: "big", size: 3000 },
      { path: "d2/big2", size: 2500 },
    ]);
    expect(made.meta.warnings.join("\n")).toMatch(/left out: big/);
    expect(made.meta.warnings.join("\n")).toMatch(/the part worktree has \d+ bytes/);
    const { restored } = await putBack(here, [made]);
    expect(restored.report).toMatchObject({ verified: true, left_out: made.meta.left_out });
    expect(readdirSync(here.repo).sort()).toEqual([".git", "a.txt", "b.txt", "d", "middle", "small"]);
    const next = await take(here, { parent: restored.next });
    expect(next.meta.left_out).toEqual(made.meta.left_out);
    shell(here, "echo again >big");
    expect((await take(here, { parent: next.next })).meta.left_out).toEqual([{ path: "d2/big2", size: 2500 }]);
  });

  test("what is ignored is named with its size, and what may run a program is reported", async () => {
    const here = place();
    shell(
      here,
      "printf '#!/bin/sh\\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; printf 'node_modules/\\n*.o\\n' >.gitignore; mkdir node_modules; head -c 5000 /dev/zero >node_modules/x; echo o >a.o; git config alias.x '!rm -rf /'; git config remote.origin.pushurl https://u:p@example.test/x",
    );
    const { meta } = await take(here);
    expect(meta.not_kept).toEqual([
      { path: "node_modules/", size: 5000 },
      { path: "a.o", size: 2 },
    ]);
    expect(meta.warnings.join("\n")).toMatch(/hooks are programs and are not kept: pre-commit$/m);
    expect(meta.warnings.join("\n")).toMatch(/alias\.x/);
    expect(meta.warnings.join("\n")).toMatch(/remote\.origin\.pushurl/);
    expect(JSON.stringify(meta)).not.toContain("u:p@");
  });
});

describe("undisturbed", () => {
  test("index bytes, refs, locks and files are as before", async () => {
    const here = place();
    shell(
      here,
      "echo 2 >a.txt; git add a.txt; echo 3 >a.txt; git stash -q; echo u >u; git worktree add -q ../wt -b side; touch .git/index.lock",
    );
    const snapshot = (): string =>
      shell(
        here,
        "cd $D; find repo wt home -not -path '*/hangar*' | sort | xargs stat -c '%n %s %y %a'; find repo/.git -type f | sort | xargs sha1sum",
      );
    const before = snapshot();
    const ws = workspace(here);
    const made = await take(here, {}, ws);
    await take(here, { parent: made.next, reason: "turn" }, ws);
    await fingerprintWorkspace(ws);
    expect(snapshot()).toBe(before);
    expect(existsSync(join(here.repo, ".git/index.lock"))).toBe(true);
  });

  test("while git and an editor write, what is kept is one state, and it verifies", async () => {
    const here = place();
    mkdirSync(join(here.home, ".claude/projects/-w"), { recursive: true });
    const busy = spawn(
      "bash",
      [
        "-c",
        'i=0; while :; do i=$((i+1)); echo $i >>busy; echo $i >u$((i%5)); rm -f u$(((i+2)%5)); echo $i >a.txt; git add a.txt; git commit -qm $i; echo "{\\"n\\":$i}" >>../home/.claude/projects/-w/t.jsonl; done',
      ],
      {
        cwd: here.repo,
        env: {
          PATH: process.env["PATH"] ?? "",
          HOME: here.home,
          GIT_AUTHOR_NAME: "D",
          GIT_AUTHOR_EMAIL: "d@e",
          GIT_COMMITTER_NAME: "D",
          GIT_COMMITTER_EMAIL: "d@e",
        },
        stdio: "ignore",
      },
    );
    try {
      await new Promise((resolve) => setTimeout(resolve, 500));
      const ws = workspace(here);
      const made = await take(here, {}, ws);
      const second = await take(here, { parent: made.next }, ws);
      busy.kill("SIGKILL");
      await new Promise((resolve) => busy.on("exit", resolve));
      shell(here, "rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/work.lock");
      const { restored } = await putBack(here, [made, second]);
      expect(restored.report).toMatchObject({ verified: true, differs: [] });
      expect(shell(here, "git fsck --connectivity-only 2>&1; git log --oneline | wc -l").trim()).not.toBe("");
      expect(second.meta.paired || second.meta.warnings.some((text) => text.includes("three times"))).toBe(true);
    } finally {
      busy.kill("SIGKILL");
    }
  });
});

describe("not a state to keep", () => {
  test("a folder that is no repository", async () => {
    const here = place();
    await expect(take(here, {}, workspace(here, { repo: here.home }))).rejects.toMatchObject({
      code: "checkpoint_failed",
    });
  });
  test("an index that is cut off", async () => {
    const here = place();
    writeFileSync(join(here.repo, ".git/index"), readFileSync(join(here.repo, ".git/index")).subarray(0, 100));
    await expect(take(here)).rejects.toMatchObject({ code: "checkpoint_failed" });
  });
  test("an index that names an object the repository lacks", async () => {
    const here = place();
    shell(here, "echo lost >lost; git add lost; rm .git/objects/$(git rev-parse :lost | sed 's,^..,&/,')");
    await expect(take(here)).rejects.toThrow(/lacks/);
  });
});
