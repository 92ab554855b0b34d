/** How a failure ends: one line on standard error that says what is wrong and what to do, and an exit code by its kind. */
import { CommanderError } from "commander";
import { ERRORS, HangarError, isErrorCode } from "@hangar/shared";

/** Exit codes; also in `hangar --help`. */
export const EXIT = {
  failed: 1,
  usage: 2,
  not_running: 3,
  not_found: 4,
  conflict: 5,
  refused: 6,
  unauthorized: 7,
  unavailable: 8,
  interrupted: 130,
} as const;

export const EXIT_HELP = `Exit codes: 0 done, 1 the turn or command failed, 2 wrong usage, 3 Hangar is not running, 4 no such thing,
  5 its state or name does not allow that, 6 refused (clone, set-up, a missing program or secret), 7 wrong token,
  8 something is unavailable for now, 130 interrupted by Ctrl-C.`;

/** A command that ends with a code of its own, having said what there is to say. */
export class ExitWith extends Error {
  readonly exitCode: number;
  constructor(exitCode: number) {
    super(`exit ${exitCode}`);
    this.exitCode = exitCode;
  }
}

/** The line for people (none: it was said already) and the exit code. */
export function describeFailure(error: unknown): { line: string | null; exitCode: number } {
  if (error instanceof ExitWith) return { line: null, exitCode: error.exitCode };
  // commander has written its own line, help or version
  if (error instanceof CommanderError) return { line: null, exitCode: error.exitCode === 0 ? 0 : EXIT.usage };
  if (error instanceof HangarError) return { line: oneLine(error.message), exitCode: exitCodeOf(error) };
  const message = error instanceof Error ? error.message : String(error);
  return { line: oneLine(message), exitCode: EXIT.failed };
}

function exitCodeOf(error: HangarError): number {
  if (error.code === "not_running") return EXIT.not_running;
  const { status } = ERRORS[error.code];
  if (status === 401 || status === 403) return EXIT.unauthorized;
  if (status === 400 || status === 405 || status === 413) return EXIT.usage;
  if (status === 404 || status === 410) return EXIT.not_found;
  if (status === 409) return EXIT.conflict;
  if (status === 422) return EXIT.refused;
  return status >= 502 ? EXIT.unavailable : EXIT.failed;
}

/** A code that this version does not know, from a newer Hangar, is still an error with its text. */
export const hangarError = (code: string, message: string): HangarError =>
  new HangarError(isErrorCode(code) ? code : "internal", message);

export const oneLine = (text: string): string => text.replace(/\s*\n\s*/g, " ").trim();
