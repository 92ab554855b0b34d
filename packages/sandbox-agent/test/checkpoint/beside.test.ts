/** A restore that begins while the repository is still being cloned. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { restoreCheckpoint } from "../../src/checkpoint/engine.ts";
import type { MadeCheckpoint, Restored } from "../../src/checkpoint/engine.ts";
import { clone, describeTree, place, type Place, shell, sourceOf, take, workspace } from "./support.ts";

const CONVERSATION = ".claude/projects/-repo/11111111-1111-4111-8111-111111111111.jsonl";

/** Large enough for what is large: each file 9 MB. */
async function checkpointed(): Promise<{ here: Place; made: MadeCheckpoint; before: unknown }> {
  const here = place();
  shell(
    here,
    `head -c 9000000 /dev/urandom >big.bin; mkdir -p u/v; echo 1 >u/v/w; echo work >>a.txt; rm -r d; ln -s u d
     mkdir -p "$(dirname ${here.home}/${CONVERSATION})"; for i in $(seq 90000); do echo "{\\"uuid\\":\\"$i\\",\\"type\\":\\"user\\",\\"message\\":{\\"content\\":\\"a line of text, one of many that there are\\"}}"; done >${here.home}/${CONVERSATION}`,
  );
  const before = describeTree(here.repo, here.home);
  return { here, made: await take(here), before };
}

const moveAway = (here: Place): void => {
  mkdirSync(join(here.folder, "old"));
  renameSync(here.repo, join(here.folder, "old", "repo"));
  renameSync(here.home, join(here.folder, "old", "home"));
  mkdirSync(here.home);
};

const restore = (here: Place, made: MadeCheckpoint, cloned: Promise<unknown>): Promise<Restored> =>
  restoreCheckpoint(workspace(here), {
    meta: readFileSync(join(made.dir, made.metaObject.file)),
    source: sourceOf(made),
    identities: null,
    force: true,
    cloned,
  });

const stage = (here: Place): string => join(here.folder, ".repo.restoring");

describe.concurrent("a restore beside the clone", () => {
  test("what is large is unpacked while the clone is made, and then the workspace is exact", async () => {
    const { here, made, before } = await checkpointed();
    moveAway(here);
    // What a kill left behind, and a folder where a file goes.
    mkdirSync(join(stage(here), "untracked", "old"), { recursive: true });
    let wasUnpacked = false;
    const cloned = (async () => {
      for (let i = 0; i < 400 && !wasUnpacked; i++) {
        wasUnpacked = existsSync(join(stage(here), "untracked", "big.bin"));
        await sleep(25);
      }
      clone(here);
      shell(here, "mkdir big.bin; echo s >big.bin/left; echo s >u; echo s >>b.txt");
    })();
    const { report } = await restore(here, made, cloned);
    expect(wasUnpacked).toBe(true);
    expect(report).toMatchObject({ verified: true, differs: [] });
    expect(describeTree(here.repo, here.home)).toEqual(before);
    expect(readFileSync(join(here.home, CONVERSATION))).toEqual(
      readFileSync(join(here.folder, "old", "home", CONVERSATION)),
    );
    expect(existsSync(stage(here))).toBe(false);
    expect(readdirSync(here.home)).toEqual([".claude"]);
  });

  test("a clone that fails is the error, and nothing is put in place", async () => {
    const { here, made } = await checkpointed();
    moveAway(here);
    const cloned = sleep(300).then(() => {
      throw new Error("the remote is away");
    });
    await expect(restore(here, made, cloned)).rejects.toThrow("the remote is away");
    expect(existsSync(here.repo)).toBe(false);
    expect(existsSync(stage(here))).toBe(false);
    expect(readdirSync(here.home)).toEqual([]);
  });

  test("a damaged part is said before the clone is touched", async () => {
    const { here, made } = await checkpointed();
    moveAway(here);
    const part = made.objects.find(({ file }) => file.startsWith("untracked"));
    truncateSync(part?.path ?? "", 1000);
    const cloned = sleep(50).then(() => clone(here));
    await expect(restore(here, made, cloned)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    await cloned;
    expect(shell(here, "git status --porcelain; git symbolic-ref HEAD")).toBe("refs/heads/main\n");
    expect(existsSync(stage(here))).toBe(false);
    expect(readdirSync(here.home)).toEqual([]);
  });

  test("an archive that is damaged behind its beginning leaves the clone as it is", async () => {
    const { here, made } = await checkpointed();
    moveAway(here);
    const part = made.objects.find(({ file }) => file.startsWith("untracked"));
    // Its digest is right: whoever forged it has written the meta too.
    const bytes = readFileSync(part?.path ?? "");
    bytes.fill(0, bytes.length - 300_000);
    rmSync(part?.path ?? "");
    writeFileSync(part?.path ?? "", bytes);
    const { createHash } = await import("node:crypto");
    const meta = JSON.parse(readFileSync(join(made.dir, made.metaObject.file), "utf8")) as {
      parts: { name: string; sha256: string }[];
    };
    for (const one of meta.parts)
      if (one.name.startsWith("untracked")) one.sha256 = createHash("sha256").update(bytes).digest("hex");
    const cloned = sleep(50).then(() => clone(here));
    const restoring = restoreCheckpoint(workspace(here), {
      meta: Buffer.from(JSON.stringify(meta)),
      source: sourceOf(made),
      identities: null,
      force: true,
      cloned,
    });
    await expect(restoring).rejects.toMatchObject({ code: "checkpoint_invalid" });
    await cloned;
    expect(existsSync(join(here.repo, "big.bin"))).toBe(false);
    expect(existsSync(join(here.repo, "u"))).toBe(false);
    expect(existsSync(stage(here))).toBe(false);
    expect(readdirSync(here.home)).toEqual([]);
  });
});
