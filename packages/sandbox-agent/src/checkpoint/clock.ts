/** Seconds by phase, for reports. */

export class Clock {
  readonly seconds: Record<string, number> = {};
  readonly #start = performance.now();
  async time<T>(phase: string, work: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.seconds[phase] = round((this.seconds[phase] ?? 0) + (performance.now() - start) / 1000);
    }
  }
  total(): Record<string, number> {
    return { ...this.seconds, total: round((performance.now() - this.#start) / 1000) };
  }
}
export const round = (seconds: number): number => Math.round(seconds * 10_000) / 10_000;
