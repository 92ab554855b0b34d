/** Runs one turn of any harness: prepare, run, judge. */
import { stat } from "node:fs/promises";
import { HangarError, type Redactor, type TurnOutput, type TurnResult } from "@hangar/shared";
import { apiErrorLine } from "./api-errors.ts";
import { findProgram, requireProgram } from "./find-program.ts";
import { type Command, type Harness, LIMITS, type OutputParser, type Place, type TurnContext } from "./harness.ts";
import type { Transcript, Verdict } from "./harness.ts";
import { type Ended, runProcess, type Stop } from "./harness-process.ts";
import { cutMiddle, oneLine } from "./text.ts";

export interface TurnInput {
  readonly harness: Harness;
  readonly cwd: string;
  readonly home: string;
  /** The whole environment of the harness: PATH, variables and secrets. Nothing else is inherited. */
  readonly env: Readonly<Record<string, string>>;
  readonly message: string;
  /** Not joined to the message: what runs a message as a script must not run the preamble. */
  readonly preamble: string | null;
  readonly model: string | null;
  /** The conversation to go on with; none on the first turn. */
  readonly harnessSession: string | null;
  /** Goes on with a copy of it, under an id of its own; a harness that cannot copy goes on with it as it is. */
  readonly fork?: boolean;
  readonly timeoutSeconds: number | null;
  /**
   * The preamble is an account of the session: where the conversation is not there, a new one begins with it instead of the
   * turn being refused. Copied into the result.
   */
  readonly handoff: boolean;
  /**
   * Aborting stops the turn. `signal.reason === "interrupted"` (a freeze, a lost lease, the daemon's end) gives the state
   * `interrupted`; any other reason gives `cancelled`.
   */
  readonly signal: AbortSignal;
  /** Hides secrets in what `onOutput` is given. The transcript keeps them. */
  readonly redact: Redactor;
  readonly onOutput: (output: TurnOutput) => void;
  /** The harness's process runs. Not called when the turn fails before. */
  readonly onStarted: (pid: number) => void;
  /** The conversation's id, as soon as it is known, so that it survives a daemon that is killed during the turn. */
  readonly onConversation?: (id: string) => void;
  /** How long the harness may take to end when it is asked to, milliseconds; 5000 when not said. */
  readonly graceMs?: number;
}

/**
 * Never rejects for what a harness, a home or a missing program does: that is a `failed` result whose `error` is one line
 * with what to do. When it settles, a stopped turn has no process left; what a finished turn left running (a server that
 * the agent started) goes on. `conversation_lost` says that the harness does not hold the conversation that was asked for:
 * the next turn hands off. `harness_session` is what the next turn can resume; none when there is nothing to resume.
 */
export async function runTurn(input: TurnInput): Promise<TurnResult> {
  try {
    const prepared = await prepare(input);
    if ("refused" in prepared) return { ...nothingRan(input), ...prepared.refused };
    const ended = await runProcess({ ...input, ...prepared, graceMs: input.graceMs ?? 5000 });
    const verdict = await prepared.parser.end(ended.exit, ended.stderr);
    return await judge(input, prepared, ended, verdict);
  } catch (error) {
    if (error instanceof HangarError) return { ...nothingRan(input), error: error.message };
    const why = oneLine(error instanceof Error ? error.message : String(error));
    return { ...nothingRan(input), error: `${input.harness.title} could not run: ${why}` };
  }
}

interface Prepared {
  readonly context: TurnContext;
  readonly program: string;
  readonly command: Command;
  readonly parser: OutputParser;
  /** The transcript that the turn goes on with. */
  readonly before: Transcript | null;
}

