/** A redis-server of the test's own, on a private unix socket. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface TestRedis {
  readonly url: string;
  /** `kill -9`, as a crash. */
  kill(): Promise<void>;
  /** Starts it again on the same data. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

export async function startRedis(): Promise<TestRedis> {
  const dir = await mkdtemp(join(tmpdir(), "hangar-redis-"));
  const socket = join(dir, "redis.sock");
  let child: ChildProcess | null = null;
  const server: TestRedis = {
    url: `unix://${socket}`,
    async start() {
      child = spawn(
        "redis-server",
        ["--port", "0", "--unixsocket", socket, "--dir", dir, "--appendonly", "yes", "--save", ""],
        { stdio: "ignore" },
      );
      await listening(socket, child);
    },
    async kill() {
      if (child === null || child.exitCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
      child = null;
    },
    async stop() {
      await server.kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

async function listening(socket: string, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`redis-server ended with ${child.exitCode}`);
    const open = await new Promise<boolean>((done) => {
      const probe = connect(socket, () => {
        probe.destroy();
        done(true);
      });
      probe.on("error", () => done(false));
    });
    if (open) return;
    await sleep(20);
  }
}
