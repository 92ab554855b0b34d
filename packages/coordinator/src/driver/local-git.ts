/** The user's name and address for commits, and nothing else of the user's git configuration. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { HostEnvironment } from "./local-env.ts";

/** A sandbox's `.gitconfig`; none when the user has told git no name. */
export async function gitIdentity(env: HostEnvironment): Promise<string | null> {
  const [name, email] = await Promise.all([read(env, "user.name"), read(env, "user.email")]);
  if (name === null || email === null) return null;
  return `[user]\n\tname = ${quote(name)}\n\temail = ${quote(email)}\n`;
}

async function read(env: HostEnvironment, key: string): Promise<string | null> {
  try {
    const own = { PATH: env["PATH"], HOME: env["HOME"], XDG_CONFIG_HOME: env["XDG_CONFIG_HOME"], LC_ALL: "C" };
    const { stdout } = await promisify(execFile)("git", ["config", "--global", "--get", key], { env: own, cwd: "/" });
    return stdout.trim() || null;
  } catch {
    return null;
  }
}

/** As git's configuration files quote it. */
const quote = (text: string): string => `"${text.replace(/[\\"]/g, String.raw`\$&`).replace(/\s+/g, " ")}"`;
