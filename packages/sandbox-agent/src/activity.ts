/** The four signals that keep a session awake. What the daemon does for itself is none of them. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Activity } from "@hangar/shared";
import { run } from "./process.ts";

export interface ActivityOptions {
  /** `TMUX_TMPDIR` of the sandbox: every tmux server of it has its socket below. */
  readonly tmuxFolder: string;
  readonly env: () => Readonly<Record<string, string>>;
  readonly turnRunning: () => boolean;
}

export class ActivityWatch {
  readonly #options: ActivityOptions;
  /** The process of each of Hangar's own terminals. */
  readonly #terminals = new Set<number>();
  #usedAt: number | null = null;
  #clients: { at: number; count: Promise<number> } | null = null;

  constructor(options: ActivityOptions) {
    this.#options = options;
  }

  /** A keystroke or an exec used the sandbox just now. */
  touch(): void {
    this.#usedAt = Date.now();
  }

  terminalOpened(pid: number): void {
    this.#terminals.add(pid);
    this.touch();
  }

  terminalClosed(pid: number): void {
    this.#terminals.delete(pid);
    this.touch();
  }

  async now(): Promise<Activity> {
    return {
      turn_running: this.#options.turnRunning(),
      terminals_open: this.#terminals.size,
      tmux_clients: await this.#tmuxClients(),
      last_used_at: this.#usedAt === null ? null : new Date(this.#usedAt).toISOString(),
    };
  }

  /** Asked at most every two seconds. */
  #tmuxClients(): Promise<number> {
    const now = performance.now();
    if (!this.#clients || now - this.#clients.at > 2000) this.#clients = { at: now, count: this.#countClients() };
    return this.#clients.count;
  }

  async #countClients(): Promise<number> {
    const counts = await Promise.all(tmuxSockets(this.#options.tmuxFolder).map((socket) => this.#clientsOf(socket)));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  async #clientsOf(socket: string): Promise<number> {
    try {
      const ran = await run(["tmux", "-S", socket, "list-clients", "-F", "#{client_pid}"], {
        cwd: "/",
        env: this.#options.env(),
        timeoutMs: 2000,
      });
      if (ran.code !== 0) return 0;
      const pids = ran.stdout.toString("utf8").split("\n").filter(Boolean).map(Number);
      return pids.filter((pid) => !this.#terminals.has(pid)).length;
    } catch {
      return 0; // no tmux, so no clients of it
    }
  }
}

function tmuxSockets(folder: string): string[] {
  try {
    const own = join(folder, `tmux-${process.getuid?.() ?? 0}`);
    return readdirSync(own).map((name) => join(own, name));
  } catch {
    return [];
  }
}
