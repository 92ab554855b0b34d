/**
 * The environment of everything that runs in the sandbox, and the files in its home that carry it: `~/.hangar/env` for
 * people's shells, git's identity and credential helper in the home's own configuration.
 */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BootSpec } from "@hangar/shared";
import { SANDBOX_MARK } from "./config.ts";
import type { Config } from "./config.ts";
import { replaceFile } from "./durable.ts";
import { LINK_FILE } from "./git-credential.ts";
import type { Harness } from "./harness/harness.ts";
import { run } from "./process.ts";

export type Environment = Readonly<Record<string, string>>;

export interface EnvironmentInput {
  readonly config: Config;
  readonly boot: Pick<BootSpec, "session" | "cwd" | "variables" | "secrets" | "git_credentials">;
  readonly harness: Harness;
  /** The program and arguments that start this agent, for git's credential helper. */
  readonly agent: readonly string[];
  readonly tmuxFolder: string;
}

/** Idempotent: the same start repeated gives the same files. */
export async function prepareEnvironment(input: EnvironmentInput): Promise<Environment> {
  const { config, boot } = input;
  const env = sandboxEnvironment(input);
  writeEnvFile(config.home, { PATH: env["PATH"] ?? "", ...boot.variables, ...boot.secrets });
  writeProfile(config.home);
  replaceFile(join(config.state, LINK_FILE), JSON.stringify({ urls: config.urls, token: config.token }));
  await configureGit(input, env);
  return env;
}

function sandboxEnvironment({ config, boot, harness, tmuxFolder }: EnvironmentInput): Record<string, string> {
  const given = { ...config.base, ...boot.variables, ...boot.secrets };
  const fixed = {
    HOME: config.home,
    [SANDBOX_MARK]: config.mark,
    HANGAR_SESSION: boot.session,
    TMUX_TMPDIR: tmuxFolder,
    // A prompt for a password has nobody to answer it; terminals lift this.
    GIT_TERMINAL_PROMPT: "0",
  };
  const env = { ...given, ...fixed };
  return { ...env, ...harness.environment({ home: config.home, cwd: boot.cwd, env }) };
}

/** `export NAME='value'` lines, as any POSIX shell reads them. */
function writeEnvFile(home: string, values: Record<string, string>): void {
  const folder = join(home, ".hangar");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  chmodSync(folder, 0o700);
  const lines = Object.entries(values).map(([name, value]) => `export ${name}=${shellQuote(value)}\n`);
  replaceFile(join(folder, "env"), lines.join(""), 0o600);
}

/** The machine's own profile sets PATH anew in every login shell; this one comes after it. */
function writeProfile(home: string): void {
  const path = join(home, ".profile");
  if (!existsSync(path)) writeFileSync(path, 'if [ -r "$HOME/.hangar/env" ]; then . "$HOME/.hangar/env"; fi\n');
}

async function configureGit({ config, boot, agent }: EnvironmentInput, env: Environment): Promise<void> {
  const git = async (...args: string[]): Promise<string | null> => {
    const ran = await run(["git", "config", "--global", ...args], { cwd: config.home, env });
    return ran.code === 0 ? ran.stdout.toString("utf8").trim() : null;
  };
  if ((await git("--get", "user.name")) === null) await git("user.name", "Hangar");
  if ((await git("--get", "user.email")) === null) await git("user.email", "agent@hangar.invalid");
  if (boot.git_credentials) {
    const helper = [...agent, "git-credential", "--state", config.state].map(shellQuote).join(" ");
    await git("--replace-all", "credential.helper", `!${helper}`);
    await git("credential.useHttpPath", "true");
  }
}

export const shellQuote = (value: string): string => `'${value.replaceAll("'", `'\\''`)}'`;
