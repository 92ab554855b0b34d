/**
 * The images as podman builds them from images/Dockerfile, on a Debian base that mmdebstrap makes: there is no registry here, so
 * the Dockerfile's own base (docker.io's Debian) is the one thing that is not fetched. Skipped, saying so, without root or podman.
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageRequest } from "@hangar/coordinator/images/builder";
import { KubernetesPod } from "@hangar/shared";
import { run, sleep } from "../support/hangar.ts";
import { BUILD_SCRIPT, ON_TEST_BASE, openPodman, type Podman, whyNoPodman } from "./podman.ts";

const why = whyNoPodman();
if (why !== null) console.error(`skipped, the images are not built: ${why}`);

describe.skipIf(why !== null)("built by podman", { timeout: 600_000 }, () => {
  let dir: string;
  let env: Podman["env"];
  let podman: Podman["podman"];
  let ok: Podman["ok"];
  const tag = `test-${process.pid}`;
  const coordinator = `hangar-coordinator:${tag}`;
  const sandbox = `hangar-sandbox:${tag}`;

  /** As a cluster's pod runs it. */
  const LOCKED = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"];

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "hangar-images-"));
    ({ env, podman, ok } = await openPodman(dir));
    const args = [...ON_TEST_BASE, "--tag", tag, "--harness", "pi"];
    const built = await run("sh", [BUILD_SCRIPT, ...args], { env });
    expect(built.code, built.stderr).toBe(0);
    expect(built.stdout.trim().split("\n")).toEqual([coordinator, sandbox]);
  }, 600_000);
  afterAll(async () => {
    await podman("rmi", "--force", coordinator, sandbox);
    await rm(dir, { recursive: true, force: true });
  }, 120_000);

  test("neither runs as root, both start behind tini, and the same Hangar and Node are in both", async () => {
    for (const image of [coordinator, sandbox]) {
      const config = JSON.parse(await ok("image", "inspect", "--format", "{{json .Config}}", image)) as object;
      expect(config).toMatchObject({ User: "1000:1000", Entrypoint: ["/usr/bin/tini", "--", expect.any(String)] });
      expect(await ok("run", ...LOCKED, "--network=none", "--entrypoint=node", image, "--version")).toBe(
        process.version,
      );
    }
  });

  test("the sandbox has what the daemon and agents need, and the daemon says what it lacks", async () => {
    const look = `id -u; git --version; tmux -V; age --version; zstd --version; pi --version; touch /workspace/x && echo writes`;
    const args = ["run", "--rm", "--cap-drop=ALL", "--network=none", "--entrypoint=sh", sandbox, "-euc", look];
    const lines = (await ok(...args)).split("\n");
    expect(lines[0]).toBe("1000");
    expect(lines.slice(1).join("\n")).toMatch(/git version 2[\s\S]*tmux 3[\s\S]*v?1\.[\s\S]*1\.6\.0\nwrites$/);
    const daemon = await podman("run", ...LOCKED, "--network=none", sandbox, "run");
    expect(daemon.code).not.toBe(0);
    expect(daemon.stderr).toContain("HANGAR_AGENT_COORDINATOR_URL is not set");
    const native = `import("/opt/hangar/node_modules/@lydell/node-pty/index.js").then((m) => console.log(typeof (m.spawn ?? m.default.spawn)))`;
    expect(await ok("run", ...LOCKED, "--network=none", "--entrypoint=node", sandbox, "-e", native)).toBe("function");
  });

  test("what Hangar makes of an environment's script builds on it: root runs the script, sandboxes are not root", async () => {
    const script = `test "$(id -u)" = 0\necho 'made of $(this)' > /usr/local/share/made\nif false; then exit 1; fi\n`;
    const where = { registry: "localhost", base: `localhost/${sandbox}` };
    const { dockerfile, name } = imageRequest(KubernetesPod.parse({ build: { script } }), where)!;
    await writeFile(join(dir, "Dockerfile"), dockerfile);
    const build = ["build", "--network=none", "--build-arg", `HANGAR_SANDBOX_IMAGE=${where.base}`];
    await ok(...build, "--tag", name, "--file", join(dir, "Dockerfile"), dir);
    try {
      const args = ["run", ...LOCKED, "--network=none", "--entrypoint=sh", name, "-c"];
      expect(await ok(...args, "id -u; cat /usr/local/share/made; ls -A /tmp")).toBe("1000\nmade of $(this)");
      const daemon = await podman("run", ...LOCKED, "--network=none", name, "run");
      expect(daemon.stderr).toContain("HANGAR_AGENT_COORDINATOR_URL is not set");
      const bad = imageRequest(KubernetesPod.parse({ build: { script: "false; true" } }), where)!;
      await writeFile(join(dir, "Dockerfile"), bad.dockerfile);
      expect((await podman(...build, "--file", join(dir, "Dockerfile"), dir)).code).not.toBe(0);
    } finally {
      await podman("rmi", "--force", name);
    }
  });

  test("no layer holds the builder's npm settings, package lists or npm's cache", async () => {
    const look = "cat /root/.npmrc; ls -A /var/lib/apt/lists /tmp /opt/npm";
    const ran = await podman("run", "--rm", "--user=0", "--network=none", "--entrypoint=sh", sandbox, "-c", look);
    expect(ran.stdout.replaceAll(/^.*:$|\s/gm, "")).toBe("");
    expect(await ok("history", "--no-trunc", sandbox)).not.toMatch(/_authToken|AUTH=/i);
  });

  test("the coordinator serves, locked as the manifests lock it, and stops when told", async () => {
    const name = `hangar-images-${process.pid}`;
    const redis = await startRedis(dir);
    const data = join(dir, "data");
    await mkdir(data);
    await chown(data, 1000, 1000);
    const settings = [
      `HANGAR_REDIS_URL=unix:///redis/redis.sock`,
      "HANGAR_TOKEN=made-up-token-of-the-test",
      "HANGAR_HOST=127.0.0.1",
      "HANGAR_PORT=0",
    ];
    const mounts = ["--tmpfs=/tmp", `--volume=${data}:/var/lib/hangar`, `--volume=${redis.folder}:/redis`];
    try {
      const envs = settings.map((one) => `--env=${one}`);
      await ok(
        "run",
        "--detach",
        ...LOCKED.slice(1),
        `--name=${name}`,
        "--network=none",
        ...mounts,
        ...envs,
        coordinator,
      );
      const ask = `const { url } = JSON.parse(require("fs").readFileSync("/var/lib/hangar/hangar.json", "utf8")); fetch(url + "/healthz").then(async (r) => console.log(r.status, await r.text()))`;
      let said = "";
      for (let i = 0; i < 60 && said !== "200 ok"; i++) {
        await sleep(500);
        said = (await podman("exec", name, "node", "-e", ask)).stdout.trim();
      }
      expect(said, (await podman("logs", name)).stderr).toBe("200 ok");
      await ok("stop", "--time=20", name);
      expect(await ok("inspect", "--format", "{{.State.ExitCode}}", name)).toBe("0");
    } finally {
      await podman("rm", "--force", name);
      await redis.stop();
    }
  });
});

