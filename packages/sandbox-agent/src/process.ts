/** Running a program: own process group, bounded output, stopped whole. */
import { spawn } from "node:child_process";
import { constants } from "node:os";

export interface RunOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed; none: stdin is /dev/null. */
  readonly stdin?: string;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Bytes kept of each stream, the first ones. What comes after is read and dropped. */
  readonly maxBytes?: number;
  /** `tail`: the last bytes are kept instead. */
  readonly keep?: "head" | "tail";
  readonly onStarted?: (pid: number) => void;
}

export interface Ran {
  /** 128 + signal number where a signal ended it. */
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly truncated: boolean;
  readonly timedOut: boolean;
}

const GRACE_MS = 3000;

/**
 * Resolves when the program has ended and its output is read; output that a process left behind keeps open is waited for
 * no longer than 250 ms. Rejects when it cannot be started (ENOENT, EACCES). A time-out or an abort ends its whole group.
 */
export function run(argv: readonly string[], options: RunOptions): Promise<Ran> {
  const maxBytes = options.maxBytes ?? 1024 * 1024;
  const child = spawn(argv[0]!, argv.slice(1), {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: [options.stdin === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  const stdout = new Bounded(maxBytes, options.keep ?? "head");
  const stderr = new Bounded(maxBytes, options.keep ?? "head");
  child.stdout!.on("data", (chunk: Buffer) => stdout.add(chunk));
  child.stderr!.on("data", (chunk: Buffer) => stderr.add(chunk));
  if (child.stdin) {
    child.stdin.on("error", () => undefined);
    child.stdin.end(options.stdin);
  }
  let timedOut = false;
  const stop = (): void => {
    if (child.pid !== undefined) endGroup(child.pid);
  };
  const timer =
    options.timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true;
          stop();
        }, options.timeoutMs);
  options.signal?.addEventListener("abort", stop, { once: true });
  if (child.pid !== undefined) {
    options.onStarted?.(child.pid);
    if (options.signal?.aborted) stop();
  }
  return new Promise<Ran>((resolve, reject) => {
    let drain: NodeJS.Timeout | undefined;
    const settle = (code: number | null, signal: NodeJS.Signals | null): void => {
      clearTimeout(drain);
      child.stdout!.destroy();
      child.stderr!.destroy();
      const truncated = stdout.truncated || stderr.truncated;
      resolve({ code: exitCode(code, signal), stdout: stdout.bytes(), stderr: stderr.bytes(), truncated, timedOut });
    };
    child.on("error", reject);
    child.on("exit", (code, signal) => {
      drain = setTimeout(() => settle(code, signal), 250);
    });
    child.on("close", settle);
  }).finally(() => {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", stop);
  });
}

/** SIGTERM to a process group, SIGKILL after a grace. Of one that is gone: nothing. */
export function endGroup(pid: number, graceMs = GRACE_MS): void {
  signalGroup(pid, "SIGTERM");
  setTimeout(() => signalGroup(pid, "SIGKILL"), graceMs).unref();
}

export function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // gone
  }
}

export const exitCode = (code: number | null, signal: NodeJS.Signals | null): number =>
  code ?? 128 + (signal === null ? 0 : (signals[signal] ?? 0));

const signals: Partial<Record<string, number>> = constants.signals;

class Bounded {
  readonly #most: number;
  readonly #keep: "head" | "tail";
  #chunks: Buffer[] = [];
  #size = 0;
  truncated = false;

  constructor(most: number, keep: "head" | "tail") {
    this.#most = most;
    this.#keep = keep;
  }

  add(chunk: Buffer): void {
    if (this.#keep === "tail") {
      this.#chunks.push(chunk);
      this.#size += chunk.length;
      if (this.#size > 2 * this.#most) this.#chunks = [this.bytes()];
      return;
    }
    const fits = chunk.subarray(0, Math.max(0, this.#most - this.#size));
    if (fits.length < chunk.length) this.truncated = true;
    if (fits.length > 0) this.#chunks.push(fits);
    this.#size += fits.length;
  }

  bytes(): Buffer {
    const all = Buffer.concat(this.#chunks);
    if (this.#keep === "head" || all.length <= this.#most) return all;
    this.truncated = true;
    this.#size = this.#most;
    return all.subarray(all.length - this.#most);
  }
}
