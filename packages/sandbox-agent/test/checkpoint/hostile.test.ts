/** Checkpoints that lie, and targets that must not be overwritten: a clear error, nothing lost, nothing written outside. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync, rmSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { createWriteStream } from "node:fs";
import { describe, expect, test } from "vitest";
import { restoreCheckpoint } from "../../src/checkpoint/engine.ts";
import { writeArchive, type ArchiveEntry } from "../../src/checkpoint/archive.ts";
import { changeMeta, forge, tenGigabytes } from "./forging.ts";
import {
  clone,
  describeTree,
  place,
  putBack,
  shell,
  sourceOf,
  take,
  workspace,
  type MadeCheckpoint,
  type Place,
} from "./support.ts";

async function prepared(): Promise<{ here: Place; made: MadeCheckpoint }> {
  const here = place();
  shell(
    here,
    "echo u >u; echo e >>a.txt; echo c >c; git add c; git commit -qm c; mkdir $D/outside; echo keep >$D/outside/keep",
  );
  return { here, made: await take(here) };
}

/** Restores into a fresh clone, expecting a refusal that leaves the clone and all around it as they were. */
async function refused(here: Place, made: MadeCheckpoint, message: RegExp): Promise<void> {
  shell(here, "rm -rf repo", here.folder);
  clone(here);
  const before = describeTree(here.repo, here.home);
  const restore = restoreCheckpoint(workspace(here), {
    meta: readFileSync(join(made.dir, made.metaObject.file)),
    source: sourceOf(made),
    identities: null,
    force: false,
  });
  await expect(restore).rejects.toThrow(message);
  await expect(restore).rejects.toMatchObject({ code: "checkpoint_invalid" });
  expect(describeTree(here.repo, here.home)).toEqual(before);
  expect(readdirSync(join(here.folder, "outside"))).toEqual(["keep"]);
}

async function archiveOf(here: Place, entries: ArchiveEntry[]): Promise<Buffer> {
  const path = join(here.folder, `forged-${createHash("sha1").update(String(Math.random())).digest("hex")}`);
  await writeArchive(entries, createWriteStream(path));
  return readFileSync(path);
}
const file = (path: string, text = "evil\n"): ArchiveEntry => ({
  path: Buffer.from(path),
  kind: "file",
  mode: 0o755,
  mtime: 0,
  size: text.length,
  content: { bytes: Buffer.from(text) },
});

describe("a checkpoint that is not what it says", () => {
  test("a part is cut off", async () => {
    const { here, made } = await prepared();
    truncateSync(join(made.dir, "worktree.tar.zst"), 20);
    await refused(here, made, /worktree\.tar\.zst has 20 bytes/);
  });
  test("a part has other bytes of the same length", async () => {
    const { here, made } = await prepared();
    const path = join(made.dir, "untracked.tar.zst");
    const bytes = readFileSync(path);
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    writeFileSync(path, bytes);
    await refused(here, made, /another digest/);
  });
  test("the meta is not JSON, of another version, or names a part that leads elsewhere", async () => {
    const { here, made } = await prepared();
    const path = join(made.dir, "meta.json");
    const good = readFileSync(path);
    writeFileSync(path, "{");
    await refused(here, made, /not JSON/);
    writeFileSync(path, good);
    changeMeta(made.dir, (meta) => ({ ...meta, version: 2 }));
    await refused(here, made, /format 2, newer/);
    writeFileSync(path, good);
    changeMeta(made.dir, (meta) => ({
      ...meta,
      parts: meta.parts.map((part) => ({ ...part, file: "../../etc/passwd" })),
    }));
    await refused(here, made, /parts/);
    writeFileSync(path, good);
    changeMeta(made.dir, (meta) => ({ ...meta, parts: meta.parts.filter((part) => part.name !== "worktree") }));
    await refused(here, made, /no part worktree/);
  });
  test("the bundle's pack is broken", async () => {
    const { here, made } = await prepared();
    const bytes = readFileSync(join(made.dir, "repo.bundle"));
    bytes[bytes.length - 30] = (bytes.at(-30) ?? 0) ^ 0xff;
    forge(made.dir, "repo.bundle", bytes);
    await refused(here, made, /bundle is damaged/);
  });
  test("the state is no state", async () => {
    const { here, made } = await prepared();
    forge(made.dir, "git-state", await archiveOf(here, [file("state.json", "{}")]));
    await refused(here, made, /git-state is damaged/);
    forge(made.dir, "git-state", await archiveOf(here, [file("other", "{}")]));
    await refused(here, made, /no state\.json/);
  });
  test("the fingerprint is another state's", async () => {
    const { here, made } = await prepared();
    changeMeta(made.dir, (meta) => ({ ...meta, fingerprint: "0".repeat(64) }));
    const { restored } = await putBack(here, [made]);
    expect(restored.report).toMatchObject({ verified: false });
    expect(restored.next).toBeNull();
    expect(restored.report.differs.join()).toMatch(/fingerprint/);
  });
});

