/**
 * Takes checkpoints, one at a time, and brings them to the coordinator. A checkpoint that was made but not yet committed
 * stays in the state folder with what is needed to commit it, over restarts too, until it is committed or superseded by
 * a newer one. Whoever asks while one is being taken gets the next one, together with all others who ask by then.
 */
import { HangarError, newCheckpointId } from "@hangar/shared";
import type { CheckpointOutcome, CheckpointReason } from "@hangar/shared";
import { backoff, pause } from "./backoff.ts";
import { createCheckpoint, fingerprintWorkspace } from "./checkpoint/engine.ts";
import type { Limits, ParentState, Workspace } from "./checkpoint/engine.ts";
import type { Conversation } from "./conversation-state.ts";
import type { Coordinator } from "./coordinator-http.ts";
import { isCode } from "./durable.ts";
import type { Log } from "./log.ts";
import { forgetPending, loadParent, loadPending, pendingFolder, saveParent, savePending } from "./pending.ts";
import type { Pending } from "./pending.ts";
import { push } from "./push.ts";

/** How long a coordinator or a store that is away is waited for when somebody waits for the answer. */
export const PATIENCE_MS = 20_000;

export interface CheckpointTask {
  readonly reason: CheckpointReason;
  readonly ifChanged: boolean;
  /** The turn it follows. */
  readonly turn: string | null;
  /** Nothing runs in the workspace any more. */
  readonly quiesced?: boolean;
  /** Without the rebuild that proves it: under SIGTERM, when time is short. */
  readonly unproved?: boolean;
  /** How long the coordinator and the store are waited for, milliseconds. */
  readonly patienceMs: number;
  /** While the link is down, it is waited for without end: nobody could be told of a failure anyway. */
  readonly waitForLink: boolean;
}

export interface CheckpointerOptions {
  readonly state: string;
  readonly coordinator: Coordinator;
  readonly workspace: Workspace;
  readonly session: string;
  readonly generation: number;
  readonly recipients: readonly string[];
  readonly limits: Limits;
  readonly conversation: Conversation;
  readonly log: Log;
  readonly linked: () => boolean;
  /** Resolves when the link is up, or aborted. */
  readonly nextLink: (signal: AbortSignal) => Promise<void>;
  readonly onFailed: (reason: CheckpointReason, error: string) => void;
  readonly onSuperseded: () => void;
}

interface Joined {
  task: CheckpointTask;
  outcome: Promise<CheckpointOutcome>;
}

export class Checkpointer {
  readonly #options: CheckpointerOptions;
  #stop = new AbortController();
  #parent: ParentState | null;
  #pending: Pending | null;
  #tail: Promise<unknown> = Promise.resolve();
  /** Asked for and not begun: others may join. */
  #next: Joined | null = null;
  #failing = false;
  /** Of a workspace that holds no work yet: an interval checkpoint of it is not worth a place. */
  #untouched: string | null = null;

  constructor(options: CheckpointerOptions) {
    this.#options = options;
    this.#parent = loadParent(options.state);
    this.#pending = loadPending(options.state);
  }

  /** What the workspace was just restored from: the parent of the next checkpoint. None: the next one is whole. */
  restoredFrom(parent: ParentState | null): void {
    this.#parent = parent;
    saveParent(this.#options.state, parent);
  }

  /** The workspace is as a fresh clone: nothing of it is anybody's work. */
  async untouched(): Promise<void> {
    await this.#serial(async () => {
      this.#untouched = await this.#fingerprint();
    }).catch((error: unknown) => this.#options.log.warn(`no fingerprint of the fresh workspace: ${line(error)}`));
  }

