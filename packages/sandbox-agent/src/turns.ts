/**
 * Agent turns: one at a time, each run at most once. What a turn has come to is on disk before it is said, so that a daemon
 * that ends in the middle says the rest when it is back: a turn that was running is `interrupted`, never run again.
 */
import { join } from "node:path";
import { HangarError, redactResult, TurnId, TurnResult } from "@hangar/shared";
import type { AgentCommand, AgentEvent, CheckpointOutcome, Redactor } from "@hangar/shared";
import { z } from "zod";
import type { Conversation } from "./conversation-state.ts";
import { readJson, replaceFile } from "./durable.ts";
import type { Harnesses } from "./harness/registry.ts";
import { runTurn } from "./harness/run-turn.ts";
import type { Log } from "./log.ts";
import { endEarlierGroup } from "./processes.ts";
import type { Environment } from "./sandbox-env.ts";
import type { Spool } from "./spool.ts";

export type TurnCommand = Extract<AgentCommand, { kind: "turn" }>;

export interface TurnsOptions {
  readonly state: string;
  readonly home: string;
  readonly spool: Spool;
  readonly log: Log;
  readonly redact: Redactor;
  readonly conversation: Conversation;
  readonly harnesses: Harnesses;
  /** After the workspace is ready. */
  readonly place: () => { cwd: string; env: Environment };
  /** The checkpoint that follows a turn; `ran`: its harness did, and did not fail before. Never rejects. */
  readonly checkpoint: (turn: string, ran: boolean) => Promise<CheckpointOutcome>;
  /** A turn began or ended. */
  readonly onChange: () => void;
}

const Stage = z.discriminatedUnion("stage", [
  z.strictObject({ stage: z.literal("running"), turn: TurnId, seq: z.number(), pid: z.number().nullable() }),
  z.strictObject({ stage: z.literal("finished"), turn: TurnId, seq: z.number(), at: z.string(), result: TurnResult }),
  z.strictObject({
    stage: z.literal("settled"),
    turn: TurnId,
    seq: z.number(),
    checkpoint: z.string().nullable(),
    error: z.string().nullable(),
  }),
]);
type Stage = z.infer<typeof Stage>;

interface Running {
  readonly turn: string;
  readonly stop: AbortController;
  /** The harness has ended and `turn_finished` is said. */
  readonly finished: Promise<unknown>;
  readonly settled: Promise<void>;
}

export class Turns {
  readonly #options: TurnsOptions;
  readonly #path: string;
  #running: Running | null = null;
  #harnessRuns = false;

  constructor(options: TurnsOptions) {
    this.#options = options;
    this.#path = join(options.state, "turn.json");
  }

  /** The harness is at work. */
  get active(): boolean {
    return this.#harnessRuns;
  }

  /** The turn that has no checkpoint yet. */
  get unsettled(): string | null {
    return this.#running?.turn ?? null;
  }

