/** Turns a harness's stdout and stderr into events, line by line as they come, within bounds. */
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import type { TurnOutput } from "@hangar/shared";
import { LIMITS, type OutputParser } from "./harness.ts";
import { type Line, lineSplitter } from "./lines.ts";
import { cutMiddle } from "./text.ts";

export interface OutputReader {
  /**
   * Waits, after the process ended, for what it had written; then lets go of the streams. A process that it left behind may
   * hold them open for ever: its output is read on and dropped, so that it does not break. Answers the tail of stderr.
   */
  finish(): Promise<string>;
}

/** Silence after the end of the process, milliseconds, that means nothing more of its own output comes. */
const QUIET_MS = 150;
const QUIET_AT_MOST_MS = 3000;

export function readOutput(
  { stdout, stderr }: { stdout: Readable; stderr: Readable },
  parser: OutputParser,
  onOutput: (output: TurnOutput) => void,
): OutputReader {
  const emit = boundedEmitter(onOutput);
  let tail = "";
  const streams = [
    reading(stdout, lineSplitter(parser.plain ? LIMITS.event : LIMITS.line), (lines) => {
      const outputs = lines.flatMap((line) => outputOf(line, parser));
      emit(parser.plain ? joined(outputs) : outputs);
    }),
    reading(stderr, lineSplitter(LIMITS.event), (lines) => {
      for (const { text } of lines) tail = `${tail}${text}\n`.slice(-LIMITS.stderr);
      emit(joined(lines.map(({ text }) => ({ kind: "stderr", text: `${text}\n` }))));
    }),
  ];
  emit([...parser.opening]);

  return {
    async finish() {
      const latest = Date.now() + QUIET_AT_MOST_MS;
      const isOver = (): boolean =>
        streams.every((each) => each.hasEnded()) ||
        Date.now() >= latest ||
        streams.every((each) => Date.now() - each.lastRead() >= QUIET_MS);
      for (const each of streams) each.touch();
      while (!isOver()) await Promise.race([delay(20), Promise.all(streams.map((each) => each.ended))]);
      for (const each of streams) each.letGo();
      return tail;
    },
  };
}

/** Hands over the lines of one stream, a read at a time. */
function reading(stream: Readable, splitter: ReturnType<typeof lineSplitter>, onLines: (lines: Line[]) => void) {
  let last = Date.now();
  let over = false;
  const onData = (chunk: Buffer): void => {
    last = Date.now();
    const lines = splitter.push(chunk);
    if (lines.length > 0) onLines(lines);
  };
  const ended = new Promise<void>((resolve) => {
    const end = (): void => {
      over = true;
      resolve();
    };
    // An error of a pipe's read end is its end: what matters is how the process ends.
    stream.once("end", end).once("close", end).on("error", end);
  });
  stream.on("data", onData);
  return {
    ended,
    hasEnded: () => over,
    lastRead: () => last,
    touch: () => {
      last = Date.now();
    },
    letGo: () => {
      const rest = splitter.flush();
      if (rest.length > 0) onLines(rest);
      stream.off("data", onData);
      if (over) return;
      stream.resume();
      if ("unref" in stream && typeof stream.unref === "function") stream.unref();
    },
  };
}

function outputOf(line: Line, parser: OutputParser): TurnOutput[] {
  if (line.dropped === 0) return parser.line(line.text);
  const size = Buffer.byteLength(line.text) + line.dropped;
  if (parser.plain) return parser.line(`${line.text} … ${line.dropped} bytes of this line cut`);
  return [{ kind: "stderr", text: `a line of ${size} bytes from the harness was too long to be read\n` }];
}

/** Neighbouring lines become one event: a script may print thousands. */
function joined(outputs: readonly TurnOutput[]): TurnOutput[] {
  const joined: TurnOutput[] = [];
  for (const output of outputs) {
    const last = joined.at(-1);
    const isText = (output.kind === "text" || output.kind === "stderr") && last?.kind === output.kind;
    if (isText && last.text.length + output.text.length <= LIMITS.event) {
      joined[joined.length - 1] = { kind: output.kind, text: last.text + output.text };
    } else {
      joined.push(output);
    }
  }
  return joined;
}

function boundedEmitter(onOutput: (output: TurnOutput) => void): (outputs: readonly TurnOutput[]) => void {
  let left: number = LIMITS.turn;
  return (outputs) => {
    for (const output of outputs.map(bounded)) {
      if (left <= 0) return;
      left -= sizeOf(output);
      if (left > 0) onOutput(output);
      else
        onOutput({ kind: "stderr", text: "The rest of this turn's output is not shown: there is too much of it.\n" });
    }
  };
}

function bounded(output: TurnOutput): TurnOutput {
  const cut = (text: string): string => cutMiddle(text, LIMITS.event);
  if (output.kind === "retry") return output;
  if (output.kind === "tool_call") return { ...output, name: output.name.slice(0, 200), input: cut(output.input) };
  if (output.kind === "tool_result") return { ...output, name: output.name.slice(0, 200), output: cut(output.output) };
  return { ...output, text: cut(output.text) };
}

const sizeOf = (output: TurnOutput): number => JSON.stringify(output).length;