  /** Never rejects. */
  take(task: CheckpointTask): Promise<CheckpointOutcome> {
    if (task.quiesced === true || task.unproved === true) return this.#serial(() => this.#attempt(task));
    if (this.#next) {
      this.#next.task = merge(this.#next.task, task);
      return this.#next.outcome;
    }
    const joined: Joined = { task, outcome: Promise.resolve({ outcome: "failed", code: "internal", error: "" }) };
    joined.outcome = this.#serial(() => {
      this.#next = null;
      return this.#attempt(joined.task);
    });
    this.#next = joined;
    return joined.outcome;
  }

  /** Now and then, quietly: when there is work that the newest checkpoint lacks. */
  async interval(): Promise<void> {
    if (!this.#parent && !this.#pending && (await this.#isUntouched())) return;
    await this.take({ reason: "interval", ifChanged: true, turn: null, patienceMs: PATIENCE_MS, waitForLink: false });
  }

  /** Brings an uncommitted checkpoint of before to the coordinator, when there is one. Never rejects. */
  async flush(): Promise<void> {
    if (!this.#pending) return;
    await this.#serial(async () => {
      if (this.#pending) await this.#push(this.#pending, { patienceMs: PATIENCE_MS, waitForLink: false });
    }).catch((error: unknown) => this.#options.log.warn(`a kept checkpoint is not committed yet: ${line(error)}`));
  }

  /** Ends what waits for the coordinator; what is asked from now on is tried afresh. */
  interrupt(): void {
    this.#stop.abort(new HangarError("store_unavailable", "The daemon is being stopped"));
    this.#stop = new AbortController();
  }

  async #attempt(task: CheckpointTask): Promise<CheckpointOutcome> {
    try {
      const outcome = await this.#take(task);
      this.#failing = false;
      return outcome;
    } catch (error) {
      const failure = asFailure(error);
      if (failure.code === "stale_generation") this.#options.onSuperseded();
      this.#options.log.warn(`checkpoint (${task.reason}) failed: ${failure.message}`);
      // One that is tried again every few minutes says so once.
      if (task.reason !== "interval" || !this.#failing) this.#options.onFailed(task.reason, failure.message);
      this.#failing = true;
      return { outcome: "failed", code: failure.code, error: failure.message.slice(0, 4000) };
    }
  }

  async #take(task: CheckpointTask): Promise<CheckpointOutcome> {
    if (!(await this.#pendingHolds()) && !(await this.#make(task))) {
      return { outcome: "unchanged", checkpoint: this.#parent!.meta.checkpoint };
    }
    try {
      return await this.#push(this.#pending!, task);
    } catch (error) {
      // A parent that the coordinator no longer knows: the next one stands on its own.
      if (mayBeTaken(error) || this.#parent === null) throw error;
      this.#options.log.warn(`a checkpoint was refused and is made again, whole: ${line(error)}`);
      this.restoredFrom(null);
      await this.#make(task);
      return await this.#push(this.#pending!, task);
    }
  }

  /** Whether what was made before and not committed is still what is there. */
  async #pendingHolds(): Promise<boolean> {
    if (!this.#pending) return false;
    return this.#pending.commit.fingerprint === (await this.#fingerprint());
  }

  /** False: nothing changed since the parent. */
  async #make(task: CheckpointTask): Promise<boolean> {
    const { state, workspace, session, generation, recipients, limits, conversation } = this.#options;
    const checkpoint = newCheckpointId(Date.now());
    const result = await createCheckpoint(workspace, {
      checkpoint,
      session,
      generation,
      reason: task.reason,
      parent: this.#parent,
      ifChanged: task.ifChanged,
      recipients,
      limits,
      harnessSession: conversation.current?.session ?? null,
      turn: task.turn,
      quiesced: task.quiesced ?? false,
      prove: !(task.unproved ?? false),
      signal: this.#stop.signal,
      out: pendingFolder(state, checkpoint),
    });
    if (result.outcome === "unchanged") return false;
    this.#drop();
    this.#pending = savePending(state, result.made);
    return true;
  }

  async #push(pending: Pending, patience: Patience): Promise<CheckpointOutcome> {
    const { coordinator } = this.#options;
    try {
      await withPatience(patience, this.#options, this.#stop.signal, () =>
        push(coordinator, pending, this.#stop.signal),
      );
    } catch (error) {
      if (!mayBeTaken(error)) this.#drop();
      throw error;
    }
    this.restoredFrom(pending.next);
    this.#drop();
    return { outcome: "committed", checkpoint: pending.begin.checkpoint };
  }

  async #isUntouched(): Promise<boolean> {
    if (this.#untouched === null) return false;
    return await this.#serial(async () => {
      const now = await this.#fingerprint();
      return now === this.#untouched;
    }).catch(() => false);
  }

  #fingerprint(): Promise<string> {
    return fingerprintWorkspace(this.#options.workspace, { signal: this.#stop.signal });
  }

  #drop(): void {
    if (this.#pending) forgetPending(this.#options.state, this.#pending.begin.checkpoint);
    this.#pending = null;
  }

  #serial<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#tail.then(work);
    this.#tail = done.catch(() => undefined);
    return done;
  }
}

type Patience = Pick<CheckpointTask, "patienceMs" | "waitForLink">;

/** Tries again what may pass, until the patience is over. */
async function withPatience(
  { patienceMs, waitForLink }: Patience,
  link: Pick<CheckpointerOptions, "linked" | "nextLink">,
  signal: AbortSignal,
  attempt: () => Promise<void>,
): Promise<void> {
  let until = performance.now() + patienceMs;
  for (let tries = 0; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      signal.throwIfAborted();
      if (!isWaitedFor(error)) throw error;
      if (waitForLink && !link.linked()) {
        await link.nextLink(signal);
        until = performance.now() + patienceMs;
      } else if (performance.now() > until) throw error;
      await pause(backoff(tries), signal);
      signal.throwIfAborted();
    }
  }
}

const RANK: readonly CheckpointReason[] = ["interval", "manual", "turn", "suspend", "destroy"];

/** One checkpoint that does for both. */
function merge(a: CheckpointTask, b: CheckpointTask): CheckpointTask {
  const [low, high] = RANK.indexOf(a.reason) <= RANK.indexOf(b.reason) ? [a, b] : [b, a];
  return {
    reason: high.reason,
    ifChanged: a.ifChanged && b.ifChanged,
    turn: high.turn ?? low.turn,
    patienceMs: Math.max(a.patienceMs, b.patienceMs),
    waitForLink: a.waitForLink || b.waitForLink,
  };
}

/** May pass by itself in a while. */
const isWaitedFor = (error: unknown): boolean =>
  error instanceof HangarError && (error.retryable || error.code === "internal");

/** The same bytes may be taken later: also once somebody has made room on a full disk. */
const mayBeTaken = (error: unknown): boolean =>
  isWaitedFor(error) || (error instanceof HangarError && error.code === "disk_full");

function asFailure(error: unknown): HangarError {
  if (error instanceof HangarError) return error;
  if (isCode(error, "ENOSPC"))
    return new HangarError("disk_full", "The disk of the sandbox is full: no checkpoint fits", { cause: error });
  return new HangarError("internal", line(error), { cause: error });
}

const line = (error: unknown): string => (error instanceof Error ? error.message : String(error)).split("\n")[0]!;
