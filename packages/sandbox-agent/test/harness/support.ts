/** A home and a workspace of their own for harness tests, and a turn with everything that it said. */
import { redactor } from "@hangar/shared";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TurnOutput, TurnResult } from "@hangar/shared";
import type { Command, Harness } from "../../src/harness/harness.ts";
import { allProcesses, stopProcesses } from "../../src/harness/processes.ts";
import { runTurn, type TurnInput } from "../../src/harness/run-turn.ts";

export interface Sandbox extends AsyncDisposable {
  readonly home: string;
  readonly cwd: string;
}

/** Two of the same `root` are the same path in two sandboxes: only the home differs. */
export async function makeSandbox(cwd?: string): Promise<Sandbox> {
  const root = await mkdtemp(join(tmpdir(), "hangar-harness-"));
  const sandbox = { home: join(root, "home"), cwd: cwd ?? join(root, "workspace") };
  for (const folder of [sandbox.home, sandbox.cwd]) await mkdir(folder, { recursive: true });
  return { ...sandbox, [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }) };
}

export interface Told {
  readonly result: TurnResult;
  readonly outputs: TurnOutput[];
  /** Everything of one kind, joined. */
  readonly text: (kind?: "text" | "stderr") => string;
}

export type Saying = Partial<Omit<TurnInput, "harness" | "env">> & { message: string; env?: Record<string, string> };

export async function say(harness: Harness, sandbox: Sandbox, saying: Saying): Promise<Told> {
  const outputs: TurnOutput[] = [];
  const { onOutput, ...input } = saying;
  const result = await runTurn({
    home: sandbox.home,
    cwd: sandbox.cwd,
    preamble: null,
    model: null,
    harnessSession: null,
    timeoutSeconds: null,
    handoff: false,
    signal: new AbortController().signal,
    redact: redactor([]),
    onStarted: () => undefined,
    ...input,
    harness,
    env: { PATH: process.env["PATH"] ?? "", ...saying.env },
    onOutput: (output) => {
      outputs.push(output);
      onOutput?.(output);
    },
  });
  const text = (kind: "text" | "stderr" = "text"): string =>
    outputs.flatMap((output) => (output.kind === kind ? [output.text] : [])).join("");
  return { result, outputs, text };
}

/** Pids whose command line holds `text`. */
export async function running(text: string): Promise<number[]> {
  const all = await allProcesses();
  const lines = await Promise.all(all.map(({ pid }) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return all.flatMap(({ pid }, index) => (lines[index]?.replaceAll("\0", " ").includes(text) === true ? [pid] : []));
}

/** Calls `look` until it answers something true, for at most half a minute. */
export async function eventually<T>(look: () => Promise<T | false | null>): Promise<T> {
  for (let tries = 0; tries < 600; tries += 1) {
    const found = await look();
    if (found !== false && found !== null) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it did not come about within half a minute");
}

export interface Terminal extends AsyncDisposable {
  /** What is on the screen now. */
  screen(): Promise<string>;
}

/** Runs a command in a tmux of its own. */
export async function inTerminal(command: Command, { home, cwd }: Sandbox): Promise<Terminal> {
  const socket = join(home, "tmux");
  const mark = randomUUID();
  const tmux = (...args: string[]): Promise<{ stdout: string }> =>
    promisify(execFile)("tmux", ["-S", socket, ...args], { env: { ...command.env, TERMINAL_MARK: mark } });
  await tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "-c", cwd, "--", ...command.argv);
  return {
    screen: async () => (await tmux("capture-pane", "-p")).stdout,
    // The server too; and when it is over nothing writes into the home any more.
    [Symbol.asyncDispose]: async () => {
      await stopProcesses({ leader: null, mark: `TERMINAL_MARK=${mark}`, graceMs: 2000 });
    },
  };
}