/** What can be refused is refused here, before anything runs. */
async function prepare(input: TurnInput): Promise<Prepared | { refused: Partial<TurnResult> }> {
  const { harness } = input;
  const place: Place = { home: input.home, cwd: input.cwd, env: input.env };
  if (input.signal.aborted) {
    const state = input.signal.reason === "interrupted" ? "interrupted" : "cancelled";
    return { refused: { state, error: null } };
  }
  await requireProgram(harness, input.env);
  if (!(await isFolder(input.cwd))) throw new Error(`there is no folder ${input.cwd}`);
  const missing = await harness.missingCredential(place);
  if (missing !== null) return { refused: { error: missing } };

  const before = await transcriptToResume(harness, place, input.harnessSession);
  if (input.harnessSession !== null && before === null && !input.handoff) {
    const error =
      `The conversation ${oneLine(input.harnessSession, 80)} of ${harness.title} is not in this sandbox, so nothing was ` +
      "run: send again, and the next turn begins with an account of the session";
    return { refused: { error, conversation_lost: true, harness_session: null } };
  }
  // A handoff says all that a new conversation has to know.
  const known = before === null ? null : input.harnessSession;
  const fork = input.fork === true && harness.supportsFork ? known : null;
  const resume = fork === null ? known : null;

  await harness.seed(place);
  const fresh = resume === null ? harness.newConversation() : null;
  const context = {
    ...place,
    message: input.message,
    preamble: input.preamble,
    model: input.model,
    resume,
    fork,
    fresh,
  };
  const command = await harness.turn(context);
  const program = await findProgram(command.argv[0], command.env);
  if (program === null) throw new Error(`${command.argv[0]} is not on the sandbox's PATH`);
  const parser = announcing(await harness.parser(context), resume ?? fresh, input.onConversation);
  return { context, program, command, parser, before: fork === null ? before : null };
}

async function transcriptToResume(harness: Harness, place: Place, id: string | null): Promise<Transcript | null> {
  if (id === null || !harness.supportsResume || !harness.validConversation(id)) return null;
  await harness.relocate(place, id);
  return harness.transcript(place, id);
}

/** Tells the conversation's id as soon as it is known: now, or when the harness says it (another one, where it began anew). */
function announcing(
  parser: OutputParser,
  chosen: string | null,
  onConversation: (id: string) => void = () => undefined,
): OutputParser {
  let told = chosen;
  if (told !== null) onConversation(told);
  return {
    ...parser,
    line(text) {
      const outputs = parser.line(text);
      const id = parser.session();
      if (id !== null && id !== told) onConversation((told = id));
      return outputs;
    },
  };
}

async function judge(input: TurnInput, prepared: Prepared, ended: Ended, verdict: Verdict): Promise<TurnResult> {
  const { harness } = input;
  const { context, before } = prepared;
  const state = stateOf(ended.stop, verdict);
  const session = verdict.session ?? context.resume ?? context.fresh;
  const after =
    session !== null && harness.validConversation(session) ? await harness.transcript(context, session) : null;
  const beganAnew =
    context.resume !== null &&
    (verdict.unknownConversation || session !== context.resume || (after !== null && after.path !== before?.path));
  const lost = harness.supportsResume && (beganAnew || !hasGrown(before, after, state));
  return {
    state,
    exit_code: ended.exitCode,
    summary: verdict.summary === null ? null : cutMiddle(input.redact.excerpt(verdict.summary), LIMITS.summary),
    error: state === "done" ? null : errorOf(input, ended, verdict),
    harness_session: after === null || !harness.supportsResume ? null : session,
    conversation_lost: lost,
    handoff: input.handoff,
    usage: verdict.usage,
  };
}

/** A turn that was stopped or failed early may have written nothing; but nothing ever shrinks an append-only transcript. */
function hasGrown(before: Transcript | null, after: Transcript | null, state: TurnResult["state"]): boolean {
  const isDone = state === "done";
  if (after?.stamp !== undefined) return !isDone || after.stamp !== before?.stamp;
  const [was, is] = [before?.size ?? 0, after?.size ?? 0];
  return is > was || (!isDone && is === was);
}

function stateOf(stop: Stop | null, verdict: Verdict): TurnResult["state"] {
  if (stop === "cancelled" || stop === "interrupted") return stop;
  return stop !== null || verdict.error !== null ? "failed" : "done";
}

function errorOf({ harness, timeoutSeconds }: TurnInput, ended: Ended, { error }: Verdict): string | null {
  const { stop, left, refusal } = ended;
  const stuck = left.length === 0 ? null : `${left.length} processes could not be ended (${left[0]?.pid ?? ""} …)`;
  if (stop === "timeout") {
    const over = `The turn was stopped: it took longer than ${timeoutSeconds} s. Send again to go on, or allow more time`;
    return stuck === null ? over : `${over}; ${stuck}`;
  }
  if (stop === "refused") {
    const { title, credentials } = harness;
    return apiErrorLine({ title, status: refusal, detail: "time after time", credentials });
  }
  return stop === null ? error : stuck;
}

const isFolder = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );

const nothingRan = (input: TurnInput): TurnResult => ({
  state: "failed",
  exit_code: null,
  summary: null,
  error: null,
  harness_session: input.harnessSession,
  conversation_lost: false,
  handoff: input.handoff,
  usage: null,
});
