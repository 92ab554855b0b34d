import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Driver, SandboxSpec } from "../../src/driver/driver.ts";
import { createLocalDriver, type LocalDriverOptions } from "../../src/driver/local.ts";
import { processesOf } from "../../src/driver/local-plain.ts";
import { readRun } from "../../src/driver/local-sandbox.ts";
import { identify, isAlive } from "../../src/embedded/process.ts";
import { AGENT } from "./stand-in-agent.ts";

const LOCAL = new URL("../../src/driver/local.ts", import.meta.url).href;
const SESSION = "ses-0a1b2c3d";
let dir: string;
let dataDir: string;
let userHome: string;
const drivers: Driver[] = [];

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), "hangar-local-")));
  dataDir = join(dir, "data");
  userHome = join(dir, "user");
  mkdirSync(join(userHome, ".claude"), { recursive: true });
  writeFileSync(join(userHome, ".claude/secret"), "the user's own");
  mkdirSync(join(dir, "install"));
  writeFileSync(join(dir, "install/agent.mjs"), AGENT);
});
afterEach(async () => {
  for (const driver of drivers.splice(0)) {
    for (const { id } of await driver.list()) await driver.destroy(id);
    await driver.close();
  }
  await rm(dir, { recursive: true, force: true });
});

async function open(more: Partial<LocalDriverOptions> = {}): Promise<Driver> {
  const driver = await createLocalDriver({ ...optionsOf(), ...more });
  drivers.push(driver);
  return driver;
}
const optionsOf = (): LocalDriverOptions => ({
  dataDir,
  env: { PATH: process.env["PATH"], LANG: "C.UTF-8", HANGAR_TOKEN: "administrator", ANTHROPIC_API_KEY: "of the user" },
  userHome,
  agent: join(dir, "install/agent.mjs"),
});
const spec = (generation: number, script = ":", more: Partial<SandboxSpec> = {}): SandboxSpec => ({
  id: `sbx-0a1b2c3d-g${generation}`,
  session: SESSION,
  generation,
  repoFolder: "repo",
  remote: null,
  adopt: null,
  snapshot: null,
  kubernetes: null,
  ...more,
  env: { SCRIPT: script, HANGAR_AGENT_TOKEN: "t", ...more.env },
});
const folderOf = (driver: Driver, id: string): string =>
  driver.workspace(SESSION) === "/workspace" ? join(dataDir, "sandboxes", id) : join(dataDir, "sandboxes", SESSION);

/** Creates a sandbox and answers what its script printed. */
async function run(driver: Driver, one: SandboxSpec): Promise<string> {
  await driver.create(one);
  return await outputOf(folderOf(driver, one.id));
}

/** What the script of the sandbox in `folder` printed, once it has ended. */
async function outputOf(folder: string): Promise<string> {
  const done = join(folder, "state/done");
  const isDone = (): boolean => existsSync(done) && readFileSync(done, "utf8") === "run";
  await vi.waitUntil(isDone, { timeout: 30_000, interval: 10 });
  return readFileSync(join(folder, "state/out"), "utf8");
}

