/** The coordinator as its own process, with a redis-server of its own, in a data folder of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ClientConfig, Status } from "@hangar/shared";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { endAll } from "../../../test/support/hangar.ts";
import { StandInApi } from "./driver/kubernetes/stand-in-api.ts";
import { KEY, StrictS3 } from "./store/strict-s3.ts";

const BIN = fileURLToPath(new URL("../bin/hangar-coordinator.mjs", import.meta.url));
let dir: string;
let children: Coordinator[];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "hangar-main-"));
  children = [];
});
afterEach(async () => {
  for (const child of children) await child.stop("SIGTERM");
  await endAll(dir);
  await rm(dir, { recursive: true, force: true, maxRetries: 5 });
});

interface Coordinator {
  readonly process: ChildProcess;
  readonly ended: Promise<number | null>;
  stderr(): string;
  /** The fields of the line that says so. */
  ready(): Promise<Record<string, string>>;
  stop(signal: NodeJS.Signals): Promise<number | null>;
}

function start(env: Record<string, string> = {}): Coordinator {
  const child = spawn(process.execPath, [BIN], {
    cwd: dir,
    env: { PATH: process.env["PATH"] ?? "", HOME: dir, HANGAR_DATA_DIR: join(dir, "data"), HANGAR_PORT: "0", ...env },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let text = "";
  let wake = (): void => {};
  child.stderr.setEncoding("utf8").on("data", (more: string) => {
    text += more;
    wake();
  });
  const ended = once(child, "close").then(([code]) => {
    wake();
    return code as number | null;
  });
  const coordinator: Coordinator = {
    process: child,
    ended,
    stderr: () => text,
    ready: async () => {
      for (;;) {
        const line = text.split("\n").find((one) => one.includes('"msg":"ready"'));
        if (line !== undefined) return JSON.parse(line) as Record<string, string>;
        if (child.exitCode !== null) throw new Error(`it ended:\n${text}`);
        await new Promise<void>((resolve) => (wake = resolve));
      }
    },
    stop: async (signal) => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      return ended;
    },
  };
  children.push(coordinator);
  return coordinator;
}

const clientConfig = async (): Promise<ClientConfig> =>
  ClientConfig.parse(JSON.parse(await readFile(join(dir, "data/hangar.json"), "utf8")));

const get = (url: string, token: string): Promise<Response> =>
  fetch(url, { headers: { authorization: `Bearer ${token}` } });

/** Lines that are not log lines. */
const said = (coordinator: Coordinator): string[] =>
  coordinator
    .stderr()
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("{"));

const logged = (coordinator: Coordinator): { msg?: string; environment?: string }[] =>
  coordinator
    .stderr()
    .split("\n")
    .filter((line) => line.startsWith("{") && line.endsWith("}"))
    .map((line) => JSON.parse(line) as object);

async function runningIn(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const cwd = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (cwd.includes(folder)) found.push(cwd);
  }
  return found;
}

