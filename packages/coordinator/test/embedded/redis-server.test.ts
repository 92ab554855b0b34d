import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, lstatSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { identify } from "../../src/embedded/process.ts";
import { type RedisServer, socketPath, startRedisServer } from "../../src/embedded/redis-server.ts";

const MODULE = new URL("../../src/embedded/redis-server.ts", import.meta.url).href;
const path = process.env["PATH"] ?? "";
let dir: string;
let lines: string[];
const servers: RedisServer[] = [];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "hangar-redis-"));
  lines = [];
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
  await rm(dir, { recursive: true });
});

const options = () => ({ dataDir: dir, path, runtimeDir: dir, log: (line: string) => void lines.push(line) });
async function start(): Promise<RedisServer> {
  const server = await startRedisServer(options());
  servers.push(server);
  return server;
}
async function command(socket: string, ...words: [string, ...string[]]): Promise<unknown> {
  const redis = new Redis(socket, { maxRetriesPerRequest: null, retryStrategy: () => 20 });
  redis.on("error", () => undefined);
  try {
    return await redis.call(...words);
  } finally {
    redis.disconnect();
  }
}

test("it serves on a private socket only and keeps what it was told over a stop", async () => {
  const server = await start();
  await command(server.socket, "SET", "k", "v");
  expect(await command(server.socket, "CONFIG", "GET", "port")).toEqual(["port", "0"]);
  expect(await command(server.socket, "CONFIG", "GET", "appendonly")).toEqual(["appendonly", "yes"]);
  expect(lstatSync(server.socket).mode & 0o077).toBe(0);
  expect(lstatSync(join(dir, "redis")).mode & 0o077).toBe(0);
  await server.stop();
  expect(server.pid() === null || identify(server.pid() as number)).toBeNull();
  expect(existsSync(server.socket)).toBe(false);
  expect(await command((await start()).socket, "GET", "k")).toBe("v");
});

test("killed, it is started again on the same socket with its data, and the log says so", async () => {
  const server = await start();
  await command(server.socket, "SET", "k", "v");
  await command(server.socket, "CONFIG", "SET", "appendfsync", "always");
  await command(server.socket, "SET", "k", "w");
  const pid = server.pid() as number;
  process.kill(pid, "SIGKILL");
  await vi.waitUntil(() => lines.some((line) => line.startsWith("redis-server is back")), { timeout: 30_000 });
  expect(lines[0]).toBe("redis-server ended (SIGKILL); starting it again");
  expect(server.pid()).not.toBe(pid);
  expect(await command(server.socket, "GET", "k")).toBe("w");
});

test("one that a killed coordinator left is stopped, and its data taken over", async () => {
  const coordinator = spawn(process.execPath, [
    "--input-type=module",
    "-e",
    `import { startRedisServer } from ${JSON.stringify(MODULE)};
     const server = await startRedisServer(${JSON.stringify({ dataDir: dir, path, runtimeDir: dir })});
     console.log(server.pid());
     setInterval(() => {}, 1000);`,
  ]);
  const pid = Number(String((await once(coordinator.stdout, "data"))[0]));
  const orphan = identify(pid);
  await command(join(dir, "redis/redis.sock"), "SET", "k", "left");
  coordinator.kill("SIGKILL");
  await once(coordinator, "exit");
  expect(identify(pid)).toEqual(orphan);

  const server = await start();
  expect(identify(pid)).toBeNull();
  expect(await command(server.socket, "GET", "k")).toBe("left");
});

test("it ends with nothing running when it is stopped while it is dead", async () => {
  const server = await start();
  const pid = server.pid() as number;
  process.kill(pid, "SIGKILL");
  await server.stop();
  expect(identify(pid)).toBeNull();
  await expect(pingOnce(server.socket)).rejects.toThrow(/ENOENT|ECONNREFUSED|closed/);
});
async function pingOnce(socket: string): Promise<unknown> {
  const redis = new Redis(socket, { maxRetriesPerRequest: 0, retryStrategy: () => null, lazyConnect: true });
  redis.on("error", () => undefined);
  try {
    await redis.connect();
    return await redis.ping();
  } finally {
    redis.disconnect();
  }
}

test("a damaged file is reported with redis-server's own words", async () => {
  const server = await start();
  await command(server.socket, "SET", "k", "v");
  await server.stop();
  servers.length = 0;
  const folder = join(dir, "redis/appendonlydir");
  for (const name of readdirSync(folder))
    if (name.endsWith(".incr.aof")) writeFileSync(join(folder, name), "nonsense\n");
  await expect(startRedisServer(options())).rejects.toMatchObject({
    code: "redis_unavailable",
    message: expect.stringMatching(/^redis-server does not start: .*(?:AOF|append only|format)/i),
  });
});

test("without redis-server one line says how to install it", async () => {
  await expect(startRedisServer({ ...options(), path: dir })).rejects.toMatchObject({
    code: "missing_cli",
    message: expect.stringMatching(/^redis-server is not installed: install it with `/),
  });
});

test("a socket path that is too long for the system moves to a private folder, stable for its data folder", () => {
  const folder = join(dir, "x".repeat(120), "redis");
  const socket = socketPath(folder, dir);
  expect(Buffer.byteLength(socket)).toBeLessThan(104);
  expect(lstatSync(join(socket, "..")).mode & 0o777).toBe(0o700);
  expect(socketPath(folder, dir)).toBe(socket);
  expect(socketPath(join(dir, "redis"), dir)).toBe(join(dir, "redis/redis.sock"));
});
