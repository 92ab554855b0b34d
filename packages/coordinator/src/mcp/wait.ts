/** Waits for a session on behalf of a tool call: bounded, and telling what goes on meanwhile. */
import { type ErrorCode, HangarError, isErrorCode, type Session, type SessionEvent, startText } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";

export interface Waiting {
  readonly sessions: Sessions;
  readonly owner: string;
  readonly session: string;
  readonly seconds: number;
  /** The call was given up. */
  readonly signal: AbortSignal;
  readonly onProgress: (line: string) => Promise<void>;
}

/** Looked at this often even when no event comes (ms). */
const LOOK = 3000;
/** Clients that count on signs of life hear one this often (ms). */
const SIGN_OF_LIFE = 10_000;

/**
 * The session as it is when `is` says so, or when the time is over.
 * @throws HangarError: it did not start, with the code and the line that its start failed with.
 */
export async function waitFor(waiting: Waiting, is: (session: Session) => boolean): Promise<Session> {
  let code: ErrorCode = "internal";
  const now = await wait(waiting, is, (told) => {
    if (isErrorCode(told)) code = told;
  });
  if (now.state !== "FAILED") return now;
  throw new HangarError(code, `${now.name} did not start: ${now.status ?? "see `hangar session get`"}`);
}

async function wait(
  waiting: Waiting,
  is: (session: Session) => boolean,
  onFailure: (code: string) => void,
): Promise<Session> {
  const { sessions, owner, session, seconds, signal, onProgress } = waiting;
  const stop = new AbortController();
  const over = AbortSignal.any([signal, stop.signal, AbortSignal.timeout(seconds * 1000)]);
  let now = await sessions.get(owner, session);
  if (is(now) || seconds === 0) return now;
  let wake = (): void => {};
  over.addEventListener("abort", () => wake());
  let said = Date.now();
  const tell = (line: string): Promise<void> => {
    said = Date.now();
    return onProgress(line);
  };
  const began = Date.now();
  const life = setInterval(() => {
    if (Date.now() - said >= SIGN_OF_LIFE) void tell(`goes on, for ${Math.round((Date.now() - began) / 1000)} s now`);
  }, 1000);
  const follow = async (): Promise<void> => {
    for await (const event of sessions.events(owner, session, "$", over)) {
      if (event.event.type === "start_failed") onFailure(event.event.code);
      const line = progressLine(event);
      if (line !== null) await tell(line);
      // What the agent says changes nothing that is waited for, and comes by the hundred.
      if (event.event.type !== "turn_output") wake();
    }
  };
  // The events end with the wait; what they tell is for people, and looking does not depend on it.
  const following = follow().catch(() => undefined);
  try {
    while (!over.aborted) {
      const woken = Promise.withResolvers<void>();
      wake = woken.resolve;
      const timer = setTimeout(woken.resolve, LOOK);
      try {
        now = await sessions.get(owner, session);
        if (is(now)) return now;
        // An end before this look woke nobody yet.
        if (!over.aborted) await woken.promise;
      } finally {
        clearTimeout(timer);
      }
    }
    return await sessions.get(owner, session);
  } finally {
    clearInterval(life);
    stop.abort();
    await following;
  }
}

/** None: nothing to say. */
function progressLine({ event }: SessionEvent): string | null {
  switch (event.type) {
    case "phase":
      return firstLine(startText(event.phase, event.detail));
    case "state":
      return event.status === null ? null : firstLine(event.status);
    case "turn_started":
      return "the agent works";
    case "turn_output": {
      const { output } = event;
      if (output.kind === "text") return firstLine(output.text) || null;
      return output.kind === "tool_call" ? `→ ${output.name}: ${firstLine(output.input)}` : null;
    }
    case "turn_finished":
      return "taking a checkpoint";
    default:
      return null;
  }
}

const firstLine = (text: string): string => (text.trim().split("\n")[0] ?? "").slice(0, 200);