for (const isolation of ["auto", "plain"] as const) {
  describe(isolation === "auto" ? "with bubblewrap" : "plain folders", () => {
    test("a sandbox starts once, is listed, and ends with every process and its folder", async () => {
      const driver = await open({ isolation });
      expect(driver.isolation).toMatch(
        isolation === "auto" ? /^bubblewrap: / : /^none: .* can reach all of your files/,
      );
      await run(
        driver,
        spec(
          1,
          "mkdir -p $HANGAR_AGENT_WORKSPACE/a/b && touch $HANGAR_AGENT_WORKSPACE/a/b/c && chmod 0555 $HANGAR_AGENT_WORKSPACE/a/b $HANGAR_AGENT_WORKSPACE/a",
        ),
      );
      const folder = folderOf(driver, "sbx-0a1b2c3d-g1");
      const { main } = readRun(folder) as NonNullable<ReturnType<typeof readRun>>;
      expect(await driver.create(spec(1))).toEqual({ adopted: false });
      expect(readRun(folder)?.main).toEqual(main);
      expect(await driver.list()).toMatchObject([
        { id: "sbx-0a1b2c3d-g1", session: SESSION, generation: 1, state: "running" },
      ]);
      const processes = isolation === "plain" ? processesOf(folder, main) : descendants(main.pid);
      expect(processes.length).toBeGreaterThanOrEqual(2);

      await driver.destroy("sbx-0a1b2c3d-g1");
      expect(processes.filter((pid) => identify(pid))).toEqual([]);
      expect(existsSync(folder)).toBe(false);
      expect(await driver.list()).toEqual([]);
      expect(await driver.status("sbx-0a1b2c3d-g1")).toBeNull();
      await driver.destroy("sbx-0a1b2c3d-g1");
      await driver.stop("sbx-0a1b2c3d-g1");
      await driver.close();
      expect(readdirSync(join(dataDir, "sandboxes")).filter((name) => !name.startsWith(".lock"))).toEqual([]);
    });

    test("it gets a fresh environment with every path inside the sandbox, and nothing of the user's", async () => {
      const driver = await open({ isolation });
      const env = Object.fromEntries(
        (await run(driver, spec(1, "env -0", { env: { GIVEN: "a\nb" } }))).split("\0").map((line) => {
          const at = line.indexOf("=");
          return [line.slice(0, at), line.slice(at + 1)];
        }),
      );
      expect(env).toMatchObject({ GIVEN: "a\nb", HANGAR_AGENT_TOKEN: "t", LANG: "C.UTF-8" });
      expect(env["HANGAR_AGENT_WORKSPACE"]).toBe(driver.workspace(SESSION));
      expect(env).not.toHaveProperty("HANGAR_TOKEN");
      expect(env).not.toHaveProperty("ANTHROPIC_API_KEY");
      expect(env).not.toHaveProperty("SSH_AUTH_SOCK");
      const home = isolation === "plain" ? join(dataDir, "sandboxes", SESSION, "home") : "/home/hangar";
      expect(env["HOME"]).toBe(home);
      for (const name of ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"])
        expect(env[name]).toMatch(new RegExp(`^${home}/`));
    });

    test("it commits under the user's name, and has nothing else of the user's git configuration", async () => {
      const env = { ...optionsOf().env, HOME: userHome };
      writeFileSync(
        join(userHome, ".gitconfig"),
        '[user]\n name = "Ann \\"O\\" \\\\ Dev"\n email = a@b.c\n[core]\n pager = evil\n',
      );
      const driver = await open({ isolation, env });
      expect(await run(driver, spec(1, "git config --global --list"))).toBe(
        'user.name=Ann "O" \\ Dev\nuser.email=a@b.c\n',
      );
    });

    test("it outlives its coordinator and is found again; an ended one keeps its folder", async () => {
      const first = await open({ isolation });
      const coordinator = spawn(
        process.execPath,
        [
          "--input-type=module",
          "-e",
          `import { createLocalDriver } from ${JSON.stringify(LOCAL)};
           const driver = await createLocalDriver(${JSON.stringify({ ...optionsOf(), isolation })});
           await driver.create(${JSON.stringify(spec(3, "echo work > $HANGAR_AGENT_WORKSPACE/kept"))});
           console.log("up"); setInterval(() => {}, 1000);`,
        ],
        { stdio: ["ignore", "pipe", "inherit"] },
      );
      await once(coordinator.stdout, "data");
      coordinator.kill("SIGKILL");
      await once(coordinator, "exit");
      const id = "sbx-0a1b2c3d-g3";
      await vi.waitUntil(() => existsSync(join(folderOf(first, id), "state/done")), { timeout: 30_000 });

      const second = await open({ isolation });
      const exited: string[] = [];
      second.onChange((which) => exited.push(which));
      expect((await second.status(id))?.state).toBe("running");
      expect(await second.canAdopt(id)).toBe(false);
      process.kill((readRun(folderOf(second, id)) as { main: { pid: number } }).main.pid, "SIGKILL");
      await vi.waitUntil(() => exited.length > 0, { timeout: 30_000 });
      expect(exited).toEqual([id]);
      expect((await second.status(id))?.state).toBe("left");
      expect(await second.canAdopt(id)).toBe(true);

      // Its folder is taken over by the next start, at the same inner path.
      const next = spec(4, "cat $HANGAR_AGENT_WORKSPACE/kept; ls $HANGAR_AGENT_STATE", { adopt: id });
      expect(await second.create(next)).toEqual({ adopted: true });
      expect(await second.create(next)).toEqual({ adopted: true });
      await vi.waitUntil(() => existsSync(join(folderOf(second, next.id), "state/done")), { timeout: 30_000 });
      expect(readFileSync(join(folderOf(second, next.id), "state/out"), "utf8")).toBe("work\n");
      expect((await second.list()).map((one) => one.id)).toEqual([next.id]);
    });

    test("a daemon that ends is told at once, with its last words", async () => {
      const driver = await open({ isolation });
      const exited: string[] = [];
      driver.onChange((id) => exited.push(id));
      await driver.create(spec(1, ":", { env: { EXIT: "7" } }));
      await vi.waitUntil(() => exited.length > 0, { timeout: 30_000 });
      expect(await driver.list()).toMatchObject([{ state: "left", detail: "exit 7: last words" }]);
      await driver.destroy("sbx-0a1b2c3d-g1");
      expect(exited).toEqual(["sbx-0a1b2c3d-g1"]);
    });

    test("a new start without a take-over finds nothing of the leftover, which stays by its own id", async () => {
      const driver = await open({ isolation });
      await run(driver, spec(1, "echo old > $HANGAR_AGENT_WORKSPACE/old; echo old > $HOME/old"));
      await driver.stop("sbx-0a1b2c3d-g1");
      expect(await run(driver, spec(2, "ls $HANGAR_AGENT_WORKSPACE $HOME"))).not.toContain("old\n");
      const states = new Map((await driver.list()).map((one) => [one.id, one.state]));
      expect(states).toEqual(
        new Map([
          ["sbx-0a1b2c3d-g1", "left"],
          ["sbx-0a1b2c3d-g2", "running"],
        ]),
      );
      await driver.destroy("sbx-0a1b2c3d-g2");
      // The leftover can still be taken over.
      expect(await run(driver, spec(3, "cat $HANGAR_AGENT_WORKSPACE/old", { adopt: "sbx-0a1b2c3d-g1" }))).toBe("old\n");
    });

    test("two replicas that create the same sandbox make one", async () => {
      const [a, b] = [await open({ isolation }), await open({ isolation })];
      await Promise.all([a.create(spec(1)), b.create(spec(1)), a.create(spec(1))]);
      expect(await a.list()).toHaveLength(1);
      const folder = folderOf(a, "sbx-0a1b2c3d-g1");
      const { main } = readRun(folder) as { main: { pid: number } };
      // A child that the daemon has just forked has the daemon's command line until it is something else.
      await outputOf(folder);
      expect(
        execFileSync("pgrep", ["-fc", `${join(dir, "install/agent.mjs")} run$`], { encoding: "utf8" }).trim(),
      ).toMatch(isolation === "plain" ? /^1$/ : /^[123]$/);
      expect(main.pid).toBeGreaterThan(0);
    });
  });
}

test("a reused pid is not taken for the sandbox, nor killed", async () => {
  const driver = await open();
  await run(driver, spec(1));
  const folder = folderOf(driver, "sbx-0a1b2c3d-g1");
  await driver.stop("sbx-0a1b2c3d-g1");
  const innocent = spawn("/bin/sleep", ["1000"]);
  await once(innocent, "spawn");
  const pid = innocent.pid as number;
  const run1 = JSON.parse(readFileSync(join(folder, "run.json"), "utf8"));
  writeFileSync(join(folder, "run.json"), JSON.stringify({ ...run1, main: { ...run1.main, pid }, outer: null }));
  expect((await driver.status("sbx-0a1b2c3d-g1"))?.state).toBe("left");
  await driver.destroy("sbx-0a1b2c3d-g1");
  expect(isAlive(identify(pid) as { pid: number; started: string })).toBe(true);
  innocent.kill("SIGKILL");
});

test("what a killed coordinator was removing is removed by the next one; a half-made folder is no sandbox", async () => {
  const trash = join(dataDir, "sandboxes/.trash-x/a");
  mkdirSync(trash, { recursive: true });
  writeFileSync(join(trash, "f"), "");
  chmodSync(trash, 0o500);
  mkdirSync(join(dataDir, "sandboxes/sbx-0a1b2c3d-g1/workspace"), { recursive: true });
  writeFileSync(join(dataDir, "sandboxes/sbx-0a1b2c3d-g1/workspace/half"), "");
  const driver = await open();
  expect(await driver.list()).toEqual([]);
  expect(await run(driver, spec(1, "ls /workspace"))).toBe("");
  await driver.close();
  expect(existsSync(join(dataDir, "sandboxes/.trash-x"))).toBe(false);
});

test("a log over its bound is cut while the daemon goes on writing to it", async () => {
  const driver = await open();
  await run(
    driver,
    spec(
      1,
      "head -c 9000000 /dev/zero | tr '\\0' x >&2; (sleep 0.3; while :; do echo tick >&2; sleep 0.05; done) >/dev/null &",
    ),
  );
  const log = join(folderOf(driver, "sbx-0a1b2c3d-g1"), "log");
  await driver.list();
  expect(statSync(log).size).toBeLessThan(1_000_000);
  expect(statSync(`${log}.1`).size).toBe(1024 * 1024);
  await vi.waitUntil(() => /^(?:x*)(?:tick\n)+$/.test(readFileSync(log, "utf8")), { timeout: 30_000 });
});

describe("what a sandbox with bubblewrap sees", () => {
  const look = async (script: string, more: Partial<SandboxSpec> = {}, options: Partial<LocalDriverOptions> = {}) => {
    const driver = await open(options);
    return await run(driver, spec(1, script, more));
  };

  test("not the user's home, Hangar's data or another sandbox; the system only to read", async () => {
    const store = join(dir, "install/store");
    mkdirSync(store);
    writeFileSync(join(store, "object"), "");
    mkdirSync(dataDir, { recursive: true });
    writeFileSync(join(dataDir, "vault.key"), "key");
    const driver = await open({ hidden: [store] });
    await run(driver, { ...spec(1), id: "sbx-ffffffff-g1", session: "ses-ffffffff" });
    const out = await run(
      driver,
      spec(
        1,
        `ls -A ${userHome} ${dataDir} ${store} ${join(dataDir, "sandboxes")} 2>&1; touch /usr/x /x ${dir}/install/x 2>&1; ps -eo args | grep -c "agent.mjs run"`,
      ),
    );
    expect(out).not.toContain(".claude");
    expect(out).not.toContain("vault.key");
    expect(out).not.toContain("object");
    expect(out).not.toContain("ffffffff");
    expect(out.match(/Read-only file system/g)).toHaveLength(3);
  });

  test("a data folder inside the checkout stays hidden", async () => {
    dataDir = join(dir, "install/data");
    mkdirSync(dataDir, { recursive: true });
    writeFileSync(join(dataDir, "vault.key"), "key");
    expect(await look(`ls -A ${dataDir}`)).toBe("");
  });

  test("programs in PATH folders of the user's home work, with their package and its neighbours", async () => {
    const modules = join(userHome, ".npm-global/lib/node_modules");
    mkdirSync(join(modules, "tool/bin"), { recursive: true });
    mkdirSync(join(modules, "neighbour"));
    mkdirSync(join(userHome, ".npm-global/bin"));
    writeFileSync(join(modules, "neighbour/word"), "works");
    writeFileSync(join(modules, "tool/bin/tool"), `#!/bin/sh\ncat ${modules}/neighbour/word\n`, { mode: 0o755 });
    symlinkSync("../lib/node_modules/tool/bin/tool", join(userHome, ".npm-global/bin/tool"));
    writeFileSync(join(userHome, ".npm-global/private"), "");
    const env = { PATH: `${join(userHome, ".npm-global/bin")}:${process.env["PATH"]}` };
    expect(await look(`tool; ls -A ${userHome} ${userHome}/.npm-global`, {}, { env })).toBe(
      `works${userHome}:\n.npm-global\n\n${userHome}/.npm-global:\nbin\nlib\n`,
    );
  });

  test("not Hangar's own programs, which npm puts in front of the user's", async () => {
    const bin = join(dir, "packages/sandbox-agent/bin");
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, "agent.mjs"), AGENT);
    const env = { PATH: `${join(dir, "node_modules/.bin")}:/usr/bin:/bin` };
    expect(await look('printf %s "$PATH"', {}, { env, agent: join(bin, "agent.mjs") })).toBe("/usr/bin:/bin");
  });

  test("a bare remote on this machine can be cloned and pushed to, its hooks and configuration not changed", async () => {
    const bare = join(dir, "origin.git");
    execFileSync("git", ["init", "-q", "--bare", bare]);
    await rm(join(bare, "hooks"), { recursive: true });
    const out = await look(
      `cd /workspace && git clone -q ${bare} r 2>&1; cd r && git -c user.name=a -c user.email=a commit -q --allow-empty -m x && git push -q origin HEAD:main 2>&1; echo > ${bare}/config 2>/dev/null || echo kept; echo exit > ${bare}/hooks/pre-receive`,
      { remote: `file://${bare}` },
    );
    expect(out).toContain("kept");
    expect(execFileSync("git", ["-C", bare, "log", "--format=%s", "main"], { encoding: "utf8" })).toBe("x\n");
    expect(readdirSync(join(bare, "hooks"))).toEqual([]);
  });

  test("of a checkout as remote only the repository, read-only; of a folder that is none nothing", async () => {
    const checkout = join(dir, "project");
    execFileSync("git", ["init", "-q", checkout]);
    execFileSync("git", [
      "-C",
      checkout,
      "-c",
      "user.name=a",
      "-c",
      "user.email=a",
      "commit",
      "-qm",
      "x",
      "--allow-empty",
    ]);
    writeFileSync(join(checkout, "private"), "");
    const script = `ls -A ${checkout}; git clone -q ${checkout} /workspace/r && git -C /workspace/r log --format=%s; touch ${checkout}/.git/x 2>/dev/null || echo kept`;
    expect(await look(script, { remote: checkout })).toBe(".git\nx\nkept\n");
    expect(await look(`ls -A ${userHome} 2>&1`, { ...spec(2), remote: userHome })).not.toContain(".claude");
  });

  test("the SSH agent only where the remote is an ssh one", async () => {
    const socket = join(dir, "agent.sock");
    const agent = createServer((connection) => connection.end("the agent"));
    agent.listen(socket);
    await once(agent, "listening");
    const env = { ...optionsOf().env, SSH_AUTH_SOCK: socket };
    const script = `echo "$SSH_AUTH_SOCK"; ${process.execPath} -e 'require("net").connect(process.env.SSH_AUTH_SOCK || "${socket}").on("error", (e) => console.log(e.code)).pipe(process.stdout)'`;
    expect(await look(script, { remote: "git@example.org:a/b.git" }, { env })).toBe(
      "/hangar/ssh-agent.sock\nthe agent",
    );
    const driver = drivers[0] as Driver;
    expect(await run(driver, { ...spec(2, script), remote: "https://example.org/a/b" })).toBe("\nENOENT\n");
    agent.close();
  });
});

