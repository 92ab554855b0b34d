/**
 * The port to a coding agent's command-line program. An adapter is one file that says how a harness is found, prepared, started,
 * read and judged; `run-turn.ts` runs any of them, `registry.ts` finds them by name.
 *
 * An adapter holds no state between turns: what it needs to know is in the home of the sandbox, which a checkpoint restores.
 */
import type { TurnOutput, Usage } from "@hangar/shared";

/** Where a harness runs. */
export interface Place {
  /** The sandbox's home: `HOME` of everything that runs in it. */
  readonly home: string;
  /** The repo's folder, absolute. */
  readonly cwd: string;
  /** The environment that a turn starts from: PATH, the environment's variables and its secrets. */
  readonly env: Readonly<Record<string, string>>;
}

export interface TurnContext extends Place {
  readonly message: string;
  /** Said before the message: what is not as the agent remembers, or a handoff. `spoken` joins them for an agent. */
  readonly preamble: string | null;
  readonly model: string | null;
  /** The conversation to go on with; none on the first turn. */
  readonly resume: string | null;
  /** The conversation to copy and go on with under an id of its own; only where `supportsFork`. */
  readonly fork: string | null;
  /** The id chosen for a new conversation; none when it resumes, or when the harness chooses. */
  readonly fresh: string | null;
}

/** A process to start. It inherits nothing but what is here. */
export interface Command {
  readonly argv: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed; none: stdin is /dev/null. */
  readonly stdin: string | null;
}

export interface Transcript {
  readonly path: string;
  /** Bytes. */
  readonly size: number;
  /** Of a store that is written in place (SQLite), whose size tells nothing: another one after every write. */
  readonly stamp?: string;
}

/** How a harness's process ended: exactly one is set. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** What the output of one turn amounts to, judged by its content and not by the exit code alone. */
export interface Verdict {
  /** Why the turn failed, in one line, with what to do; none when it succeeded. */
  readonly error: string | null;
  /** The conversation id the harness says it used; none when it did not say. */
  readonly session: string | null;
  /** The last assistant message. */
  readonly summary: string | null;
  /** Of this turn alone. */
  readonly usage: Usage | null;
  /** The harness itself says that it does not know the conversation. */
  readonly unknownConversation: boolean;
}

/** Reads one turn's output. Made anew for every turn. */
export interface OutputParser {
  /** Shown once the process runs, before its own output. */
  readonly opening: readonly TurnOutput[];
  /** stdout is plain text: `line` gets one or more whole lines at once, and an overlong one is cut instead of left out. */
  readonly plain: boolean;
  /** The conversation id that the harness has said so far; none before it says one. */
  session(): string | null;
  /** One line of stdout, without its end. Never throws: a line that makes no sense is shown as it is, or skipped. */
  line(line: string): TurnOutput[];
  /** After the last line. `stderr` is the tail of the other stream. Called once, also after a kill; may end the transcript. */
  end(exit: Exit, stderr: string): Promise<Verdict>;
}

/** The files that are the conversation, below the home: an allow-list for checkpoints. */
export interface ConversationFiles {
  /** Folders to walk, relative to the home, without a slash at the end. They need not exist. */
  readonly roots: readonly string[];
  /** Whether a file (relative to the home, `/` between parts) travels. Never true for credentials or settings. */
  readonly keeps: (path: string) => boolean;
}

export interface Harness {
  /** `claude`, `codex`, `pi`, `script` … */
  readonly name: string;
  /** For people: `Claude Code`. */
  readonly title: string;
  /** The program looked for on PATH, and how to get it. */
  readonly install: {
    readonly program: string;
    /** The npm package; none where there is none. */
    readonly npm: string | null;
    /** One line that says how to install it. */
    readonly hint: string;
    /** Versions that this adapter was tried with. */
    readonly versions: string;
  };
  readonly supportsResume: boolean;
  /** A turn may go on with a copy of a conversation; the one that is copied stays as it is. */
  readonly supportsFork: boolean;
  /** Secrets that its credential may be given in, the usual one first; for advice. None where it needs none. */
  readonly credentials: readonly string[];
  readonly conversation: ConversationFiles;

  /**
   * Writes what a fresh home needs so that neither a turn nor an interactive resume stops at a dialog. Never credentials.
   * Keeps what is there already; may be called before every turn.
   */
  seed(place: Place): Promise<void>;
  /** Variables that every process of the sandbox should have, shells included, so that all see the same conversations. */
  environment(place: Place): Record<string, string>;
  /** One line that says which credential is missing and how to give it; none when a turn may run. */
  missingCredential(place: Place): Promise<string | null>;
  /** An id for a new conversation; none when the harness chooses its own and says it in the output. */
  newConversation(): string | null;
  /** Whether `id` could be a conversation of this harness: anything else is refused before it becomes an argument. */
  validConversation(id: string): boolean;
  /** The file that holds a conversation, wherever in the home it is; none when it is not there or empty. */
  transcript(place: Place, id: string): Promise<Transcript | null>;
  /** Puts a conversation where a run in `place.cwd` finds it, with a fresh file time. Idempotent; no-op when it is not there. */
  relocate(place: Place, id: string): Promise<void>;
  /** The command of one turn. May write files of its own in the home. */
  turn(context: TurnContext): Promise<Command>;
  parser(context: TurnContext): Promise<OutputParser>;
  /** The command of an interactive resume (or start, without `resume`) for a terminal. */
  interactive(context: Omit<TurnContext, "message" | "preamble">): Promise<Command>;
}

/** Preamble and message as one prompt. */
export const spoken = (context: Pick<TurnContext, "message" | "preamble">): string =>
  context.preamble === null ? context.message : `${context.preamble}\n\n${context.message}`;

/** Bounds, bytes, so that no output can exhaust the daemon or the link. */
export const LIMITS = {
  /** A longer line of stdout is not parsed; its length is reported. */
  line: 16 * 1024 * 1024,
  /** One event: longer text is told in pieces, a longer tool input or output loses its middle. */
  event: 64 * 1024,
  /** All events of one turn; what comes after is dropped with one notice. */
  turn: 32 * 1024 * 1024,
  summary: 16 * 1024,
  stderr: 16 * 1024,
} as const;
