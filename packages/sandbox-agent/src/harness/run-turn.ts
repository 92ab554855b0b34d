/** Runs one turn of any harness: start, stream, judge, stop without leaving a process behind. */
import type { TurnOutput, TurnResult } from "@hangar/shared";
import type { Harness } from "./harness.ts";

export interface TurnInput {
  readonly harness: Harness;
  readonly cwd: string;
  readonly home: string;
  /** The whole environment of the harness: PATH, variables and secrets. Nothing else is inherited. */
  readonly env: Readonly<Record<string, string>>;
  readonly message: string;
  /** Not joined to the message: what runs a message as a script must not run the preamble. */
  readonly preamble: string | null;
  readonly model: string | null;
  /** The conversation to go on with; none on the first turn. */
  readonly harnessSession: string | null;
  readonly timeoutSeconds: number | null;
  /** Copied into the result. */
  readonly handoff: boolean;
  /**
   * Aborting stops the turn. `signal.reason === "interrupted"` (a freeze, a lost lease, the daemon's end) gives the state
   * `interrupted`; any other reason gives `cancelled`.
   */
  readonly signal: AbortSignal;
  readonly onOutput: (output: TurnOutput) => void;
  /** The harness's process runs. Not called when the turn fails before. */
  readonly onStarted: (pid: number) => void;
}

/**
 * Never rejects for what a harness, a home or a missing program does: that is a `failed` result whose `error` is one line
 * with what to do. When it settles, a stopped turn has no process left.
 */
export async function runTurn(_input: TurnInput): Promise<TurnResult> {
  throw new Error("being built");
}
