/** Waiting: with growing gaps, with jitter, and never past an abort. */
import { setTimeout as sleep } from "node:timers/promises";

/** Milliseconds to wait before attempt `n` (from 0): doubling from `first` up to `most`, with jitter of a half. */
export function backoff(n: number, first = 250, most = 10_000): number {
  const full = Math.min(most, first * 2 ** Math.min(n, 20));
  return full * (0.5 + Math.random() / 2);
}

/** Resolves after `ms`, or at once when aborted. Never rejects. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: signal ?? undefined }).catch(() => undefined);
}
