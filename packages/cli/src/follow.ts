/** Waiting for a session: until it is in some state, or until a turn of it has ended; saying meanwhile what goes on. */
import {
  HangarError,
  Session,
  type SessionEvent,
  type Turn,
  START_WORDS,
  startText,
  suspendWatch,
  turnEnded,
  turnSettled,
} from "@hangar/shared";
import type { Context } from "./context.ts";
import { EXIT, ExitWith, hangarError } from "./failure.ts";
import { firstLine, safe } from "./ui.ts";

/** Looked at this often even when no event comes, ms. */
const LOOK_EVERY = 3000;

export const getSession = (context: Context, ref: string): Promise<Session> =>
  context.client().call("GET", `/api/sessions/${encodeURIComponent(ref)}`, Session);

/** Until `is` says so. Ctrl-C stops the waiting, not the work. */
export function waitFor(
  context: Context,
  session: Session,
  what: string,
  is: (session: Session) => boolean,
): Promise<Session> {
  return watch(context, session, {
    over: is,
    event: (event) => {
      const line = progressOf(event, session.name);
      if (line !== null) context.ui.progress(line);
    },
    interrupted: `${session.name} goes on with it: \`${context.ui.prefix} session get ${session.name}\` shows how far it is`,
    what,
  });
}

/** Ready for work, or it cannot be. HangarError with the session's own line where it is not. */
export async function waitUntilReady(context: Context, session: Session): Promise<Session> {
  context.ui.progress(startLine(session));
  const ready = await waitFor(context, session, "to be ready", (now) => now.state !== "STARTING");
  context.ui.done();
  if (ready.state === "FAILED") throw await failedStart(context, ready);
  return ready;
}

export async function waitUntilSuspended(context: Context, session: Session): Promise<Session> {
  context.ui.progress(`${session.name}: suspending`);
  const isOver = suspendWatch();
  isOver(session);
  const now = await waitFor(context, session, "to be suspended", isOver);
  context.ui.done();
  if (now.state === "IDLE" || now.state === "FAILED")
    throw hangarError(
      "checkpoint_failed",
      `${now.name}: ${safe(now.status ?? "Not suspended: no checkpoint could be committed")}; its sandbox is left as it is`,
    );
  return now;
}

/** Shows a turn while it runs; its final record. Ctrl-C leaves it running and says so. */
export async function followTurn(context: Context, session: Session, turn: Turn, show: boolean): Promise<Turn> {
  const { ui } = context;
  ui.progress(session.state === "STARTING" ? startLine(session) : `${session.name}: waiting for its turn`);
  const turnOf = (now: Session): Turn | undefined => now.turns.find((one) => one.id === turn.id);
  const ended = (now: Session): boolean => turnEnded(turnOf(now));
  let settled = false;
  const now = await watch(context, session, {
    since: turn.queued_at,
    // Not before its end was read: what the agent said comes before it.
    decides: ({ event }) => {
      if (event.type === "turn_ended" && event.turn === turn.id) settled = true;
      return settled || event.type === "start_failed" || (event.type === "state" && event.state === "FAILED");
    },
    over: (now) => (now.state === "FAILED" && !ended(now)) || turnSettled(now, turn.id),
    event: ({ event }) => {
      if ("turn" in event && event.turn !== turn.id) return;
      if (event.type === "turn_output") {
        if (show) showOutput(context, event.output);
      } else {
        const line = progressOf({ event }, session.name);
        if (line !== null) ui.progress(line);
      }
    },
    interrupted: `the turn goes on: \`${ui.prefix} session get ${session.name}\` shows it, \`${ui.prefix} session cancel ${session.name}\` ends it`,
    what: "to end",
  });
  ui.done();
  if (!ended(now)) throw await failedStart(context, now);
  return turnOf(now) ?? turn;
}

interface Watch {
  /** From the log's entries at about this time on. */
  readonly since?: string;
  readonly over: (session: Session) => boolean;
  /** Whether the session is to be looked at after this event; none: after every one that changes it. */
  readonly decides?: (event: SessionEvent) => boolean;
  readonly event: (event: SessionEvent) => void;
  readonly interrupted: string;
  readonly what: string;
}

async function watch(context: Context, session: Session, options: Watch): Promise<Session> {
  if (options.over(session)) return session;
  const stop = new AbortController();
  const off = context.onInterrupt(() => {
    context.ui.done();
    context.ui.note(`hangar: ${options.interrupted}`);
    stop.abort(new ExitWith(EXIT.interrupted));
  });
  try {
    return await Promise.race([
      byEvents(context, session, options, stop.signal),
      byLooking(context, session, options, stop.signal),
    ]);
  } finally {
    off();
    stop.abort();
    context.ui.done();
  }
}

