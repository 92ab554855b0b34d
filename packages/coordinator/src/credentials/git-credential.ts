/**
 * Answers a sandbox's git for its session's own remote, from this machine's credential helpers (`git credential fill`).
 *
 * What is asked for is fixed by the session's record, not by the sandbox: its request only has to match. Nothing prompts,
 * nothing is kept, nothing is logged.
 */
import { spawn } from "node:child_process";
import { HangarError, type GitCredentialAnswer, type GitCredentialRequest } from "@hangar/shared";
import type { HostCredentials } from "../session/ports.ts";

export interface GitCredentialDeps {
  /** The environment that this machine's git and its helpers run in. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly timeoutMs: number;
}

/**
 * The port over this machine's git. HangarError `forbidden` when the request is for another place than `repo`; none when
 * this machine has no credential for it, or its helper would have to ask a person.
 */
export const hostCredentials = (deps: GitCredentialDeps): HostCredentials => ({
  async fill(request, repo) {
    const target = credentialTarget(repo);
    if (target === null || !matches(target, request)) {
      throw new HangarError("forbidden", "Credentials are given for the session's own remote only");
    }
    return parseAnswer(await fill(deps, target));
  },
});

interface Target {
  readonly protocol: string;
  /** With the port, where the URL has one. */
  readonly host: string;
  /** Without the leading slash, decoded: as git itself asks. */
  readonly path: string;
  readonly username: string | null;
}

/** None: not a remote that git asks credentials for. */
function credentialTarget(remote: string): Target | null {
  if (!/^https?:\/\//.test(remote) || !URL.canParse(remote)) return null;
  const url = new URL(remote);
  const target = {
    protocol: url.protocol.slice(0, -1),
    host: url.host,
    path: decoded(url.pathname.slice(1)),
    username: url.username === "" ? null : decoded(url.username),
  };
  // The helper protocol is lines: a control character would write a line of its own.
  const lines = [target.host, target.path, target.username ?? ""];
  return lines.some((text) => /[\0-\x1f\x7f]/.test(text)) ? null : target;
}

/** A path is only sent where git is told to use it; LFS asks below the repo's own. */
function matches(target: Target, asked: GitCredentialRequest): boolean {
  if (asked.protocol !== target.protocol || asked.host !== target.host) return false;
  if (asked.path === null || asked.path === "") return true;
  const repo = target.path.replace(/\/+$/, "");
  return (
    asked.path === target.path ||
    asked.path === repo ||
    (asked.path.startsWith(`${repo}/`) && !asked.path.includes(".."))
  );
}

const MAX_ANSWER = 65_536;

/** git drops the path itself unless `credential.useHttpPath` is set on this machine. */
function fill(deps: GitCredentialDeps, target: Target): Promise<string> {
  const child = spawn("git", ["credential", "fill"], {
    // No repository's configuration takes part: only the user's and the system's.
    cwd: "/",
    env: {
      ...withoutGit(deps.env),
      GIT_TERMINAL_PROMPT: "0",
      GIT_ASKPASS: "false",
      SSH_ASKPASS: "false",
      GCM_INTERACTIVE: "never",
    },
    stdio: ["pipe", "pipe", "ignore"],
    detached: true,
  });
  return new Promise((resolve, reject) => {
    let output = "";
    const end = (): void => {
      try {
        // The helper runs below git and would outlive it.
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      } catch {
        // already gone
      }
    };
    const timer = setTimeout(end, deps.timeoutMs);
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(
        new HangarError("missing_cli", "git does not start on the coordinator's machine: install git", {
          cause: error,
        }),
      );
    });
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.length > MAX_ANSWER) end();
    });
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve(code === 0 ? output : "");
    });
    child.stdin.on("error", () => {});
    const user = target.username === null ? "" : `username=${target.username}\n`;
    child.stdin.end(`protocol=${target.protocol}\nhost=${target.host}\npath=${target.path}\n${user}\n`);
  });
}

function parseAnswer(output: string): GitCredentialAnswer | null {
  const values = new Map<string, string>();
  for (const line of output.split("\n")) {
    const at = line.indexOf("=");
    if (at > 0) values.set(line.slice(0, at), line.slice(at + 1));
  }
  const username = values.get("username") ?? "";
  const password = values.get("password") ?? "";
  if (password === "") return null;
  const expiry = Number(values.get("password_expiry_utc"));
  return { username, password, ...(Number.isSafeInteger(expiry) && expiry > 0 && { password_expiry_utc: expiry }) };
}

const withoutGit = (env: Readonly<Record<string, string | undefined>>): Record<string, string | undefined> =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith("GIT_")));

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