it("comes up on its own Redis, says so in one line, and leaves its address for the CLI", async () => {
  const coordinator = start();
  const ready = await coordinator.ready();
  const client = await clientConfig();
  expect(ready).toMatchObject({ url: client.url, pid: coordinator.process.pid, data_dir: join(dir, "data") });
  expect((await stat(join(dir, "data/hangar.json"))).mode & 0o777).toBe(0o600);
  expect((await stat(join(dir, "data"))).mode & 0o777).toBe(0o700);
  expect(await (await fetch(`${client.url}/healthz`)).text()).toBe("ok");
  const status = Status.parse(await (await get(`${client.url}/api/status`, client.token)).json());
  expect(status).toMatchObject({ url: client.url, driver: "local", store: `volume:${join(dir, "data/store")}` });
  expect(status.redis).toMatch(/^unix:\/\//);
  expect((await get(`${client.url}/api/status`, "another-token-00000")).status).toBe(401);
  expect(coordinator.stderr()).not.toContain(client.token);
  expect(coordinator.stderr()).toContain("Back up ");
});

it("stops when asked, with nothing of it left running, and comes back at its address with its token", async () => {
  const first = start();
  await first.ready();
  const before = await clientConfig();
  expect(await first.stop("SIGTERM")).toBe(0);
  expect(said(first)).toEqual([]);
  expect(await runningIn(dir)).toEqual([]);
  expect(await clientConfig()).toEqual({ ...before, pid: null });

  const second = start({ HANGAR_PORT: "" });
  await second.ready();
  expect(await clientConfig()).toEqual({ ...before, pid: second.process.pid });
});

it("keeps Redis's data over a kill, and takes over the Redis that was left", async () => {
  const first = start();
  await first.ready();
  const { url, token } = await clientConfig();
  const put = await fetch(`${url}/api/environments/web`, {
    method: "PUT",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ setup: "make" }),
  });
  expect(put.status).toBe(200);
  await first.stop("SIGKILL");
  const second = start({ HANGAR_PORT: "" });
  const { url: again } = await second.ready();
  expect(await (await get(`${again}/api/environments/web`, token)).json()).toMatchObject({
    name: "web",
    setup: "make",
  });
});

