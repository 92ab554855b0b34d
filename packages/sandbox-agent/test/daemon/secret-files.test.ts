import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { CONVERSATION_ROOTS } from "../../src/checkpoint/conversation.ts";
import { linkSecretFiles, writeSecretFiles } from "../../src/secret-files.ts";

let root: string;
let home: string;
let cwd: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "hangar-secret-files-"));
  [home, cwd] = [join(root, "home"), join(root, "workspace", "repo")];
  for (const folder of [home, cwd]) mkdirSync(folder, { recursive: true });
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const start = (...files: { name: string; path: string; value: string; mode?: string }[]): void => {
  const input = {
    home,
    cwd,
    roots: CONVERSATION_ROOTS,
    files: files.map(({ name, path, value, mode = "0600" }) => ({ name, path, value, mode })),
  };
  writeSecretFiles(input);
  linkSecretFiles(input);
};

test("a folder that another start left has the new values, and nothing of the earlier ones", () => {
  start({ name: "A", path: "~/.config/a", value: "one" }, { name: "B", path: "b.txt", value: "two" });
  expect(readFileSync(join(home, ".config/a"), "utf8")).toBe("one");
  expect(lstatSync(join(cwd, "b.txt")).isSymbolicLink()).toBe(true);
  start({ name: "A", path: "~/.config/elsewhere", value: "rotated", mode: "0400" });
  expect(readFileSync(join(home, ".config/elsewhere"), "utf8")).toBe("rotated");
  expect(statSync(join(home, ".config/elsewhere")).mode & 0o777).toBe(0o400);
  expect(existsSync(join(home, ".config/a"))).toBe(false);
  expect(readdirSync(cwd)).toEqual([]);
  expect(readdirSync(join(home, ".hangar/secrets"))).toEqual(["A"]);
});

test("what somebody put in a link's place since is theirs and stays, until it is asked for again", () => {
  start({ name: "A", path: "~/a", value: "one" });
  rmSync(join(home, "a"));
  writeFileSync(join(home, "a"), "mine");
  start();
  expect(readFileSync(join(home, "a"), "utf8")).toBe("mine");
  start({ name: "A", path: "~/a", value: "two" });
  expect(readFileSync(join(home, "a"), "utf8")).toBe("two");
});

test.each([
  ["a folder is there", "~/taken", () => mkdirSync(join(home, "taken")), /there is a folder/],
  ["a file is where its folder would be", "taken/x", () => writeFileSync(join(cwd, "taken"), ""), /no|none/],
  ["a link leads out", "out/x", () => symlinkSync(root, join(cwd, "out")), /leads elsewhere/],
  [
    "a link leads into .git",
    "in/x",
    () => {
      mkdirSync(join(cwd, ".git"));
      symlinkSync(".git", join(cwd, "in"));
    },
    /into \.git/,
  ],
  ["conversations are there", "~/.codex/sessions/x.jsonl", () => undefined, /conversations/],
])("refuses where %s, and names the secret", (_, path, prepare, why) => {
  prepare();
  expect(() => start({ name: "TOKEN", path, value: "s3cret" })).toThrow(why);
  expect(() => start({ name: "TOKEN", path, value: "s3cret" })).toThrow(/The secret TOKEN cannot be the file/);
});
