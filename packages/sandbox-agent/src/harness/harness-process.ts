/** A harness's process: started in a group of its own, read as it speaks, stopped with everything it started. */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { constants } from "node:os";
import type { Redactor, TurnOutput } from "@hangar/shared";
import type { Command, Exit, OutputParser } from "./harness.ts";
import { type Process, stopProcesses } from "./processes.ts";
import { readOutput } from "./read-output.ts";

/** In the environment of everything that a turn starts; its value is new for every turn. */
export const TURN_MARK = "HANGAR_TURN_MARK";

/** `refused`: the API does not take the credential, and trying on, for minutes, would not change that. */
export type Stop = "cancelled" | "interrupted" | "timeout" | "refused";

const REFUSALS = new Set([401, 403]);
const REFUSALS_BORNE = 3;

export interface ProcessInput {
  /** Absolute path. */
  readonly program: string;
  readonly command: Command;
  readonly cwd: string;
  readonly parser: OutputParser;
  readonly signal: AbortSignal;
  readonly timeoutSeconds: number | null;
  readonly graceMs: number;
  readonly redact: Redactor;
  readonly onOutput: (output: TurnOutput) => void;
  readonly onStarted: (pid: number) => void;
}

export interface Ended {
  readonly exit: Exit;
  /** As a shell would say it: 128 + the signal's number for a signal. */
  readonly exitCode: number;
  readonly stderr: string;
  /** Why it was stopped; none when it ended by itself. */
  readonly stop: Stop | null;
  /** The API's status when it was stopped as `refused`. */
  readonly refusal: number | null;
  /** What could not be ended after a stop. */
  readonly left: readonly Process[];
}

/** Rejects only when the process cannot be started. */
export async function runProcess(input: ProcessInput): Promise<Ended> {
  const { command, signal, timeoutSeconds } = input;
  const mark = randomUUID();
  const child = spawn(input.program, command.argv.slice(1), {
    argv0: command.argv[0],
    cwd: input.cwd,
    env: { ...command.env, [TURN_MARK]: mark },
    detached: true,
    stdio: [command.stdin === null ? "ignore" : "pipe", "pipe", "pipe"],
  });
  const { pid, stdout, stderr } = child;
  const exited = new Promise<Exit>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  if (pid === undefined || stdout === null || stderr === null) {
    await exited;
    throw new Error("it did not start");
  }

  let stop: Stop | null = null;
  let refusal: number | null = null;
  let stopping: Promise<Process[]> | null = null;
  const stopTree = (): Promise<Process[]> =>
    stopProcesses({ leader: pid, mark: `${TURN_MARK}=${mark}`, graceMs: input.graceMs });
  const stopFor = (why: Stop): void => {
    if (stopping !== null) return;
    stop = why;
    stopping = stopTree();
    // Awaited below, once the process has ended; until then a failure must not end the daemon.
    stopping.catch(() => child.kill("SIGKILL"));
  };
  const onAbort = (): void => stopFor(signal.reason === "interrupted" ? "interrupted" : "cancelled");

  const onOutput = (output: TurnOutput): void => {
    input.onOutput(output);
    if (output.kind !== "retry" || output.attempt < REFUSALS_BORNE || !REFUSALS.has(output.status ?? 0)) return;
    refusal = output.status;
    stopFor("refused");
  };

  const output = readOutput({ stdout, stderr }, input.parser, input.redact, onOutput);
  // A process that ends without reading its input is no error of ours.
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(command.stdin);
  input.onStarted(pid);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const timer = timeoutSeconds === null ? undefined : setTimeout(() => stopFor("timeout"), timeoutSeconds * 1000);
  try {
    const exit = await exited;
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
    // One that something else killed (the memory ran out) has left its tools with nobody to read them.
    if (stop === null && exit.signal !== null) stopping = stopTree();
    const left = (await stopping) ?? [];
    return { exit, exitCode: exitCodeOf(exit), stderr: await output.finish(), stop, refusal, left };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

const exitCodeOf = ({ code, signal }: Exit): number => code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
