/**
 * Checkpoints that are damaged or forged, to the real command: one line on stderr that says what to do, an exit code that is not 0, nothing on
 * stdout, and everything in and around the target byte for byte as it was.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Part } from "@hangar/shared";
import { beforeAll, describe, expect, test } from "vitest";
import { file, forged, header, typed } from "./archive-support.ts";
import { agent } from "./command.ts";
import { changeMeta, forge, tenGigabytes } from "./forging.ts";
import {
  CONVERSATION,
  fresh,
  refused,
  spoil,
  flipped,
  type Here,
  table,
  nothing,
  plain,
  sealed,
  prepare,
} from "./offline-support.ts";
import { digest, shell } from "./support.ts";

beforeAll(prepare);

test("the checkpoints that are spoilt here are good as they are", () => {
  const here = fresh();
  expect(agent(here, ...plain)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
  const sealed = fresh();
  const args = [
    "restore",
    "--from",
    "sealed",
    "--repo",
    "repo",
    "--home",
    "home",
    "--identity",
    "other-key",
    "--identity",
    "key",
  ];
  expect(agent(sealed, ...args)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
});

describe("an identity", () => {
  table({
    "none for a sealed checkpoint": [nothing, sealed, /sealed: give its identity \(--identity FILE\)/],
    "another's": [nothing, [...sealed, "--identity", "other-key"], /not sealed to this identity: give the right one/],
    "that is not there": [nothing, [...sealed, "--identity", "nokey"], /nokey is not there: name one that is/],
    "in a file that holds none": [
      nothing,
      [...sealed, "--identity", "outside/keep"],
      /holds no age identity \(AGE-SEC/,
    ],
    "that is misspelt": [
      (here) => writeFileSync(join(here.folder, "bad"), "AGE-SECRET-KEY-1ABC\n"),
      [...sealed, "--identity", "bad"],
      /identity is misspelt or cut off: give it as age-keygen made it/,
    ],
  });
});

describe("a part", () => {
  table({
    "is cut off": [
      (here) => spoil(here, "worktree.tar.zst", (b) => b.subarray(0, 20)),
      plain,
      /worktree\.tar\.zst has 20 bytes instead of/,
    ],
    "goes on": [
      (here) => spoil(here, "worktree.tar.zst", (b) => Buffer.concat([b, b])),
      plain,
      /worktree\.tar\.zst has \d+ bytes instead of/,
    ],
    "has another byte": [
      (here) => spoil(here, "untracked.tar.zst", (b) => flipped(b, -1)),
      plain,
      /untracked\.tar\.zst has another digest than announced/,
    ],
    "is missing": [(here) => rmSync(join(here.from, "repo.bundle")), plain, /the object repo\.bundle is not there/],
    "is a folder": [
      (here) => {
        rmSync(join(here.from, "repo.bundle"));
        mkdirSync(join(here.from, "repo.bundle"));
      },
      plain,
      /the object repo\.bundle is not there/,
    ],
    "is a bundle with a broken pack": [
      (here) => forge(here.from, "repo.bundle", flipped(readFileSync(join(here.from, "repo.bundle")), -30)),
      plain,
      /bundle is damaged or forged: its pack is broken/,
    ],
    "is no bundle": [
      (here) => forge(here.from, "repo.bundle", Buffer.from("# v2 git bundle\n")),
      plain,
      /bundle is damaged or forged: it has no end/,
    ],
  });

  test("for people that is no zstd is not needed", () => {
    const here = fresh();
    forge(here.from, "review.json", Buffer.from("{}"));
    expect(agent(here, ...plain)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
    const next = ["snapshot", "--repo", "repo", "--home", "home", "--out", "next", "--parent", "from"];
    expect(agent(here, ...next)).toMatchObject({ code: 0, stderr: "" });
    // The chain's next checkpoint does not take it over.
    expect(readFileSync(join(here.folder, "next", "review.json.zst")).length).toBeGreaterThan(2);
  });
});

describe("a meta", () => {
  const meta = (change: Parameters<typeof changeMeta>[1]) => (here: Here) => changeMeta(here.from, change);
  const parts = (change: (part: Part) => Part) => meta((m) => ({ ...m, parts: m.parts.map(change) }));
  const swapped: Record<string, string> = { untracked: "worktree", worktree: "untracked" };
  table({
    "is not there": [
      (here) => rmSync(join(here.from, "meta.json")),
      plain,
      /from holds no checkpoint .*: name the folder/,
    ],
    "is no JSON": [(here) => spoil(here, "meta.json", (b) => b.subarray(0, -9)), plain, /meta\.json is not JSON/],
    "is of a newer format": [
      meta((m) => ({ ...m, version: 2, more: 1 })),
      plain,
      /format 2, newer .*: use a newer Hangar/,
    ],
    "has a field more": [meta((m) => ({ ...m, more: 2 })), plain, /meta\.json is not valid: Unrecognized key: "more"/],
    "lies about a size": [parts((p) => ({ ...p, size: p.size + 1 })), plain, /bytes instead of/],
    "lies about a digest": [parts((p) => ({ ...p, sha256: "0".repeat(64) })), plain, /another digest/],
    "lies about a name": [parts((p) => ({ ...p, name: swapped[p.name] ?? p.name })), plain, /holds more than it says/],
    "leads elsewhere": [
      parts((p) => ({ ...p, file: "../outside/keep" })),
      plain,
      /meta\.json is not valid: parts\.0\.file/,
    ],
    "lacks a part": [
      meta((m) => ({ ...m, parts: m.parts.filter((p) => p.name !== "worktree") })),
      plain,
      /no part worktree/,
    ],
    "is sealed and has another byte": [
      (here) => spoil({ from: join(here.folder, "sealed") }, "meta.json.age", (b) => flipped(b, -20)),
      [...sealed, "--identity", "key"],
      /its bytes were changed/,
    ],
  });
});

describe("in a store", () => {
  /** As the coordinator has it: parts in an older checkpoint's folder, and a marker. */
  function stored(): { here: Here; args: string[]; marker: Record<string, unknown> & { meta: object }; at: string } {
    const here = fresh();
    const [older, newer] = ["ckp-0193f0000000abcde", "ckp-0193f0000001abcde"].map((name) => join(here.folder, name));
    renameSync(here.from, newer!);
    mkdirSync(older!);
    changeMeta(newer!, (m) => ({
      ...m,
      parts: m.parts.map((part) => {
        if (part.name !== "untracked") return part;
        renameSync(join(newer!, part.file), join(older!, part.file));
        return { ...part, from: "ckp-0193f0000000abcde" };
      }),
    }));
    const bytes = readFileSync(join(newer!, "meta.json"));
    const marker = {
      version: 1,
      session: "ses-00000001",
      checkpoint: "ckp-0193f0000001abcde",
      generation: 1,
      nonce: "0".repeat(32),
      committed_at: "2026-01-01T00:00:00.000Z",
      meta: { file: "meta.json", size: bytes.length, sha256: digest(bytes) },
      parts: [],
      record: "",
      mac: "0".repeat(64),
    };
    const at = join(newer!, "commit.json");
    writeFileSync(at, JSON.stringify(marker));
    return { here, args: ["restore", "--from", newer!, "--repo", "repo", "--home", "home"], marker, at };
  }

  test("a checkpoint is restored from its folder there, and is a parent", () => {
    const { here, args } = stored();
    const parent = ["snapshot", "--repo", "repo", "--home", "home", "--out", "next", "--parent", args[2]!];
    expect(agent(here, ...args)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
    shell(here, "echo new >new");
    expect(agent(here, ...parent)).toMatchObject({ code: 0, stderr: "" });
    shell(here, `rm -rf ckp-* repo home/.claude; git clone -q "file://${here.origin}" repo`, here.folder);
    const back = ["restore", "--from", "next", "--repo", "repo", "--home", "home"];
    expect(agent(here, ...back)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
    expect(readFileSync(join(here.repo, "u"), "utf8")).toBe("u\n");
  });

  test("a marker that is none, or of another meta, is refused", () => {
    const { here, args, marker, at } = stored();
    for (const other of ["{", "{}", JSON.stringify({ ...marker, meta: { ...marker.meta, sha256: "0".repeat(64) } })]) {
      writeFileSync(at, other);
      refused(here, args, /damaged or forged: commit\.json does not fit meta\.json: use an older checkpoint/);
    }
  });

  test("a part that lies in neither folder is named", () => {
    const { here, args } = stored();
    rmSync(join(here.folder, "ckp-0193f0000000abcde"), { recursive: true });
    refused(here, args, /untracked\.tar\.zst is not there \(.*ckp-0193f0000000abcde/);
  });
});

describe("an archive with", () => {
  const body = Buffer.from("x");
  const hostile: Record<string, [Buffer, RegExp]> = {
    "an absolute path": [forged({ head: header("/tmp/hangar-evil", undefined, 1), body }), /name is absolute/],
    "..": [forged({ head: header("../outside/evil", undefined, 1), body }), /piece \("\.\.\/outside\/evil"\)/],
    "a way through a link": [
      forged({ head: header("way", typed("2", "../outside")) }, { head: header("way/evil", undefined, 1), body }),
      /lies behind a link|a conversation is missing|holds what it may not|holds more/,
    ],
    "a device": [forged({ head: header("a", typed("3")) }), /type "3", which is never unpacked/],
    "a hard link out of the target": [forged({ head: header("a", typed("1", "../outside/keep")) }), /type "1", which/],
    "no end": [forged({ head: header("a"), body }).subarray(0, -6), /damaged or cut off \(zstd\)/],
    "no zstd": [Buffer.from("not an archive"), /damaged or cut off \(zstd\)/],
  };
  const parts = ["untracked", "worktree", "agent", "git-state"];
  const cases = Object.entries(hostile).flatMap(([name, [bytes, message]]) =>
    parts.map((part) => [name, part, bytes, message] as const),
  );
  test.each(cases)("%s, in %s", (_name, part, bytes, message) => {
    const here = fresh();
    forge(here.from, part, bytes);
    refused(here, plain, message);
  });

  // Unpacking them takes half a minute and ten gigabytes of disk.
  test.each([
    ["untracked", "u", /holds more than it says/],
    ["agent", CONVERSATION, /holds more or less than it says/],
    ["git-state", "state.json", /holds what it may not/],
  ] as const)("ten gigabytes of zeros, in %s", async (part, name, message) => {
    const here = fresh();
    forge(here.from, part, await tenGigabytes(file(name, "")));
    const started = performance.now();
    refused(here, plain, message);
    expect(performance.now() - started).toBeLessThan(10_000);
  });
  test.each(["review.json", "wip.patch"])("ten gigabytes of zeros, in %s, which is for people", async (part) => {
    const here = fresh();
    forge(here.from, part, await tenGigabytes(file("u", "")));
    const started = performance.now();
    expect(agent(here, ...plain)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
    expect(performance.now() - started).toBeLessThan(10_000);
  });
});
