import { existsSync } from "node:fs";
import {
  appendFile,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { conversationDigest, ConversationRecord } from "../../src/checkpoint/conversation.ts";
import { Homes, names, run, settled } from "./conversation-support.ts";

let homes: Homes;
beforeEach(async () => {
  homes = await Homes.open();
});
afterEach(async () => {
  await homes.close();
});

const SLUG = ".claude/projects/-workspace-repo";
const TRANSCRIPT = `${SLUG}/bbbbbbbb-0000-4000-8000-000000000001.jsonl`;
const line = (text: string): string => `${JSON.stringify({ type: "user", text })}\n`;

describe("which files", () => {
  it("are the conversations of every harness, sub-agents and tool results among them", async () => {
    const wanted = [
      TRANSCRIPT,
      `${SLUG}/bbbbbbbb/subagents/agent-1.jsonl`,
      `${SLUG}/bbbbbbbb/tool-results/toolu_01.txt`,
      `${SLUG}/memory/MEMORY.md`,
      ".codex/sessions/2026/09/21/rollout-x.jsonl",
      ".pi/agent/sessions/--workspace-repo--/x.jsonl",
      ".gemini/antigravity-cli/conversations/one.db",
      ".hangar-script/sessions/s.jsonl",
    ];
    for (const path of wanted) await homes.write(path, "x\n");
    expect(names(await homes.checkpoint("p")).toSorted()).toEqual(wanted.toSorted());
  });

  it("are never credentials, settings, logs or what else a harness keeps", async () => {
    const planted = `
      .claude.json .claude/.credentials.json .claude/settings.json .claude/sessions/12.key .claude/history.jsonl
      .claude/shell-snapshots/s.sh .claude/telemetry/t.json .claude/session-env/e .claude/statsig/s .claude/backups/b
      .codex/auth.json .codex/config.toml .codex/shell_snapshots/s.sh .codex/logs_2.sqlite .codex/history.jsonl
      .pi/agent/auth.json .pi/agent/models.json .pi/agent/settings.json
      .gemini/oauth_creds.json .gemini/antigravity-cli/token .gemini/antigravity-cli/conversations/token.json
      .hangar/env .hangar-script/sessions/key.pem .ssh/id_ed25519 .git-credentials .netrc .aws/credentials
    `
      .trim()
      .split(/\s+/);
    for (const path of planted) await homes.write(path, "SECRET-7c1f\n");
    await homes.write(TRANSCRIPT, line("hi"));
    const capture = await homes.checkpoint("p");
    expect(names(capture)).toEqual([TRANSCRIPT]);
    const { stdout } = await run("zstd", ["-dc", join(homes.folder, "p")]);
    expect(stdout).not.toContain("SECRET-7c1f");
  });

  it("pass over FIFOs and sockets without waiting, and name what cannot be kept", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    await run("mkfifo", [homes.at(`${SLUG}/control.fifo`)]);
    expect(names(await homes.checkpoint("p"))).toEqual([TRANSCRIPT]);
  });

  it("keep links to files as links, dangling ones too", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    await symlink("bbbbbbbb-0000-4000-8000-000000000001.jsonl", homes.at(`${SLUG}/latest.jsonl`));
    await symlink("/no/such/place", homes.at(`${SLUG}/dangling`));
    const home = await homes.restore((await homes.checkpoint("p")).record);
    expect(await readlink(join(home, SLUG, "latest.jsonl"))).toBe("bbbbbbbb-0000-4000-8000-000000000001.jsonl");
    expect(await readlink(join(home, SLUG, "dangling"))).toBe("/no/such/place");
  });

  it("are found behind a link to a folder that stays in the home", async () => {
    await homes.write("data/projects/-x/t.jsonl", line("moved"));
    await mkdir(homes.at(".claude"));
    await symlink("../data/projects", homes.at(".claude/projects"));
    const capture = await homes.checkpoint("p");
    expect([names(capture), capture.warnings]).toEqual([[".claude/projects/-x/t.jsonl"], []]);
    const home = await homes.restore(capture.record);
    expect(await readFile(join(home, ".claude/projects/-x/t.jsonl"), "utf8")).toBe(line("moved"));
  });

  it("are not looked for outside the home, where credentials may be, or for ever in a loop", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    await homes.write(".codex/auth.json", "SECRET");
    await homes.write("data/auth.json", "SECRET");
    await homes.write("data/notes.txt", "kept");
    const outside = join(homes.folder, "outside");
    await mkdir(outside);
    await writeFile(join(outside, "x.jsonl"), "x");
    await symlink(outside, homes.at(`${SLUG}/out`));
    await symlink(homes.at(".codex"), homes.at(`${SLUG}/codex`));
    await symlink(homes.home, homes.at(`${SLUG}/home`));
    await symlink(homes.at("data"), homes.at(`${SLUG}/data`));
    await symlink("..", homes.at(`data/up`));
    await symlink(".", homes.at(`data/self`));
    const capture = await homes.checkpoint("p");
    expect(names(capture)).toEqual([TRANSCRIPT, `${SLUG}/data/notes.txt`]);
    expect(capture.warnings.filter((text) => /outside|codex|home/.test(text)).length).toBeGreaterThanOrEqual(3);
  });

  it("have whatever names they have", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    const odd = Buffer.concat([
      Buffer.from(`${homes.at(SLUG)}/name with \n newline and caf`),
      Buffer.from([0xe9]),
      Buffer.from(".txt"),
    ]);
    await writeFile(odd, "odd");
    await writeFile(homes.at(`${SLUG}/hex:41`), "not hex");
    await writeFile(homes.at(`${SLUG}/log@000000000000007`), "not a segment");
    const { record } = await homes.checkpoint("p");
    const home = await homes.restore(
      ConversationRecord.parse(JSON.parse(JSON.stringify(ConversationRecord.encode(record)))),
    );
    const list = async (at: string): Promise<string[]> =>
      (await readdir(join(at, SLUG), { encoding: "buffer" })).map((name) => name.toString("latin1")).sort();
    expect(await list(home)).toEqual(await list(homes.home));
    expect(await readFile(join(home, SLUG, "log@000000000000007"), "utf8")).toBe("not a segment");
  });
});

