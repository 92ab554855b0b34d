// oxlint-disable no-array-fill-with-reference-type -- `fill` is git's word here, not an array's
/** With the real git and its own `credential-store` helper, in a home folder of its own. */
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { hostCredentials } from "../../src/credentials/git-credential.ts";
import type { HostCredentials } from "../../src/session/ports.ts";

const REPO = "https://git.example.com/org/repo.git";
let dir: string;
let config: string;
let host: HostCredentials;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "hangar-credential-"));
  await mkdir(join(dir, "home"));
  config = `[credential]\n\thelper = store --file ${dir}/stored\n`;
  await writeFile(join(dir, "home/.gitconfig"), config);
  await writeFile(
    join(dir, "stored"),
    [
      "https://me:top%40secret@git.example.com",
      "https://other:o@other.example.com",
      "https://ported:p@git.example.com:8443",
    ].join("\n") + "\n",
  );
  const env = { PATH: process.env["PATH"], HOME: join(dir, "home"), GIT_CONFIG_NOSYSTEM: "1", GIT_DIR: "/nowhere" };
  host = hostCredentials({ env, timeoutMs: 20_000 });
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const ask = (over: { protocol?: string; host?: string; path?: string | null } = {}, repo = REPO) =>
  host.fill({ protocol: "https", host: "git.example.com", path: null, ...over }, repo);

it("answers for the session's own remote", async () => {
  expect(await ask()).toEqual({ username: "me", password: "top@secret" });
  expect(await ask({ path: "org/repo.git" })).toEqual({ username: "me", password: "top@secret" });
  expect(await ask({ path: "org/repo.git/info/lfs" })).toEqual({ username: "me", password: "top@secret" });
  expect(await ask({ host: "git.example.com:8443" }, "https://git.example.com:8443/org/repo.git")).toEqual({
    username: "ported",
    password: "p",
  });
});

describe("refuses another place than the session's remote", () => {
  it.each([
    ["another host", { host: "other.example.com" }, REPO],
    ["another port", { host: "git.example.com:8443" }, REPO],
    ["another protocol", { protocol: "http" }, REPO],
    ["another repository of the host", { path: "org/other.git" }, REPO],
    ["one whose name begins like it", { path: "org/repo.git2" }, REPO],
    ["one that a path leads to", { path: "org/repo.git/../other.git" }, REPO],
    ["a line of its own in the request", { host: "git.example.com\nhost=other.example.com" }, REPO],
    ["an ssh remote", { protocol: "ssh" }, "ssh://git.example.com/org/repo.git"],
    ["a local remote", {}, "/srv/repo.git"],
    [
      "a remote with a line of its own",
      { path: null },
      "https://git.example.com/org%0ahost=other.example.com/repo.git",
    ],
  ])("%s", async (_, over, repo) => {
    await expect(ask(over, repo)).rejects.toMatchObject({ code: "forbidden" });
  });
});

it("gives the path's own credential where this machine's git tells them apart by path", async () => {
  await writeFile(join(dir, "home/.gitconfig"), `${config}\tuseHttpPath = true\n`);
  await writeFile(
    join(dir, "stored"),
    "https://wrong:w@git.example.com/org/other.git\nhttps://right:r@git.example.com/org/repo.git\n",
  );
  expect(await ask()).toEqual({ username: "right", password: "r" });
});

it("takes the user that the remote names", async () => {
  await writeFile(join(dir, "stored"), "https://a:1@git.example.com\nhttps://b:2@git.example.com\n");
  expect(await ask({}, "https://b@git.example.com/org/repo.git")).toEqual({ username: "b", password: "2" });
});

it("has none, and asks nobody, where nothing is stored", async () => {
  await writeFile(join(dir, "stored"), "");
  const askpass = join(dir, "askpass");
  await writeFile(askpass, `#!/bin/sh\necho "$1" >> ${dir}/asked\necho typed\n`);
  await chmod(askpass, 0o755);
  await writeFile(join(dir, "home/.gitconfig"), `${config}[core]\n\taskPass = ${askpass}\n`);
  expect(await ask()).toBeNull();
  await expect(readFile(join(dir, "asked"))).rejects.toThrow("ENOENT");
});

it("gives up on a helper that hangs, and ends it", async () => {
  const helper = join(dir, "helper");
  await writeFile(helper, `#!/bin/sh\necho $$ > ${dir}/pid\nexec sleep 1000\n`);
  await chmod(helper, 0o755);
  await writeFile(join(dir, "home/.gitconfig"), `[credential]\n\thelper = ${helper}\n`);
  const env = { PATH: process.env["PATH"], HOME: join(dir, "home"), GIT_CONFIG_NOSYSTEM: "1" };
  const impatient = hostCredentials({ env, timeoutMs: 1500 });
  expect(await impatient.fill({ protocol: "https", host: "git.example.com", path: null }, REPO)).toBeNull();
  const pid = Number(await readFile(join(dir, "pid"), "utf8"));
  for (let i = 0; ; i++) {
    try {
      process.kill(pid, 0);
    } catch {
      break;
    }
    if ((await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ") Z")).includes(") Z")) break;
    expect(i).toBeLessThan(500);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});
