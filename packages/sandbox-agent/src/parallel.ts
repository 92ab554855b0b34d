/** Works on a list with a few at once; the first failure stops the rest and is thrown when all have ended. */
export async function inParallel<T>(
  atOnce: number,
  items: readonly T[],
  signal: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const queue = items.values();
  let failure: { error: unknown } | null = null;
  const worker = async (): Promise<void> => {
    for (const item of queue) {
      if (failure !== null || signal.aborted) return;
      try {
        await work(item, either);
      } catch (error) {
        failure ??= { error };
        failed.abort(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
  signal.throwIfAborted();
  if (failure !== null) throw (failure as { error: unknown }).error;
}