describe("what is sent", () => {
  it("is nothing when nothing changed", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    const first = await homes.checkpoint("1");
    for (const parent of [first.record, settled(first.record)]) {
      const again = await homes.checkpoint("2", parent);
      expect([again.changed, again.entries, again.record.files]).toEqual([false, [], first.record.files]);
    }
  });

  it("is what was appended, put together again by the restore", async () => {
    await homes.write(TRANSCRIPT, line("x".repeat(100_000)));
    await homes.write(`${SLUG}/other.jsonl`, line("other"));
    const first = await homes.checkpoint("1");
    await appendFile(homes.at(TRANSCRIPT), line("two"));
    const second = await homes.checkpoint("2", first.record);
    await appendFile(homes.at(TRANSCRIPT), line("three"));
    const third = await homes.checkpoint("3", settled(second.record));
    expect([second.sent, third.sent]).toEqual([line("two").length, line("three").length]);
    expect(third.record.parts).toEqual(["1", "2", "3"]);
    const home = await homes.restore(third.record);
    expect(await readFile(join(home, TRANSCRIPT), "utf8")).toBe(await readFile(homes.at(TRANSCRIPT), "utf8"));
    expect(await readFile(join(await homes.restore(first.record), TRANSCRIPT), "utf8")).toBe(line("x".repeat(100_000)));
  });

  it("is the whole file once what was sent of it changed, also under the same size and time", async () => {
    const at = await homes.write(TRANSCRIPT, "aaaa\nbbbb\n");
    const first = await homes.checkpoint("1");
    const { mtime } = await stat(at);
    await writeFile(at, "aaaa\nBBBB\n");
    await utimes(at, mtime, mtime);
    const second = await homes.checkpoint("2", settled(first.record));
    expect([second.changed, second.sent, second.record.parts]).toEqual([true, 10, ["2"]]);
    await writeFile(at, "AAAA\nBBBB\ncccc\n");
    const third = await homes.checkpoint("3", second.record);
    expect([third.sent, third.record.parts]).toEqual([15, ["3"]]);
    await truncate(at, 5);
    const fourth = await homes.checkpoint("4", third.record);
    expect(await readFile(join(await homes.restore(fourth.record), TRANSCRIPT), "utf8")).toBe("AAAA\n");
  });

  it("is the whole of a large file, too, when its middle changed and it is looked at in full", async () => {
    const bytes = Buffer.alloc(14_000_000, "0123456789abcde\n");
    const at = await homes.write(TRANSCRIPT, bytes);
    const first = await homes.checkpoint("1");
    bytes[7_000_000] = 88;
    await writeFile(at, bytes);
    await appendFile(at, "more\n");
    const full = await homes.checkpoint("2", first.record, { prefix: "full" });
    expect(full.sent).toBe(bytes.length + 5);
    await truncate(at, 13_000_000);
    await appendFile(at, Buffer.alloc(2_000_000, "z\n"));
    const edges = await homes.checkpoint("3", full.record);
    expect(edges.sent).toBe(15_000_000);
  });

  it("follows files that move, come, go, and change their mode", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    await homes.write(`${SLUG}/gone.jsonl`, line("gone"));
    const first = await homes.checkpoint("1");
    await rm(homes.at(`${SLUG}/gone.jsonl`));
    const second = await homes.checkpoint("2", first.record);
    expect([second.changed, second.entries, names(second)]).toEqual([true, [], [TRANSCRIPT]]);
    await run("chmod", ["640", homes.at(TRANSCRIPT)]);
    const third = await homes.checkpoint("3", second.record);
    expect([third.changed, third.entries]).toEqual([true, []]);
    await rename(homes.at(TRANSCRIPT), homes.at(`${SLUG}/moved.jsonl`));
    await symlink("moved.jsonl", homes.at(TRANSCRIPT));
    const fourth = await homes.checkpoint("4", third.record);
    const home = await homes.restore(third.record);
    expect((await stat(join(home, TRANSCRIPT))).mode & 0o777).toBe(0o640);
    expect(await readdir(join(home, SLUG))).toEqual([TRANSCRIPT.split("/").pop()]);
    expect((await readdir(join(await homes.restore(fourth.record), SLUG))).sort()).toEqual([
      TRANSCRIPT.split("/").pop(),
      "moved.jsonl",
    ]);
  });

  it("does not let parts pile up, nor sends everything again for that", async () => {
    await homes.write(`${SLUG}/large.jsonl`, Buffer.alloc(5_000_000, "base\n"));
    await homes.write(TRANSCRIPT, line("start"));
    let { record, sent: total } = await homes.checkpoint("0");
    let own = 0;
    for (let i = 1; i <= 120; i++) {
      const text = line(`turn ${i} ${"x".repeat(200)}`);
      own += text.length;
      await appendFile(homes.at(TRANSCRIPT), text);
      if (i % 10 === 0) await appendFile(homes.at(`${SLUG}/large.jsonl`), "base\n");
      const next = await homes.checkpoint(String(i), record);
      total += next.sent;
      record = next.record;
    }
    expect(record.parts.length).toBeLessThanOrEqual(33);
    expect(total - 5_000_000).toBeLessThan(own * 8);
    const home = await homes.restore(record);
    for (const path of [TRANSCRIPT, `${SLUG}/large.jsonl`])
      expect((await readFile(join(home, path))).equals(await readFile(homes.at(path)))).toBe(true);
  }, 120_000);

  it("has one digest for the same conversations, however they came to be sent", async () => {
    await homes.write(TRANSCRIPT, line("one"));
    const first = await homes.checkpoint("1");
    await appendFile(homes.at(TRANSCRIPT), line("two"));
    const second = await homes.checkpoint("2", first.record);
    const whole = await homes.checkpoint("3");
    expect(conversationDigest(second.record)).toBe(conversationDigest(whole.record));
    expect(conversationDigest(second.record)).not.toBe(conversationDigest(first.record));
    const restored = new Homes(homes.folder);
    Object.assign(restored, { home: await homes.restore(second.record) });
    expect(conversationDigest((await restored.checkpoint("4")).record)).toBe(conversationDigest(whole.record));
  });
});

