/** podman as the tests use it: where it is, as root, on a Debian that mmdebstrap makes, since no registry can be reached. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { type Ran, run } from "../support/hangar.ts";

export const BUILD_SCRIPT = fileURLToPath(new URL("../../images/build.sh", import.meta.url));
const BASE = "localhost/hangar-test-base:bookworm";
/** For `build.sh`. */
export const ON_TEST_BASE = ["--engine", "podman", "--base", BASE, "--option", "--network=host"];

/** Null: it can be used. */
export function whyNoPodman(): string | null {
  if (process.getuid?.() !== 0) return "not root";
  const missing = ["podman", "runc", "mmdebstrap"].filter((program) => !isThere(program));
  return missing.length > 0 ? `no ${missing.join(", ")}` : null;
}

export interface Podman {
  readonly env: Record<string, string>;
  podman(this: void, ...args: string[]): Promise<Ran>;
  /** What it printed; fails the test where it fails. */
  ok(this: void, ...args: string[]): Promise<string>;
}

/** With the base image there. `dir`: a folder for its settings, which work without systemd and the right to raise limits. */
export async function openPodman(dir: string): Promise<Podman> {
  const conf = `[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n`;
  await writeFile(join(dir, "containers.conf"), conf);
  const env = { ...(process.env as Record<string, string>), CONTAINERS_CONF: join(dir, "containers.conf") };
  const podman = (...args: string[]) => run("podman", args, { env });
  const ok = async (...args: string[]): Promise<string> => {
    const ran = await podman(...args);
    expect(ran.code, `podman ${args.join(" ")}\n${ran.stdout}${ran.stderr}`).toBe(0);
    return ran.stdout.trim();
  };
  if ((await podman("image", "exists", BASE)).code !== 0) await ok("import", "--quiet", await debian(), BASE);
  return { env, podman, ok };
}

/** Debian's minimal system as a tar, made once and kept in the tests' cache. */
async function debian(): Promise<string> {
  const cache = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "hangar-tests");
  const tar = join(cache, "image-base-bookworm.tar");
  if (existsSync(tar)) return tar;
  await mkdir(cache, { recursive: true });
  const made = `${tar}.${process.pid}.tar`;
  const env = process.env as Record<string, string>;
  const ran = await run("mmdebstrap", ["--quiet", "--variant=minbase", "bookworm", made], { env });
  expect(ran.code, ran.stderr).toBe(0);
  // Device nodes belong to the container's runtime.
  await run("sh", ["-c", `tar --delete -f ${made} $(tar -tf ${made} | grep '^\\./dev/.' | sort -r)`], { env });
  await rename(made, tar);
  return tar;
}

function isThere(program: string): boolean {
  try {
    execFileSync("sh", ["-c", `command -v ${program}`]);
    return true;
  } catch {
    return false;
  }
}
