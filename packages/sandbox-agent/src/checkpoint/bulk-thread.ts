// oxlint-disable unicorn/require-post-message-target-origin -- a thread's, not a window's
/** The program of a thread for bulk work: jobs come in as messages, and each is answered with one. */
import { parentPort } from "node:worker_threads";
import { failureOf } from "./bulk-failure.ts";
import { JOBS } from "./bulk-jobs.ts";
import type { Answer, Asked } from "./bulk.ts";

const running = new Map<number, AbortController>();

parentPort?.on("message", (asked: Asked) => {
  if ("stop" in asked) running.get(asked.stop)?.abort();
  else void answer(asked).then((answered) => parentPort?.postMessage(answered));
});

async function answer({ id, kind, input }: Exclude<Asked, { stop: number }>): Promise<Answer> {
  const stopping = new AbortController();
  running.set(id, stopping);
  try {
    return { id, output: await JOBS[kind](input as never, stopping.signal) };
  } catch (error) {
    return { id, failure: failureOf(error) };
  } finally {
    running.delete(id);
  }
}
