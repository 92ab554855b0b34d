/** Freezing: no new work, nothing running, a checkpoint of what is there; and back, when no checkpoint could be committed. */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { CheckpointOutcome } from "@hangar/shared";
import { pause } from "./backoff.ts";
import { PATIENCE_MS } from "./checkpointer.ts";
import type { Checkpointer } from "./checkpointer.ts";
import { replaceFile } from "./durable.ts";
import type { Log } from "./log.ts";
import { continueLeftovers, endLeftovers, stopLeftovers } from "./processes.ts";
import type { Terminals } from "./terminal/terminals.ts";
import type { Turns } from "./turns.ts";

export interface FreezerOptions {
  /** Of its processes. */
  readonly mark: string;
  readonly state: string;
  readonly turns: Turns;
  readonly terminals: Terminals;
  readonly checkpointer: Checkpointer;
  readonly log: Log;
  /** Pushes the branch to its remote. Never rejects. */
  readonly push: () => Promise<void>;
  readonly onChange: () => void;
}

export class Freezer {
  readonly #options: FreezerOptions;
  readonly #path: string;
  #frozen: boolean;
  #running: Promise<CheckpointOutcome> | null = null;
  #work = new AbortController();

  constructor(options: FreezerOptions) {
    this.#options = options;
    this.#path = join(options.state, "frozen");
    this.#frozen = existsSync(this.#path);
  }

  get frozen(): boolean {
    return this.#frozen;
  }

  /** The freeze that is being carried out. */
  get running(): Promise<CheckpointOutcome> | null {
    return this.#running;
  }

  /** Fires when what runs now must end. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  /** Throws `wrong_state` while frozen. */
  refuse(what: string): void {
    if (this.#frozen)
      throw new HangarError("wrong_state", `The sandbox is being suspended: ${what}. Open the session again`);
  }

  /** On failure it is thawed again. A second freeze joins the one that runs. Never rejects. */
  freeze(reason: "suspend" | "destroy", push: boolean, keep = false): Promise<CheckpointOutcome> {
    this.#running ??= this.#freeze(reason, push, keep).finally(() => (this.#running = null));
    return this.#running;
  }

  thaw(): void {
    if (!this.#frozen) return;
    this.#frozen = false;
    rmSync(this.#path, { force: true });
    void continueLeftovers(this.#options.mark);
    this.#work = new AbortController();
    this.#options.terminals.reopen();
    this.#options.onChange();
  }

  /**
   * The daemon is told to end: a last checkpoint, without proof, of what there is when `mostMs` allows. Never rejects.
   * Frozen already, there is nothing left to do.
   */
  async last(mostMs: number): Promise<void> {
    const { checkpointer, turns, log } = this.#options;
    if (this.#frozen && !this.#running) return;
    this.#running ??= this.#last(mostMs);
    const over = pause(mostMs).then(() => "over" as const);
    const outcome = await Promise.race([this.#running, over]);
    checkpointer.interrupt();
    if (outcome === "over") return log.warn("no last checkpoint could be committed in time");
    await Promise.race([turns.settled(), pause(1000)]);
  }

  async #last(mostMs: number): Promise<CheckpointOutcome> {
    const { turns, checkpointer } = this.#options;
    checkpointer.interrupt();
    await this.still();
    const task = { reason: "destroy", ifChanged: true, quiesced: true, unproved: true, waitForLink: false } as const;
    return await checkpointer.take({ ...task, turn: turns.unsettled, patienceMs: mostMs });
  }

  /** Refuses new work and ends everything that runs, daemons of the user's included; or stops it as it is. */
  async still(keep = false): Promise<void> {
    const { mark, turns, terminals, log } = this.#options;
    this.#frozen = true;
    this.#options.onChange();
    this.#work.abort();
    await turns.interrupt();
    await terminals.closeAll(keep);
    if (keep) return await stopLeftovers(mark);
    const stubborn = await endLeftovers(mark);
    if (stubborn.length > 0) log.warn(`processes that do not end: ${stubborn.join(", ")}`);
  }

  async #freeze(reason: "suspend" | "destroy", push: boolean, keep: boolean): Promise<CheckpointOutcome> {
    const { turns, checkpointer } = this.#options;
    try {
      this.#remember();
      await this.still(keep);
      if (push) await this.#options.push();
      const outcome = await checkpointer.take({
        reason,
        ifChanged: true,
        turn: turns.unsettled,
        quiesced: true,
        patienceMs: PATIENCE_MS,
        waitForLink: false,
      });
      if (outcome.outcome === "failed") this.thaw();
      return outcome;
    } catch (error) {
      this.thaw();
      return { outcome: "failed", code: "internal", error: error instanceof Error ? error.message : String(error) };
    }
  }

  #remember(): void {
    try {
      replaceFile(this.#path, "");
    } catch {
      // a full disk: a restarted daemon is then not frozen, and is told again
    }
  }
}
