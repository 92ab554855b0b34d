/** The sandbox's own tmux server: terminals attach to its sessions, and detaching leaves them alive. */
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isCode } from "../durable.ts";
import { run } from "../process.ts";

const SOCKET = "hangar";

/** `TMUX_TMPDIR` for a sandbox: in its state folder unless a socket's path would be over what the kernel takes. */
export function tmuxFolder(state: string, sandbox: string): string {
  const folders = [join(state, "tmux"), join(tmpdir(), sandbox), join("/tmp", sandbox)];
  const folder = folders.find((each) => Buffer.byteLength(each) <= LONGEST) ?? folders[2]!;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  return folder;
}

/** 104 bytes (macOS) less `/tmux-<uid>/<name>` and its end. */
const LONGEST = 70;

export class Tmux {
  readonly #env: Readonly<Record<string, string>>;
  readonly #cwd: string;

  constructor(env: Readonly<Record<string, string>>, cwd: string) {
    this.#env = env;
    this.#cwd = cwd;
  }

  async installed(): Promise<boolean> {
    return (await this.#tmux(["-V"])) === 0;
  }

  /** The program that attaches a terminal to a session, made when it is not there. */
  attach(session: string, command: readonly string[]): [string, ...string[]] {
    const made = ["new-session", "-A", "-s", session, "-c", this.#cwd, "--", ...command];
    const options = [
      "set-option",
      "-g",
      "default-terminal",
      "tmux-256color",
      ";",
      "set-option",
      "-g",
      "status",
      "off",
      ";",
    ];
    return ["tmux", "-u", "-L", SOCKET, ...options, ...made];
  }

  async has(session: string): Promise<boolean> {
    return (await this.#tmux(["-L", SOCKET, "has-session", "-t", `=${session}`])) === 0;
  }

  async attached(session: string): Promise<boolean> {
    const args = ["tmux", "-L", SOCKET, "list-clients", "-t", `=${session}`, "-F", "x"];
    const ran = await run(args, { cwd: "/", env: this.#env, timeoutMs: 5000 });
    return ran.code === 0 && ran.stdout.length > 0;
  }

  async end(session: string): Promise<void> {
    await this.#tmux(["-L", SOCKET, "kill-session", "-t", `=${session}`]);
  }

  async endAll(): Promise<void> {
    await this.#tmux(["-L", SOCKET, "kill-server"]);
  }

  async #tmux(args: readonly string[]): Promise<number> {
    try {
      return (await run(["tmux", ...args], { cwd: "/", env: this.#env, timeoutMs: 5000 })).code;
    } catch (error) {
      if (isCode(error, "ENOENT")) return 127;
      throw error;
    }
  }
}
