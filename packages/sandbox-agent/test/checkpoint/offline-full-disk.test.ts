/** A disk that is full: `snapshot` and `restore` say so, and leave nothing on it. */
import { execFileSync, spawnSync } from "node:child_process";
import { beforeAll, expect, test } from "vitest";
import { agent, MAIN } from "./command.ts";
import { place, type Place, shell } from "./support.ts";

let here: Place;

/** The checkpoint takes some 8 MB, half of it in the bundle. */
beforeAll(() => {
  here = place();
  shell(
    here,
    `head -c 4000000 /dev/urandom >big; git add big; git commit -qm big; head -c 2000000 /dev/urandom >u; cp u a.txt
     mkdir -p $HOME/.claude/projects/-w; head -c 1000000 /dev/urandom | base64 >$HOME/.claude/projects/-w/11111111-1111-4111-8111-111111111111.jsonl`,
  );
  expect(agent(here, "snapshot", "--repo", "repo", "--home", "home", "--out", "from").code).toBe(0);
});

/** Runs it where /mnt is a disk of so many bytes. `left` is what lies on it then. */
function onDiskOf(
  bytes: number,
  args: readonly string[],
): { code: number; stdout: string; stderr: string; left: string } {
  const view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", here.folder, here.folder];
  const script = `"$@" >out.txt 2>err.txt; code=$?; find /mnt -mindepth 1; exit $code`;
  const run = spawnSync(
    "env",
    [
      "bwrap",
      ...view,
      "--size",
      String(bytes),
      "--tmpfs",
      "/mnt",
      "sh",
      "-c",
      script,
      "sh",
      process.execPath,
      MAIN,
      ...args,
    ],
    {
      cwd: here.folder,
      env: { PATH: process.env["PATH"] ?? "", HOME: here.home, TMPDIR: here.folder },
      encoding: "utf8",
    },
  );
  const read = (name: string): string => execFileSync("cat", [name], { cwd: here.folder, encoding: "utf8" });
  return { code: run.status ?? -1, stdout: read("out.txt"), stderr: read("err.txt"), left: run.stdout };
}

const snapshot = ["snapshot", "--repo", "repo", "--home", "home", "--out"];
const restore = ["restore", "--from", "from", "--home"];

test.each([
  ["a snapshot, with no room at all", 4096, [...snapshot, "/mnt/out"]],
  ["a snapshot, in its bundle", 3_000_000, [...snapshot, "/mnt/out"]],
  ["a snapshot, in its bundle's proof", 6_000_000, [...snapshot, "/mnt/out"]],
  ["a snapshot, in its archives", 11_000_000, [...snapshot, "/mnt/out"]],
  ["a snapshot, in a new folder of folders", 3_000_000, [...snapshot, "/mnt/a/b/out"]],
  ["a snapshot, on a disk of its own", 7_000_000, [...snapshot, "/mnt"]],
  ["a restore, with no room at all", 4096, [...restore, "/mnt/home", "--repo", "/mnt/repo"]],
  ["a restore, in its archives", 2_000_000, [...restore, "/mnt/home", "--repo", "/mnt/repo"]],
  ["a restore, in its bundle", 7_000_000, [...restore, "/mnt/home", "--repo", "/mnt/repo"]],
  ["a restore, in its files", 10_000_000, [...restore, "/mnt/home", "--repo", "/mnt/repo"]],
  ["a restore, in its conversation", 1_000_000, [...restore, "/mnt/home", "--repo", "new"]],
] as const)("%s", (_name, bytes, args) => {
  const before = execFileSync("find", [".", "-not", "-name", "*.txt"], { cwd: here.folder, encoding: "utf8" });
  const run = onDiskOf(bytes, args);
  expect.soft(run).toMatchObject({ code: 1, stdout: "", left: "" });
  expect.soft(run.stderr).toMatch(/^hangar-agent: .*full.*: free some space and try again\n$/);
  expect
    .soft(execFileSync("find", [".", "-not", "-name", "*.txt"], { cwd: here.folder, encoding: "utf8" }))
    .toBe(before);
});

test("with room, both succeed there", () => {
  expect(onDiskOf(100_000_000, [...snapshot, "/mnt/out"])).toMatchObject({ code: 0, stderr: "" });
  expect(onDiskOf(100_000_000, [...restore, "/mnt/home", "--repo", "/mnt/repo"])).toMatchObject({
    code: 0,
    stderr: "",
  });
});
