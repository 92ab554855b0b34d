/** Errors as RFC 9457 problems: `application/problem+json` with Hangar's `code` and the request's id. */
import { ERRORS, HangarError, redactor, type Problem } from "@hangar/shared";
import { z } from "zod";

export function problemResponse(thrown: unknown, requestId: string): Response {
  const error = asHangarError(thrown);
  const headers = new Headers({
    "content-type": "application/problem+json",
    "x-request-id": requestId,
    "cache-control": "no-store",
  });
  if (error.code === "unauthorized") headers.set("www-authenticate", "Bearer");
  if (error.retryable) headers.set("retry-after", "1");
  return new Response(JSON.stringify(toProblem(error, requestId)), { status: error.status, headers });
}

export const toProblem = (error: HangarError, requestId: string): Problem => ({
  type: `urn:hangar:error:${error.code}`,
  title: ERRORS[error.code].title,
  status: error.status,
  detail: hideCredentials(error.message),
  code: error.code,
  requestId,
});

/** A request that is quoted may have held one. */
const hideCredentials = redactor([]);

/**
 * Whatever was thrown, as an error that may be shown. What is not expected says nothing of its inside: it is logged with
 * the request's id instead.
 */
export function asHangarError(thrown: unknown): HangarError {
  if (thrown instanceof HangarError) return thrown;
  if (thrown instanceof z.ZodError) return new HangarError("invalid_request", describeZod(thrown), { cause: thrown });
  const errno = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  if (errno === "ENOSPC" || errno === "EDQUOT") {
    return new HangarError("disk_full", "The coordinator's disk is full: free some space and try again", {
      cause: thrown,
    });
  }
  return new HangarError("internal", "Something went wrong inside Hangar: its log has the request's id", {
    cause: thrown,
  });
}

/** The first thing that is wrong, in one line that names the field: `idle_minutes: expected number, received string`. */
export function describeZod(error: z.ZodError): string {
  const issue = error.issues[0];
  if (!issue) return ERRORS.invalid_request.title;
  if (issue.code === "unrecognized_keys") {
    const where = issue.path.length === 0 ? "" : ` in ${issue.path.join(".")}`;
    return oneLine(`there is no field ${issue.keys.map((key) => JSON.stringify(key)).join(", ")}${where}`);
  }
  const where = issue.path.length === 0 ? "the body" : issue.path.join(".");
  return oneLine(`${where}: ${issue.message.replace(/^Invalid input: /, "").replace(/^Invalid string: /, "")}`);
}

const oneLine = (text: string): string => text.replace(/\s+/g, " ").slice(0, 500);