/** What changes a session's record is an event first: only then is it looked at. */
async function byEvents(context: Context, session: Session, options: Watch, signal: AbortSignal): Promise<Session> {
  const since = options.since === undefined ? null : Date.parse(options.since);
  // The log's ids begin with Redis's own clock, which may differ a little from the coordinator's.
  const from = since === null ? "$" : `${since - 5000}-0`;
  for await (const event of context.client().events(session.id, from, signal)) {
    if (since !== null && Date.parse(event.at) < since - 1) continue;
    options.event(event);
    if (!(options.decides ?? changes)(event)) continue;
    const now = await getSession(context, session.id);
    if (options.over(now)) return now;
  }
  signal.throwIfAborted();
  throw new HangarError("internal", `the events of ${session.name} ended`);
}

const changes = ({ event }: SessionEvent): boolean =>
  ["state", "turn_ended", "checkpoint", "start_failed"].includes(event.type);

async function byLooking(context: Context, session: Session, options: Watch, signal: AbortSignal): Promise<Session> {
  for (let first = true; ; first = false) {
    await pause(first ? 200 : LOOK_EVERY, signal);
    try {
      const now = await getSession(context, session.id);
      // What its start said before somebody listened.
      if (now.state === "STARTING") context.ui.progress(startLine(now));
      if (options.over(now)) {
        // Events that were asked for from a time on are all still to come, and say more.
        if (options.since !== undefined) await pause(LOOK_EVERY, signal);
        return now;
      }
    } catch (error) {
      // The events' reader knows how long to wait for a Hangar that is being started again.
      if (!(error instanceof HangarError && error.code === "not_running")) throw error;
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason as Error)), { once: true });
  });
}

/** What it did or waited for when it was looked at. */
const startLine = ({ name, status }: Session): string => `${name}: ${safe(firstLine(status ?? START_WORDS.starting))}`;

function progressOf({ event }: Pick<SessionEvent, "event">, name: string): string | null {
  switch (event.type) {
    case "phase":
      return `${name}: ${safe(firstLine(startText(event.phase, event.detail)))}`;
    case "state":
      return event.status ? `${name}: ${safe(firstLine(event.status))}` : null;
    case "restored":
      return event.source === "fresh"
        ? null
        : `${name}: ${event.source === "adopted" ? "took over the folder that was left" : "restored"}${event.verified ? ", verified" : ""}`;
    case "turn_started":
      return `${name}: the agent works`;
    case "turn_finished":
      return `${name}: taking a checkpoint`;
    case "checkpoint_failed":
      return `${name}: no checkpoint: ${safe(firstLine(event.error))}`;
    case "notice":
      return `${name}: ${safe(firstLine(event.text))}`;
    default:
      return null;
  }
}

type Output = Extract<SessionEvent["event"], { type: "turn_output" }>["output"];

/** What the agent says is the result; what it does meanwhile goes beside it. */
function showOutput({ ui }: Context, output: Output): void {
  switch (output.kind) {
    case "text":
      ui.write(safe(output.text).replace(/\n?$/, "\n"));
      return;
    case "tool_call":
      ui.note(ui.color.dim(`→ ${output.name} ${safe(firstLine(output.input)).slice(0, 200)}`));
      return;
    case "tool_result":
      if (output.is_error)
        ui.note(ui.color.dim(`← ${output.name} failed: ${safe(firstLine(output.output)).slice(0, 200)}`));
      return;
    case "retry":
      ui.note(
        ui.color.dim(`the model does not answer${output.status ? ` (${output.status})` : ""}: try ${output.attempt}`),
      );
      return;
    case "stderr":
      ui.note(ui.color.dim(safe(output.text).trimEnd()));
  }
}

/** The session says why in words; the kind of it is in its events. */
async function failedStart(context: Context, session: Session): Promise<HangarError> {
  let code = "internal";
  const stop = AbortSignal.timeout(2000);
  for await (const { event } of context.client().events(session.id, "0", stop)) {
    if (event.type === "start_failed") code = event.code;
    if (event.type === "state" && event.state === "FAILED" && event.status === session.status) break;
  }
  return hangarError(code, `${session.name} did not start: ${safe(session.status ?? "it says nothing")}`);
}