test("the agent CLIs that it puts in are those that the tests drive", () => {
  const script = readFileSync(BUILD_SCRIPT, "utf8");
  const tested = readFileSync(fileURLToPath(new URL("../support/agent-clis.ts", import.meta.url)), "utf8");
  const pairs = [...tested.matchAll(/package: "([^"]+)", version: "([^"]+)"/g)];
  expect(pairs.length).toBe(3);
  for (const [, name, version] of pairs) expect(script).toContain(`=${name}@${version}\n`);
});

test("what it cannot do it says in one line", async () => {
  const env = process.env as Record<string, string>;
  const said = async (...args: string[]) => await run("sh", [BUILD_SCRIPT, ...args], { env });
  expect(await said("--harness", "emacs")).toMatchObject({
    code: 2,
    stderr: "images/build.sh: unknown harness emacs: give claude, codex, pi, or an npm package with its version\n",
  });
  expect(await said("--nonsense")).toMatchObject({ code: 2 });
  expect(await said("--engine", "no-such-engine")).toMatchObject({
    code: 1,
    stderr: "images/build.sh: no-such-engine is not here\n",
  });
  expect((await said("--help")).stdout).toContain("--harness claude");
});

/** On a socket in a folder that every user may use, since the container's user is another one. */
async function startRedis(dir: string): Promise<{ folder: string; stop: () => Promise<void> }> {
  const folder = join(dir, "redis");
  await mkdir(folder, { recursive: true, mode: 0o777 });
  const args = ["--port", "0", "--unixsocket", join(folder, "redis.sock"), "--unixsocketperm", "777", "--save", ""];
  const child = spawn("redis-server", [...args, "--dir", folder], { stdio: "ignore" });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  for (let i = 0; i < 100 && !existsSync(join(folder, "redis.sock")); i++) await sleep(50);
  execFileSync("chmod", ["755", dir, folder]);
  return {
    folder,
    stop: async () => {
      child.kill();
      await ended;
    },
  };
}