describe("a transcript that is being written", () => {
  it("is cut after its last whole line", async () => {
    const at = await homes.write(TRANSCRIPT, line("whole"));
    await appendFile(at, '{"half');
    let tick = 0;
    const writer = setInterval(() => void appendFile(at, String(tick++)), 5);
    const capture = await homes.checkpoint("1");
    clearInterval(writer);
    expect(await readFile(join(await homes.restore(capture.record), TRANSCRIPT), "utf8")).toBe(line("whole"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    await appendFile(at, '"}\n');
    const next = await homes.checkpoint("2", settled(capture.record));
    expect(next.changed).toBe(true);
    const restored = await readFile(join(await homes.restore(next.record), TRANSCRIPT), "utf8");
    expect(restored).toBe(await readFile(at, "utf8"));
  });

  it("keeps a line that a crash left torn, byte for byte", async () => {
    const torn = `${line("whole")}{"type":"assistant","message":{"role":"assi`;
    await homes.write(TRANSCRIPT, torn);
    const { record } = await homes.checkpoint("1");
    expect(await readFile(join(await homes.restore(record), TRANSCRIPT), "utf8")).toBe(torn);
  });

  it("is a prefix of what it becomes, whatever the moment", async () => {
    const at = await homes.write(TRANSCRIPT, line("start"));
    const script = `const { appendFileSync } = require("node:fs");
      for (let i = 0; ; i++) { const t = JSON.stringify({ i, text: "y".repeat(i % 5000) }) + "\\n";
        appendFileSync(process.argv[1], t.slice(0, t.length >> 1)); appendFileSync(process.argv[1], t.slice(t.length >> 1)); }`;
    const { spawn } = await import("node:child_process");
    const writer = spawn(process.execPath, ["-e", script, at]);
    try {
      let record: ConversationRecord | null = null;
      for (let i = 0; i < 5; i++) record = (await homes.checkpoint(String(i), record)).record;
      writer.kill("SIGKILL");
      const restored = await readFile(join(await homes.restore(record!), TRANSCRIPT));
      expect((await readFile(at)).subarray(0, restored.length).equals(restored)).toBe(true);
      for (const text of restored.toString().split("\n").slice(0, -1)) JSON.parse(text);
    } finally {
      writer.kill("SIGKILL");
    }
  });
});

describe("restoring", () => {
  it("gives the present time, own modes, folders of one's own, and leaves other conversations", async () => {
    const at = await homes.write(TRANSCRIPT, line("old"), 0o600);
    const longAgo = Date.now() / 1000 - 100 * 86_400;
    await utimes(at, longAgo, longAgo);
    const { record } = await homes.checkpoint("1");
    const home = join(homes.folder, "other-home");
    await mkdir(join(home, SLUG), { recursive: true });
    await writeFile(join(home, SLUG, "another.jsonl"), "another");
    await mkdir(join(home, ".hangar-restore-AbCdEf"));
    await homes.restore(record, home);
    const restored = await stat(join(home, TRANSCRIPT));
    expect(restored.mode & 0o777).toBe(0o600);
    expect(restored.mtimeMs).toBeGreaterThan(Date.now() - 3_600_000);
    expect(await readFile(join(home, SLUG, "another.jsonl"), "utf8")).toBe("another");
    expect((await readdir(home)).sort()).toEqual([".claude"]);
    const fresh = await homes.restore(record);
    expect((await stat(join(fresh, ".claude"))).mode & 0o777).toBe(0o700);
  });

  it("drops the index that Codex makes of its transcripts, and nothing else of Codex", async () => {
    await homes.write(".codex/sessions/2026/09/21/rollout-x.jsonl", line("hi"));
    const { record } = await homes.checkpoint("1");
    const home = join(homes.folder, "other-home");
    await mkdir(join(home, ".codex"), { recursive: true });
    const kept = ["auth.json", "state_5.sqlite"];
    for (const name of [...kept, "thread_history_1.sqlite", "thread_history_1.sqlite-wal"])
      await writeFile(join(home, ".codex", name), "x");
    await homes.restore(record, home);
    expect((await readdir(join(home, ".codex"))).sort()).toEqual([...kept, "sessions"].sort());
  });

  it("touches nothing when a part is damaged, missing, or not what the record says", async () => {
    await homes.write(TRANSCRIPT, line("one"));
    const { record } = await homes.checkpoint("1");
    const home = join(homes.folder, "other-home");
    await mkdir(join(home, SLUG), { recursive: true });
    await writeFile(join(home, TRANSCRIPT), "before");
    const lies: ((file: ConversationRecord["files"][number]) => object)[] = [
      () => ({ pieces: ["0".repeat(64)] }),
      (file) => ({ size: file.size + 1, segments: [{ ...file.segments[0], size: file.size + 1 }] }),
      () => ({ path: `${SLUG}/none.jsonl` }),
      () => ({ path: ".claude/settings.json" }),
      () => ({ path: ".bashrc" }),
      () => ({ path: `${SLUG}/../../../.bashrc` }),
      () => ({ path: "/etc/passwd" }),
      (file) => ({ segments: [{ ...file.segments[0], offset: 1 }] }),
      () => ({ kind: "symlink" }),
    ];
    for (const lie of lies) {
      const files = record.files.map((file) => ({ ...file, ...lie(file) }));
      await expect(homes.restore({ ...record, files }, home)).rejects.toMatchObject({
        code: "checkpoint_invalid",
      });
    }
    await truncate(join(homes.folder, "1"), 40);
    await expect(homes.restore(record, home)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readFile(join(home, TRANSCRIPT), "utf8")).toBe("before");
    expect((await readdir(home)).sort()).toEqual([".claude"]);
    expect(existsSync(join(home, ".claude/settings.json"))).toBe(false);
  });

  it("does not write through a link that leads out of the home, but uses one that stays in it", async () => {
    await homes.write(TRANSCRIPT, line("hi"));
    const { record } = await homes.checkpoint("1");
    const home = join(homes.folder, "other-home");
    await mkdir(home);
    await mkdir(join(homes.folder, "outside"));
    await symlink(join(homes.folder, "outside"), join(home, ".claude"));
    await expect(homes.restore(record, home)).rejects.toMatchObject({ code: "checkpoint_invalid" });
    expect(await readdir(join(homes.folder, "outside"))).toEqual([]);
    await rm(join(home, ".claude"));
    await mkdir(join(home, "config/claude"), { recursive: true });
    await symlink("config/claude", join(home, ".claude"));
    await homes.restore(record, home);
    expect((await lstat(join(home, ".claude"))).isSymbolicLink()).toBe(true);
    expect(
      await readFile(join(home, "config/claude/projects/-workspace-repo", TRANSCRIPT.split("/").pop()!), "utf8"),
    ).toBe(line("hi"));
  });
});
