// oxlint-disable unicorn/require-post-message-target-origin -- a thread's, not a window's
/**
 * Work on many bytes, done in a thread of its own: hashing, sealing, unpacking. There it has a second core, and a heap so small
 * that collecting it costs nothing: in the heap that holds a large repository's index, the buffers of a gigabyte would have the
 * whole of it marked hundreds of times. Little work is done where it is asked for, since a thread takes 50 ms to start.
 */
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { failureFrom, type Failure } from "./bulk-failure.ts";
import { JOBS, type Jobs } from "./bulk-jobs.ts";

/** Bytes from which on work is given away. */
export const BULK = 8 * 1024 * 1024;
/** A thread without work is ended after this (ms): it holds memory. */
const IDLE = 5_000;
/** In a bundle, the thread's program is a file of its own beside it: it loads in a third of the time of the whole. */
const PROGRAM = import.meta.url.endsWith(".ts") ? "./bulk-thread.ts" : "./hangar-agent-bulk.mjs";

type Kind = keyof Jobs;
export type Asked =
  | { readonly id: number; readonly kind: Kind; readonly input: Jobs[Kind]["input"] }
  | { readonly stop: number };
export type Answer =
  | { readonly id: number; readonly output: Jobs[Kind]["output"] }
  | { readonly id: number; readonly failure: Failure };

export interface BulkOptions {
  /** How many bytes it goes over, about. */
  readonly bytes: number;
  readonly signal?: AbortSignal | undefined;
}

/** Rejects with what the job throws, or with the signal's reason. */
export async function bulk<K extends Kind>(
  kind: K,
  input: Jobs[K]["input"],
  { bytes, signal }: BulkOptions,
): Promise<Jobs[K]["output"]> {
  if (bytes < BULK) return await JOBS[kind](input, signal);
  signal?.throwIfAborted();
  let thread = [...threads].sort((a, b) => a.busy - b.busy)[0];
  if (!thread || (thread.busy > 0 && threads.size < MOST)) threads.add((thread = new Thread()));
  return await thread.run(kind, input, signal);
}

/** Starts a thread ahead of work of about so many bytes, beside what comes before it. */
export function expectBulk(bytes: number): void {
  if (bytes < BULK || threads.size > 0) return;
  const thread = new Thread();
  threads.add(thread);
  thread.rest();
}

/** One for files and one for conversations; more would be memory. */
const MOST = Math.min(2, availableParallelism());
const threads = new Set<Thread>();

interface Waiting {
  readonly resolve: (output: never) => void;
  readonly reject: (error: unknown) => void;
}

class Thread {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #count = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor() {
    this.#worker = new Worker(new URL(PROGRAM, import.meta.url), {
      execArgv: [],
      resourceLimits: { maxYoungGenerationSizeMb: 4 },
    });
    this.#worker.on("message", (answer: Answer) => this.#settle(answer));
    this.#worker.on("error", (error) => this.#end(error as Error));
    this.#worker.on("exit", () => this.#end(new Error("the thread for bulk work ended")));
    this.#worker.unref();
  }

  get busy(): number {
    return this.#waiting.size;
  }

  async run<K extends Kind>(kind: K, input: Jobs[K]["input"], signal?: AbortSignal): Promise<Jobs[K]["output"]> {
    clearTimeout(this.#idle);
    const id = this.#count++;
    const stop = (): void => this.#worker.postMessage({ stop: id } satisfies Asked);
    signal?.addEventListener("abort", stop);
    this.#worker.ref();
    try {
      return await new Promise<Jobs[K]["output"]>((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        this.#worker.postMessage({ id, kind, input } satisfies Asked);
      });
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      if (this.#waiting.size === 0) this.rest();
    }
  }

  #settle(answer: Answer): void {
    const waiting = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if ("failure" in answer) waiting?.reject(failureFrom(answer.failure));
    else waiting?.resolve(answer.output as never);
  }

  /** Ends it, unless work comes. */
  rest(): void {
    this.#worker.unref();
    this.#idle = setTimeout(() => {
      if (this.#waiting.size > 0) return;
      threads.delete(this);
      void this.#worker.terminate();
    }, IDLE).unref();
  }

  #end(error: Error): void {
    threads.delete(this);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