it("stops under a stream that never ends", async () => {
  const coordinator = start();
  const { url } = await coordinator.ready();
  const { token } = await clientConfig();
  const made = await fetch(`${url}/api/sessions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ name: "quiet", harness: "script" }),
  });
  expect(made.status).toBe(201);
  const stream = await get(`${url}/api/sessions/quiet/events`, token);
  const text = stream.text();
  expect(await coordinator.stop("SIGINT"), coordinator.stderr()).toBe(0);
  await text;
});

it("answers 503 while Redis is away, and again as before when it is back", async () => {
  const coordinator = start();
  const { url, redis } = await coordinator.ready();
  const { token } = await clientConfig();
  const folder = join(dir, "data/redis");
  const { pid } = JSON.parse(await readFile(join(folder, "redis.json"), "utf8")) as { pid: number };
  expect(redis).toContain("unix://");
  process.kill(pid, "SIGSTOP");
  expect((await fetch(`${url}/healthz`)).status).toBe(503);
  process.kill(pid, "SIGKILL");
  for (let i = 0; (await fetch(`${url}/healthz`)).status !== 200; i++) {
    expect(i).toBeLessThan(200);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  expect((await get(`${url}/api/sessions`, token)).status).toBe(200);
});

it("keeps checkpoints in an s3:// bucket where one is named", async () => {
  const s3 = await StrictS3.open();
  try {
    const coordinator = start({
      HANGAR_SESSION_STORE: "s3://bucket/some/prefix",
      AWS_ACCESS_KEY_ID: KEY.accessKeyId,
      AWS_SECRET_ACCESS_KEY: KEY.secretAccessKey,
      AWS_ENDPOINT_URL_S3: s3.endpoint,
    });
    const { url, store } = await coordinator.ready();
    expect(store).toBe("s3://bucket/some/prefix");
    const { token } = await clientConfig();
    const body = JSON.stringify({ name: "kept", harness: "script" });
    const headers = { authorization: `Bearer ${token}` };
    expect((await fetch(`${url}/api/sessions`, { method: "POST", headers, body })).status).toBe(201);
    // The session's identity, sealed to the vault, is what a new session keeps.
    expect([...s3.objects.keys()]).toEqual([
      expect.stringMatching(/^some\/prefix\/sessions\/ses-[0-9a-f]{8}\/identity\.age$/),
    ]);
    expect(coordinator.stderr()).not.toContain(KEY.secretAccessKey);
    await coordinator.stop("SIGTERM");
  } finally {
    await s3.close();
  }
});

it("builds at start-up the images of environments that are named, or that a GitHub repo's work runs in", async () => {
  const api = new StandInApi();
  try {
    const cluster = {
      HANGAR_DRIVER: "kubernetes",
      HANGAR_KUBERNETES_CONFIG: await api.start(),
      HANGAR_SANDBOX_URL: "http://192.0.2.1:4747",
      HANGAR_SANDBOX_IMAGE: "registry.example/hangar-sandbox:1",
      HANGAR_IMAGE_BUILDER: "buildkit",
      HANGAR_IMAGE_BUILD_NAMESPACE: "boxes",
      HANGAR_IMAGE_REGISTRY: "registry.example/hangar",
    };
    const jobs = () => [...api.objects.keys()].filter((key) => key.startsWith("jobs/"));
    const dockerfiles = () =>
      jobs().map((key) => {
        const [container] = api.objects.get(key)!["spec"].template.spec.containers as [{ env: { value: string }[] }];
        return Buffer.from(container.env[1]!.value, "base64").toString();
      });
    const first = start(cluster);
    const { url } = await first.ready();
    const { token } = await clientConfig();
    for (const name of ["mapped", "named", "both", "neither", "without"]) {
      const build = name === "without" ? null : { dockerfile: `FROM ${name}` };
      const answer = await fetch(`${url}/api/environments/${name}`, {
        method: "PUT",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ name, kubernetes: { build } }),
      });
      expect(answer.status).toBe(200);
    }
    await first.stop("SIGTERM");
    expect(jobs()).toEqual([]);

    const ahead = {
      HANGAR_GITHUB_REPOS: "acme/web=mapped,acme/site=mapped,acme/x=both,acme/y=gone,acme/z=without",
      HANGAR_PREBUILD_ENVIRONMENTS: "named,both",
    };
    const second = start({ ...cluster, ...ahead });
    await second.ready();
    await expect.poll(() => dockerfiles().toSorted()).toEqual(["FROM both", "FROM mapped", "FROM named"]);
    const wasSaid = (message: string) =>
      logged(second)
        .filter(({ msg }) => msg === message)
        .map(({ environment }) => environment)
        .toSorted((a = "", b = "") => (a < b ? -1 : 1));
    await expect.poll(() => wasSaid("an environment to prebuild is not there")).toEqual(["gone"]);
    for (const key of jobs()) {
      const conditions = [{ type: "Complete", status: "True" }];
      api.change("jobs", key.slice("jobs/".length), (job) => void (job["status"] = { conditions }));
    }
    const built = "an environment's image is built";
    await expect.poll(() => wasSaid(built), { timeout: 15_000 }).toEqual(["both", "mapped", "named"]);
    expect(jobs()).toHaveLength(3);
    await second.stop("SIGTERM");
  } finally {
    await api.stop();
  }
}, 60_000);

describe("does not start, and says why in one line:", () => {
  it("a setting that is not valid (exit 2)", async () => {
    const coordinator = start({ HANGAR_PORT: "http" });
    expect(await coordinator.ended).toBe(2);
    expect(coordinator.stderr()).toBe('hangar: HANGAR_PORT is "http": give a whole number from 0 to 65535\n');
    const repos = start({ HANGAR_GITHUB_REPOS: "acme/web=web,acme/web=api" });
    expect(await repos.ended).toBe(2);
    expect(repos.stderr()).toBe(
      'hangar: HANGAR_GITHUB_REPOS is "acme/web=web,acme/web=api": "acme/web" is there twice; give OWNER/REPO=ENVIRONMENT, several with commas between\n',
    );
  });

  it("a port that is given and taken", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    const coordinator = start({ HANGAR_PORT: String(port) });
    expect(await coordinator.ended).toBe(1);
    expect(said(coordinator)).toEqual([
      `hangar: Port ${port} of 127.0.0.1 is in use: stop what uses it, or set HANGAR_PORT to another`,
    ]);
    expect(await runningIn(dir)).toEqual([]);
    other.close();
  });

  it("an address that is not this machine's", async () => {
    const coordinator = start({ HANGAR_HOST: "192.0.2.1" });
    expect(await coordinator.ended).toBe(1);
    expect(said(coordinator)).toEqual([
      expect.stringMatching(/^hangar: Cannot listen on 192\.0\.2\.1:0: .*HANGAR_HOST/),
    ]);
  });

  it("a Redis that is not there, without its password", async () => {
    const coordinator = start({ HANGAR_REDIS_URL: "redis://me:hunter2@127.0.0.1:1" });
    expect(await coordinator.ended).toBe(1);
    expect(said(coordinator)).toEqual([expect.stringMatching(/^hangar: Redis at redis:\/\/127\.0\.0\.1:1/)]);
    expect(coordinator.stderr()).not.toContain("hunter2");
  });

  it("pods that could not reach it, and a cluster whose configuration is not there", async () => {
    const unreachable = start({ HANGAR_DRIVER: "kubernetes" });
    expect(await unreachable.ended).toBe(1);
    expect(said(unreachable)).toEqual([expect.stringMatching(/^hangar: Pods cannot reach .*HANGAR_SANDBOX_URL$/)]);
    const cluster = { HANGAR_SANDBOX_URL: "http://192.0.2.1:4747", HANGAR_KUBERNETES_CONFIG: join(dir, "none") };
    const missing = start({ HANGAR_DRIVER: "kubernetes", ...cluster });
    expect(await missing.ended).toBe(1);
    expect(said(missing)).toEqual([
      expect.stringMatching(/^hangar: The cluster cannot be reached with .*none: ENOENT/),
    ]);
  });

  it("a data folder that another one uses", async () => {
    const first = start();
    await first.ready();
    const second = start();
    expect(await second.ended).toBe(1);
    expect(said(second)).toEqual([
      expect.stringMatching(`^hangar: another Hangar \\(pid ${first.process.pid}\\) uses ${join(dir, "data")}: `),
    ]);
    expect((await clientConfig()).pid).toBe(first.process.pid);
  });

  it("a data folder that is none", async () => {
    await writeFile(join(dir, "file"), "");
    const coordinator = start({ HANGAR_DATA_DIR: join(dir, "file/data") });
    expect(await coordinator.ended).toBe(1);
    expect(said(coordinator)).toEqual([
      expect.stringMatching(/^hangar: The data folder .*file\/data cannot be used \(ENOTDIR\)/),
    ]);
  });

  it("a vault key that is damaged, or missing where there are checkpoints", async () => {
    const first = start();
    await first.ready();
    await first.stop("SIGTERM");
    const key = join(dir, "data/vault/identity.txt");
    const before = await readFile(key, "utf8");
    await writeFile(key, before.slice(0, -10));
    const damaged = start();
    expect(await damaged.ended).toBe(1);
    expect(said(damaged)).toEqual([expect.stringMatching(`^hangar: ${key} holds no age identity`)]);

    await rm(key);
    await writeFile(join(dir, "data/store/sessions"), "");
    const missing = start();
    expect(await missing.ended).toBe(1);
    expect(said(missing)).toEqual([expect.stringMatching(`^hangar: ${key} is missing, and .* holds checkpoints`)]);
    expect(await readdir(join(dir, "data/vault"))).toEqual([]);
  });
});

it("lets a second replica share Redis and folder, and keeps the first one's address for the CLI", async () => {
  const first = start();
  const { redis, url } = await first.ready();
  const second = start({ HANGAR_REDIS_URL: redis ?? "" });
  const other = await second.ready();
  expect(other["url"]).not.toBe(url);
  expect((await clientConfig()).url).toBe(url);
  const { token } = await clientConfig();
  const answer = await get(`${other["url"]}/api/sessions`, token);
  expect(await answer.json()).toEqual({ sessions: [] });
  expect(await second.stop("SIGTERM")).toBe(0);
  expect((await clientConfig()).pid).toBe(first.process.pid);
});
