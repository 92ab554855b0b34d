/** Timing in pairs: what is measured and what a user would take instead run in turn, so that a slow moment hits both. */
import { performance } from "node:perf_hooks";

export interface Pair {
  /** Milliseconds, medians. */
  readonly ours: number;
  readonly theirs: number;
  /** Medians pair by pair: of the ratios, and of what ours takes longer, milliseconds. */
  readonly ratio: number;
  readonly difference: number;
  readonly runs: number;
}

export const median = (values: readonly number[]): number => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
};

export async function timed(run: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await run();
  return performance.now() - start;
}

/** `before` prepares each pair and `between` its second half, untimed. One pair more than `runs` is run first and not counted. */
export async function inPairs(
  runs: number,
  sides: {
    before?: () => Promise<void>;
    ours: () => Promise<unknown>;
    between?: () => Promise<void>;
    theirs: () => Promise<unknown>;
  },
): Promise<Pair> {
  const ours: number[] = [];
  const theirs: number[] = [];
  for (let i = 0; i <= runs; i++) {
    await sides.before?.();
    const a = await timed(sides.ours);
    await sides.between?.();
    const b = await timed(sides.theirs);
    if (i === 0) continue;
    ours.push(a);
    theirs.push(b);
  }
  return {
    ours: median(ours),
    theirs: median(theirs),
    ratio: median(ours.map((value, i) => value / (theirs[i] ?? 1))),
    difference: median(ours.map((value, i) => value - (theirs[i] ?? value))),
    runs,
  };
}