describe("an archive that leads out", () => {
  test.each([
    ["into a git folder", [file(".git/hooks/post-checkout")]],
    ["into a nested git folder", [file("d/.GIT/config")]],
    [
      "through a link",
      [
        { path: Buffer.from("way"), kind: "symlink", mode: 0o777, mtime: 0, size: 0, link: Buffer.from("../outside") },
        file("way/evil"),
      ],
    ],
  ] as [string, ArchiveEntry[]][])("%s", async (_name, entries) => {
    const { here, made } = await prepared();
    forge(made.dir, "untracked", await archiveOf(here, entries));
    const { repo } = here;
    await expect(putBack(here, [made])).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(readdirSync(join(here.folder, "outside"))).toEqual(["keep"]);
    expect(existsSync(join(repo, ".git/hooks/post-checkout"))).toBe(false);
  });

  test("an archive that unpacks to more than the state says, refused before it is written", async () => {
    const { here, made } = await prepared();
    const bomb = await tenGigabytes(file("u", ""));
    expect(bomb.length).toBeLessThan(2_000_000);
    forge(made.dir, "untracked", bomb);
    await expect(putBack(here, [made])).rejects.toThrow(/holds more than it says/);
    const size = shell(here, "du -sm .", here.folder).split("\t")[0];
    expect(Number(size)).toBeLessThan(100);
  });

  test("state that names places outside the workspace", async () => {
    const { here, made } = await prepared();
    const state = shell(here, `zstd -dc '${made.dir}/git-state.tar.zst' | tar -xO state.json`);
    const exclude = { ...file("trees/0/info/exclude", "") };
    for (const change of [
      (tree: Record<string, unknown>) => (tree["git_files"] = ["hooks/post-checkout"]),
      (tree: Record<string, unknown>) => (tree["git_files"] = ["rebase-merge/../../config"]),
      (tree: Record<string, unknown>) => (tree["deleted"] = ["../outside/keep"]),
      (tree: Record<string, unknown>) => (tree["branch"] = "refs/heads/../../x"),
      (tree: Record<string, unknown>) => (tree["path"] = "../outside"),
      (tree: Record<string, unknown>) => (tree["config"] = [["local", "core.fsmonitor", "touch /tmp/x"]]),
    ]) {
      const document = JSON.parse(state) as { trees: Record<string, unknown>[] };
      change(document.trees[0] ?? {});
      forge(made.dir, "git-state", await archiveOf(here, [file("state.json", JSON.stringify(document)), exclude]));
      shell(here, "rm -rf repo", here.folder);
      clone(here);
      await expect(
        restoreCheckpoint(workspace(here), {
          meta: readFileSync(join(made.dir, "meta.json")),
          source: sourceOf(made),
          identities: null,
          force: false,
        }),
      ).rejects.toMatchObject({ code: "checkpoint_invalid" });
      expect(readdirSync(join(here.folder, "outside"))).toEqual(["keep"]);
      expect(existsSync(join(here.repo, ".git/hooks/post-checkout"))).toBe(false);
    }
  });
});

describe("a target or a remote that does not fit", () => {
  test("commits that the remote lacks are not overwritten without force", async () => {
    const { here, made } = await prepared();
    await expect(putBack(here, [made], { setup: "echo x >x; git add x; git commit -qm mine" })).rejects.toMatchObject({
      code: "workspace_has_work",
    });
    expect(shell(here, "git log -1 --format=%s").trim()).toBe("mine");
    await expect(putBack(here, [made], { setup: "echo x >>a.txt; git stash -q" })).rejects.toMatchObject({
      code: "workspace_has_work",
    });
    const { restored } = await putBack(here, [made], { setup: "git commit -q --allow-empty -m mine", force: true });
    expect(restored.report.verified).toBe(true);
  });
  test("a folder that is no repository and not empty", async () => {
    const { here, made } = await prepared();
    rmSync(here.repo, { recursive: true });
    mkdirSync(here.repo);
    writeFileSync(join(here.repo, "precious"), "p");
    const restore = restoreCheckpoint(workspace(here), {
      meta: readFileSync(join(made.dir, "meta.json")),
      source: sourceOf(made),
      identities: null,
      force: true,
    });
    await expect(restore).rejects.toMatchObject({ code: "workspace_has_work" });
    expect(readFileSync(join(here.repo, "precious"), "utf8")).toBe("p");
  });
  test("no clone at all: the repository is made, and its commits fetched", async () => {
    const { here, made } = await prepared();
    const expected = describeTree(here.repo, here.home);
    rmSync(here.repo, { recursive: true });
    const { report } = await restoreCheckpoint(workspace(here), {
      meta: readFileSync(join(made.dir, "meta.json")),
      source: sourceOf(made),
      identities: null,
      force: false,
    });
    expect(report).toMatchObject({ verified: true, differs: [] });
    expect({ ...describeTree(here.repo, here.home), upstreams: null }).toEqual({ ...expected, upstreams: null });
  });
  test("a remote that lost the base commit", async () => {
    const { here, made } = await prepared();
    shell(
      here,
      "git init -q --bare -b main new.git; git init -q -b main s; cd s; echo o >o; git add o; git commit -qm other; git push -q ../new.git main; cd ..; rm -rf origin.git s; mv new.git origin.git",
      here.folder,
    );
    await expect(putBack(here, [made])).rejects.toThrow(/builds on commit [0-9a-f]{12} .* no longer gives/);
  });
});
