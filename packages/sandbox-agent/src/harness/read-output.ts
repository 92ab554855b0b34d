/** Turns a harness's stdout and stderr into events, line by line as they come, without secrets, within bounds. */
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { redactOutputs } from "@hangar/shared";
import type { Redactor, TurnOutput } from "@hangar/shared";
import { LIMITS, type OutputParser } from "./harness.ts";
import { blockSplitter, type Line, lineSplitter, type Splitter } from "./lines.ts";
import { cutMiddle, pieces } from "./text.ts";

export interface OutputReader {
  /**
   * Waits, after the process ended, for what it had written; then lets go of the streams. A process that it left behind may
   * hold them open for ever: its output is read on and dropped, so that it does not break. Answers the tail of stderr.
   */
  finish(): Promise<string>;
}

/** Looks, 20 ms apart, after the end of the process: so many without a read mean that nothing more of its own output comes. */
const QUIET_LOOKS = 5;
/** What a process wrote before its end waits in the pipe, and is read within this many looks. */
const MOST_LOOKS = 25;

export function readOutput(
  { stdout, stderr }: { stdout: Readable; stderr: Readable },
  parser: OutputParser,
  redact: Redactor,
  onOutput: (output: TurnOutput) => void,
): OutputReader {
  const hidden = redactOutputs(redact);
  const tailHidden = redact.stream();
  const show = boundedEmitter(onOutput);
  // Before anything is cut to its bound: half a secret would not be known for one.
  const emit = (outputs: readonly TurnOutput[]): void => show(outputs.flatMap((output) => hidden.push(output)));
  let tail = "";
  const streams = [
    reading(stdout, parser.plain ? blockSplitter(LIMITS.event) : lineSplitter(LIMITS.line), (lines) => {
      emit(lines.flatMap((line) => outputOf(line, parser)));
    }),
    reading(stderr, blockSplitter(LIMITS.event), (lines) => {
      for (const { text } of lines) tail = (tail + tailHidden.push(`${text}\n`)).slice(-LIMITS.stderr);
      emit(lines.map(({ text }) => ({ kind: "stderr", text: `${text}\n` })));
    }),
  ];
  emit(parser.opening);

  return {
    async finish() {
      let quiet = 0;
      for (let look = 0; look < MOST_LOOKS && quiet < QUIET_LOOKS; look += 1) {
        if (streams.every((each) => each.hasEnded())) break;
        const read = streams.map((each) => each.reads());
        await Promise.race([delay(20), Promise.all(streams.map((each) => each.ended))]);
        quiet = streams.some((each, index) => each.reads() !== read[index]) ? 0 : quiet + 1;
      }
      for (const each of streams) each.letGo();
      show(hidden.flush());
      return (tail + tailHidden.flush()).slice(-LIMITS.stderr);
    },
  };
}

/** Hands over the lines of one stream, a read at a time. */
function reading(stream: Readable, splitter: Splitter, onLines: (lines: Line[]) => void) {
  let reads = 0;
  let over = false;
  const onData = (chunk: Buffer): void => {
    reads += 1;
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
    reads: () => reads,
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

function boundedEmitter(onOutput: (output: TurnOutput) => void): (outputs: readonly TurnOutput[]) => void {
  let left: number = LIMITS.turn;
  return (outputs) => {
    for (const output of outputs.flatMap(bounded)) {
      if (left <= 0) return;
      left -= JSON.stringify(output).length;
      if (left > 0) onOutput(output);
      else
        onOutput({ kind: "stderr", text: "The rest of this turn's output is not shown: there is too much of it.\n" });
    }
  };
}

/** What is said is told in pieces; what a tool was given or gave back loses its middle. */
function bounded(output: TurnOutput): TurnOutput[] {
  const cut = (text: string): string => cutMiddle(text, LIMITS.event);
  const { kind } = output;
  if (kind === "retry") return [output];
  if (kind === "tool_call") return [{ ...output, name: output.name.slice(0, 200), input: cut(output.input) }];
  if (kind === "tool_result") return [{ ...output, name: output.name.slice(0, 200), output: cut(output.output) }];
  return pieces(output.text, LIMITS.event).map((text) => ({ kind, text }));
}
