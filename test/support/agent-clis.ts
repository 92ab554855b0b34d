/**
 * The agents' own command-line programs, for tests: each version pinned, installed from npm into a cache once. They are no
 * part of the product. As a program (`node test/support/agent-clis.ts [NAME …]`) it installs and prints each bin folder;
 * tests call `agentClis`, which does the same when the set-up did not.
 */
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { access, mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const CLIS = {
  claude: { package: "@anthropic-ai/claude-code", version: "2.1.332", program: "claude" },
  codex: { package: "@openai/codex", version: "0.171.0", program: "codex" },
  pi: { package: "@earendil-works/pi-coding-agent", version: "1.6.0", program: "pi" },
} as const;
export type AgentCli = keyof typeof CLIS;

/** The folders that hold these programs, joined as the beginning of a PATH. Installs what the cache lacks; slow then. */
export async function agentClis(...names: AgentCli[]): Promise<string> {
  const folders: string[] = [];
  for (const name of names.length === 0 ? allClis() : names) folders.push(await agentCli(name));
  return folders.join(delimiter);
}

const allClis = (): AgentCli[] => Object.keys(CLIS) as AgentCli[];

async function agentCli(name: AgentCli): Promise<string> {
  const { package: npmPackage, version, program } = CLIS[name];
  const folder = join(cacheFolder(), `${name}-${version}`);
  const bin = join(folder, "node_modules", ".bin");
  if (await isThere(join(bin, program))) return bin;
  await mkdir(cacheFolder(), { recursive: true });
  await alone(`${folder}.lock`, async () => {
    if (await isThere(join(bin, program))) return;
    await install(`${npmPackage}@${version}`, folder);
  });
  return bin;
}

const cacheFolder = (): string => process.env["HANGAR_TEST_CACHE"] ?? join(homedir(), ".cache", "hangar-tests");

/** Into a folder of its own, which gets its name when it is whole: one that has the name is complete. */
async function install(spec: string, folder: string): Promise<void> {
  const temporary = `${folder}.${randomUUID()}.tmp`;
  try {
    await mkdir(temporary);
    await writeFile(join(temporary, "package.json"), '{"name":"agent-cli","private":true}\n');
    // This Node first: npm picks a version by the one that it finds.
    const env = { ...process.env, PATH: [dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter) };
    await promisify(execFile)("npm", ["install", "--no-audit", "--no-fund", "--save-exact", spec], {
      cwd: temporary,
      env,
      maxBuffer: 1 << 26,
    });
    await rename(temporary, folder);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/** Runs `work` while holding a lock file that names this process; the lock of a process that is gone is taken over. */
async function alone(lock: string, work: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      await writeFile(lock, String(process.pid), { flag: "wx" });
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      if (await isStale(lock)) await rm(lock, { force: true });
      else await delay(200);
    }
  }
  try {
    await work();
  } finally {
    await rm(lock, { force: true });
  }
}

async function isStale(lock: string): Promise<boolean> {
  const holder = Number(await readFile(lock, "utf8").catch(() => ""));
  // Just made and not yet written to.
  if (holder === 0) return Date.now() - ((await stat(lock).catch(() => null))?.mtimeMs ?? Date.now()) > 10_000;
  try {
    process.kill(holder, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

if (import.meta.main) {
  const asked = process.argv.slice(2);
  const names = allClis().filter((name) => asked.length === 0 || asked.includes(name));
  for (const name of names) process.stdout.write(`${name}: ${await agentCli(name)}\n`);
}
