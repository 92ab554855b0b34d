/** The steps of a start that touch this machine: its folder, its Redis, its key, its address. Each fails with one clear line. */
import { accessSync, constants, existsSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import { HangarError } from "@hangar/shared";
import { readClientConfig, writeClientConfig } from "./client-config.ts";
import type { Config } from "./config.ts";
import { lockDataFolder } from "./embedded/lock.ts";
import { startRedisServer } from "./embedded/redis-server.ts";
import { isLoopback } from "./http/auth.ts";
import type { Log } from "./telemetry.ts";
import { openVault } from "./vault/file-vault.ts";
import { backUpMessage, vaultKeyFile } from "./vault/key-file.ts";
import type { Vault } from "./vault/vault.ts";

export function prepareDataDir(dataDir: string): string {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    accessSync(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    return dataDir;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new HangarError(
      "invalid_request",
      `The data folder ${dataDir} cannot be used (${code}): set HANGAR_DATA_DIR to one that can`,
      { cause: error },
    );
  }
}

/** One Hangar's own Redis in its data folder. Replicas that name a Redis share a folder without this lock. */
export async function embeddedRedis(
  dataDir: string,
  env: Readonly<Record<string, string | undefined>>,
  log: Log,
  stack: AsyncDisposableStack,
): Promise<string> {
  const lock = lockDataFolder(dataDir);
  stack.defer(() => lock.release());
  const runtimeDir = env["XDG_RUNTIME_DIR"] ?? "";
  const server = await startRedisServer({
    dataDir,
    path: env["PATH"] ?? "",
    runtimeDir: isAbsolute(runtimeDir) ? runtimeDir : tmpdir(),
    log: (line) => log.warn({}, line),
  });
  stack.defer(() => server.stop());
  return `unix://${server.socket}`;
}

/** A key that went missing is not replaced silently: a new one could open nothing of what the store holds. */
export async function vaultOf(dataDir: string, volume: string | null, log: Log): Promise<Vault> {
  const file = vaultKeyFile(dataDir);
  if (!existsSync(file) && volume !== null && existsSync(join(volume, "sessions"))) {
    throw new HangarError(
      "checkpoint_invalid",
      `${file} is missing, and ${volume} holds checkpoints that only it opens: put the backed-up key there`,
    );
  }
  const { vault, created } = await openVault(file);
  if (created) log.warn({}, backUpMessage(file));
  return vault;
}

/** A port that is given is meant. Else the one of the last time, which its sandboxes know; else the default; else any. */
export function portsToTry(config: Config, lastUrl: string | undefined): number[] {
  if (config.port_is_given) return [config.port];
  const last = lastUrl !== undefined && URL.canParse(lastUrl) ? Number(new URL(lastUrl).port) : 0;
  return [...new Set(last > 0 ? [last, config.port, 0] : [config.port, 0])];
}

/** An address of this machine that reaches what listens on `host`. */
export function reachable(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/** A pod's loopback is its own: its daemon would dial itself until the start's time is over. */
export function refuseUnreachable(config: Pick<Config, "driver" | "sandbox_url">, url: string): void {
  const dialled = config.sandbox_url ?? url;
  if (config.driver !== "kubernetes" || !isLoopback(new URL(dialled).hostname.replace(/^\[|\]$/g, ""))) return;
  const line = `Pods cannot reach ${dialled}: set HANGAR_HOST to an address that they reach (0.0.0.0), and HANGAR_SANDBOX_URL`;
  throw new HangarError("invalid_request", line);
}

/**
 * The owner of the folder leaves its address for the CLI; a further replica on the same folder only where nobody else is
 * there. Both keep the token, and the address for the next start.
 */
export function tellClients(
  dataDir: string,
  client: { url: string; token: string },
  owner: boolean,
  stack: AsyncDisposableStack,
): void {
  const pid = readClientConfig(dataDir)?.pid ?? null;
  if (!owner && pid !== null && pid !== process.pid && isAlive(pid)) return;
  writeClientConfig(dataDir, { ...client, pid: process.pid });
  stack.defer(() => {
    if (readClientConfig(dataDir)?.pid === process.pid) writeClientConfig(dataDir, { ...client, pid: null });
  });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