test.runIf(process.getuid?.() === 0)("it works for an ordinary user too", async () => {
  const source = `import { createLocalDriver } from ${JSON.stringify(LOCAL)};
    const driver = await createLocalDriver(${JSON.stringify(optionsOf())});
    const folder = ${JSON.stringify(join(dataDir, "sandboxes/sbx-0a1b2c3d-g1"))};
    const { existsSync, readFileSync } = await import("node:fs");
    await driver.create(${JSON.stringify(spec(1, "id -u; touch /workspace/x && mkdir /workspace/ro && touch /workspace/ro/f && chmod 0 /workspace/ro && echo ok"))});
    while (!existsSync(folder + "/state/done")) await new Promise((r) => setTimeout(r, 20));
    console.log(driver.isolation.split(":")[0], readFileSync(folder + "/state/out", "utf8"));
    await driver.destroy("sbx-0a1b2c3d-g1");
    await driver.close();
    console.log((await driver.list()).length, existsSync(folder), (await import("node:fs")).readdirSync(${JSON.stringify(join(dataDir, "sandboxes"))}).filter((n) => n.startsWith(".trash")));`;
  chmodSync(dir, 0o755);
  mkdirSync(dataDir);
  execFileSync("chown", ["-R", "65534:65534", dataDir]);
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", source], {
    uid: 65534,
    gid: 65534,
    cwd: "/",
  });
  expect(stdout).toBe("bubblewrap 65534\nok\n\n0 false []\n");
});

function descendants(pid: number): number[] {
  const table = execFileSync("ps", ["-eo", "pid=,ppid="], { encoding: "utf8" });
  const rows = [...table.matchAll(/^ *(\d+) +(\d+) *$/gm)].map((row) => row.slice(1).map(Number));
  const children = rows.filter(([, parent]) => parent === pid).map(([child]) => child as number);
  return [...children, ...children.flatMap(descendants)];
}
