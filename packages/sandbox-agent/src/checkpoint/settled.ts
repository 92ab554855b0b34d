/** When a file's times say for certain that it is as it was looked at. */

/** A clock of files with parts of milliseconds ticks every 10 ms at most; one without may tick every 2 s. */
const FINE_MS = 20;
const COARSE_MS = 2000;

/**
 * Whether any change after the look would show in the file's change time: it lies far enough before the look for that.
 * @param ctimeMs ms since 1970, with its fraction
 * @param lookedMs when the file was looked at, ms since 1970
 */
export const isSettled = (ctimeMs: number, lookedMs: number): boolean =>
  lookedMs - ctimeMs > (ctimeMs % 1 === 0 ? COARSE_MS : FINE_MS);