  /** Whether this turn was begun here already: then it is never begun again. */
  knows(turn: string): boolean {
    return readJson(this.#path, Stage)?.turn === turn;
  }

  /** Returns when the turn is on record; it then runs by itself. Throws `wrong_state` while another one is not settled. */
  start(command: TurnCommand): void {
    if (this.#running) {
      throw new HangarError(
        "wrong_state",
        `Turn ${this.#running.turn} is still running in this sandbox: wait, or cancel it`,
      );
    }
    this.#save({ stage: "running", turn: command.turn, seq: this.#options.spool.next, pid: null });
    this.#emit({ type: "turn_started", turn: command.turn, at: new Date().toISOString() });
    this.#harnessRuns = true;
    this.#options.onChange();
    const stop = new AbortController();
    const finished = this.#run(command, stop.signal);
    const settled = finished.then((ran) => this.#settle(command.turn, ran));
    this.#running = { turn: command.turn, stop, finished, settled };
  }

  /** Resolves when the harness has ended. Of a turn that does not run: nothing. */
  async cancel(turn: string): Promise<void> {
    if (this.#running?.turn !== turn) return;
    this.#running.stop.abort("cancelled");
    await this.#running.finished;
  }

  /** Stops what runs, as `interrupted`. Resolves when the harness has ended. */
  async interrupt(): Promise<void> {
    this.#running?.stop.abort("interrupted");
    await this.#running?.finished;
  }

  /** Resolves when no turn waits for its checkpoint. */
  async settled(): Promise<void> {
    await this.#running?.settled;
  }

  /** Says what an earlier daemon of this sandbox left unsaid. Call once, when the workspace is ready. */
  async recover(): Promise<void> {
    const stage = readJson(this.#path, Stage);
    if (!stage) return;
    const said = this.#options.spool.next > stage.seq;
    if (stage.stage === "settled") {
      if (!said)
        this.#emit({ type: "turn_settled", turn: stage.turn, checkpoint: stage.checkpoint, error: stage.error });
      return;
    }
    if (stage.stage === "running") {
      if (!said) this.#emit({ type: "turn_started", turn: stage.turn, at: new Date().toISOString() });
      if (stage.pid !== null) endEarlierGroup(stage.pid);
      this.#finish(stage.turn, interrupted(await this.#conversation()));
    } else if (!said) {
      this.#emit({ type: "turn_finished", turn: stage.turn, at: stage.at, result: stage.result });
    }
    const settled = this.#settle(stage.turn, stage.stage === "finished" || stage.pid !== null);
    this.#running = { turn: stage.turn, stop: new AbortController(), finished: Promise.resolve(), settled };
  }

  /** The conversation that can be gone on with: one that has left a transcript. */
  async #conversation(): Promise<string | null> {
    const { conversation, place, home } = this.#options;
    const { harness, session } = conversation.current ?? { harness: "", session: null };
    if (session === null) return null;
    try {
      const transcript = await this.#options.harnesses(harness).transcript({ home, ...place() }, session);
      return transcript === null ? null : session;
    } catch {
      return null;
    }
  }

  /** Whether the harness ran. */
  async #run(command: TurnCommand, signal: AbortSignal): Promise<boolean> {
    const { spool, conversation, place, home, redact } = this.#options;
    let result: TurnResult;
    let ran = false;
    try {
      const harness = this.#options.harnesses(command.harness);
      result = await runTurn({
        harness,
        home,
        ...place(),
        message: command.message,
        preamble: command.preamble,
        model: command.model,
        harnessSession: command.harness_session,
        fork: command.fork,
        timeoutSeconds: command.timeout_seconds,
        handoff: command.handoff,
        signal,
        redact,
        onOutput: (output) => spool.add({ type: "turn_output", turn: command.turn, output }),
        onConversation: (session) => conversation.set({ harness: command.harness, session }),
        onStarted: (pid) => {
          ran = true;
          this.#save({ stage: "running", turn: command.turn, seq: 0, pid });
        },
      });
      conversation.set({ harness: command.harness, session: result.harness_session });
    } catch (error) {
      result = { ...interrupted(command.harness_session), state: "failed", error: oneLine(error) };
    }
    this.#harnessRuns = false;
    this.#finish(command.turn, result);
    this.#options.onChange();
    return ran;
  }

  #finish(turn: string, ended: TurnResult): void {
    const result = redactResult(ended, this.#options.redact);
    const at = new Date().toISOString();
    this.#save({ stage: "finished", turn, seq: this.#options.spool.next, at, result });
    this.#emit({ type: "turn_finished", turn, at, result });
  }

  async #settle(turn: string, ran: boolean): Promise<void> {
    const outcome = await this.#options.checkpoint(turn, ran);
    const checkpoint = outcome.outcome === "committed" ? outcome.checkpoint : null;
    const error = outcome.outcome === "failed" ? outcome.error : null;
    this.#save({ stage: "settled", turn, seq: this.#options.spool.next, checkpoint, error });
    this.#emit({ type: "turn_settled", turn, checkpoint, error });
    this.#running = null;
    this.#options.onChange();
  }

  #emit(event: AgentEvent): void {
    this.#options.spool.add(event);
  }

  /** A full disk must not end the turn: it is then only not known after a restart. */
  #save(stage: Stage): void {
    try {
      replaceFile(this.#path, JSON.stringify(stage));
    } catch (error) {
      this.#options.log.error(`the turn's state could not be written: ${oneLine(error)}`);
    }
  }
}

const interrupted = (session: string | null): TurnResult => ({
  state: "interrupted",
  exit_code: null,
  summary: null,
  error: "The sandbox's daemon ended during this turn. What it had done is kept; send a message to go on",
  harness_session: session,
  conversation_lost: false,
  handoff: false,
  usage: null,
});

const oneLine = (error: unknown): string => (error instanceof Error ? error.message : String(error)).split("\n")[0]!;
