/** scripts/setup.sh over a folder of its own, with programs that stand in for apt-get and npm and write down how they were called. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const ROOT = new URL("../../../", import.meta.url).pathname;
const TOOLS = ["sh", "cat", "cksum", "dirname", "id", "uname", "tr", "grep", "paste", "env", "rm", "chmod", "node"];
const NEEDED = ["redis-server", "tmux", "bwrap", "git", "age"];
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "hangar-setup-"));
  for (const name of ["scripts", "node_modules/.bin", "bin"]) mkdirSync(join(dir, name), { recursive: true });
  copyFileSync(join(ROOT, "scripts/setup.sh"), join(dir, "scripts/setup.sh"));
  writeFileSync(join(dir, "package-lock.json"), "{}");
  for (const name of TOOLS) {
    const at = (process.env["PATH"] ?? "")
      .split(":")
      .map((folder) => join(folder, name))
      .find(existsSync);
    symlinkSync(at as string, join(dir, "bin", name));
  }
  program("npm", 'mkdir -p node_modules/.bin; cp "$0" node_modules/.bin/node');
  for (const name of ["mkdir", "cp"]) symlinkSync(`/bin/${name}`, join(dir, "bin", name));
});
afterEach(() => rmSync(dir, { recursive: true }));

function program(name: string, does = ""): void {
  const path = join(dir, "bin", name);
  writeFileSync(path, `#!/bin/sh\necho "${name} $*" >>"${dir}/calls"\n${does}\n`);
  chmodSync(path, 0o755);
}
const have = (...names: string[]): void => names.forEach((name) => program(name));
const calls = (): string[] =>
  existsSync(join(dir, "calls")) ? readFileSync(join(dir, "calls"), "utf8").trimEnd().split("\n") : [];
function setup(env: Record<string, string> = {}, ...args: string[]) {
  rmSync(join(dir, "calls"), { force: true });
  const ran = spawnSync("/bin/sh", [join(dir, "scripts/setup.sh"), ...args], {
    encoding: "utf8",
    env: { PATH: join(dir, "bin"), POLICY_RC_D: join(dir, "policy-rc.d"), ...env },
  });
  return { code: ran.status, said: ran.stderr + ran.stdout };
}
/** Does what it is told: each named package's program is there afterwards. */
const APT = `case "$1" in install) [ -e "$POLICY_RC_D" ] && echo "no services" >>"$CALLS"; for p in "$@"; do case $p in -*|install) ;; bubblewrap) p=bwrap ;; esac; case $p in -*|install) ;; *) cp "$0" "\${0%/*}/$p" ;; esac; done ;; esac`;

test("what is installed already is not installed again", () => {
  have(...NEEDED);
  expect(setup()).toMatchObject({ code: 0 });
  expect(calls()).toEqual(["npm ci --omit=dev --no-audit --no-fund --loglevel=error"]);
  expect(setup()).toEqual({ code: 0, said: "" });
  expect(calls()).toEqual([]);
  writeFileSync(join(dir, "package-lock.json"), "{ }");
  expect(setup().code).toBe(0);
  expect(calls()).toHaveLength(1);
});

test("tests need the development packages too, and what has them needs no fewer", () => {
  have(...NEEDED, "ps", "zstd", "kubectl");
  setup();
  expect(setup({}, "--test").code).toBe(0);
  expect(calls()).toEqual(["npm ci --no-audit --no-fund --loglevel=error"]);
  expect(setup()).toEqual({ code: 0, said: "" });
  expect(setup({}, "--everything")).toEqual({ code: 2, said: "setup: unknown option --everything\n" });
});

test.runIf(process.platform === "linux" && process.getuid?.() === 0)(
  "what is missing comes through apt, with no service started by it",
  () => {
    have("git", "age");
    program("apt-get", APT);
    const { code, said } = setup({ CALLS: join(dir, "calls") });
    expect(code, said).toBe(0);
    expect(said).toContain("setup: installing with apt: redis-server tmux bubblewrap\n");
    expect(calls().slice(1)).toEqual([
      "apt-get install -y -qq --no-install-recommends redis-server tmux bubblewrap",
      "no services",
    ]);
    expect(existsSync(join(dir, "policy-rc.d"))).toBe(false);
  },
);

test.runIf(process.platform === "linux" && process.getuid?.() === 0)(
  "a list of packages that is out of date is brought up to date first",
  () => {
    have("git", "age", "tmux", "bwrap");
    program(
      "apt-get",
      `if [ "$1" = install ] && [ ! -e "$CALLS.updated" ]; then exit 100; fi; [ "$1" = update ] && : >"$CALLS.updated"; ${APT}`,
    );
    expect(setup({ CALLS: join(dir, "calls") }).code).toBe(0);
    expect(
      calls()
        .slice(1)
        .map((call) => call.split(" ").slice(0, 2).join(" ")),
    ).toEqual(["apt-get install", "apt-get update", "apt-get install", "no services"]);
  },
);

test("where it may not install, one line says what to install; without what only some things need, it goes on", () => {
  have("git", "age", "tmux", "bwrap");
  program("apt-get", "exit 1");
  const without = setup({ NO_SYSTEM_PACKAGES: "1" });
  expect(without.code).toBe(1);
  expect(without.said.trimEnd().split("\n").at(-1)).toMatch(
    /^setup: please install what is missing, then try again: (?:sudo apt-get install redis-server|brew install redis)$/,
  );
  expect(calls().some((call) => call.startsWith("apt-get"))).toBe(false);
  have("redis-server");
  rmSync(join(dir, "bin/tmux"));
  const some = setup({ NO_SYSTEM_PACKAGES: "1" });
  expect(some).toMatchObject({
    code: 0,
    said: expect.stringMatching(/^setup: some programs are missing; for all that Hangar can do: .* tmux\n$/),
  });
  expect(setup({ NO_SYSTEM_PACKAGES: "1" }, "--test").code).toBe(1);
});

test("a failing apt or npm is a failure with one line", () => {
  have("git", "age", "tmux", "bwrap");
  program("apt-get", "exit 100");
  expect(setup({ CALLS: join(dir, "calls") })).toMatchObject({
    code: 1,
    said: expect.stringContaining("please install what is missing"),
  });
  rmSync(join(dir, "node_modules"), { recursive: true });
  program("npm", "exit 1");
  expect(setup()).toMatchObject({ code: 1, said: expect.stringMatching(/setup: npm ci failed: see above\n$/) });
});
