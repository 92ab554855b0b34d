/** What a failed call of a model's API is, and what to do about it, in one line. */
import { oneLine } from "./text.ts";

export interface ApiError {
  /** Of the harness, for people. */
  readonly title: string;
  readonly status: number | null;
  /** What the API or the harness said. */
  readonly detail: string;
  /** Names of the secrets that a credential may be given in, the usual one first. */
  readonly credentials: readonly string[];
  readonly tooLong?: boolean;
  /** The API failed on its side, also where no status says so. */
  readonly isDown?: boolean;
}

export function apiErrorLine(error: ApiError): string {
  const { title, status, detail, credentials, tooLong = false, isDown = false } = error;
  const said = oneLine(detail, 300) || "nothing more was said";
  if (tooLong || /prompt is too long|context[_ ]length|ran out of room|context window/i.test(detail)) {
    return `The conversation is too long for the model (${said}): send a shorter message, or /compact where ${title} knows it`;
  }
  if (status === 401 || status === 403) {
    return (
      `The model's API refused ${title}'s credential (${status}: ${said}): give a valid one with ` +
      `\`hangar secret set ${credentials[0] ?? "NAME"}\`, then suspend the session and send again`
    );
  }
  if (status === 429)
    return `A rate or usage limit of the model's API is reached (429: ${said}): wait, then send again`;
  if (isDown || (status !== null && status >= 500)) {
    return `The model's API failed on its side (${status === null ? "" : `${status}: `}${said}): send again in a while`;
  }
  if (status !== null) return `The model's API refused the request (${status}: ${said})`;
  return `${title} failed: ${said}`;
}

/** A process that ended without saying how its turn went. */
export function exitLine(title: string, exit: { code: number | null; signal: string | null }, stderr: string): string {
  const last = oneLine(stderr.trim().split("\n").at(-1) ?? "", 300);
  const how = exit.signal === null ? `ended with exit code ${exit.code ?? "unknown"}` : `was ended by ${exit.signal}`;
  const why = last === "" && exit.signal === "SIGKILL" ? "perhaps the memory ran out" : last;
  return `${title} ${how}${why === "" ? "" : `: ${why}`}`;
}
