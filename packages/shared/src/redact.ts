/**
 * Keeps secrets out of what people and logs are shown: summaries, errors, events, log lines. The coordinator and the daemon
 * use this same code. Transcripts and checkpoints are never redacted: they are sealed.
 */
import { shapeRanges, unfinishedShape } from "./redact-shapes.ts";
import { makeMatcher, type Range } from "./redact-matcher.ts";
import { spellingsOf } from "./redact-values.ts";

export type Redact = (text: string) => string;

export interface Redactor extends Redact {
  /** For text that was cut out of a longer one: what is left of a value at either end is hidden too. */
  readonly excerpt: Redact;
  /** For text that comes in pieces: a value that is split over two of them is hidden all the same. */
  readonly stream: () => RedactStream;
}

export interface RedactStream {
  /** What may be shown now. What may turn out to be the beginning of a value waits for the next piece. */
  readonly push: (piece: string) => string;
  /** The rest: no more pieces come. */
  readonly flush: () => string;
}

const HIDDEN = "***";
/** Shorter ends of a value in an excerpt are too likely to be something else. */
const SHORTEST_END = 6;
/** Text before a piece that is looked at with it: more than is ever shown of a value before it is known for one. */
const CONTEXT = 64;
/** A beginning longer than this, and than every value, is not waited on with. */
const MOST_HELD = 65_536;

/** Hides every given value, however it is written, and whatever has the shape of a credential. */
export function redactor(secrets: Iterable<string>): Redactor {
  const values = spellingsOf(secrets);
  const matcher = makeMatcher(values);
  const backwards = makeMatcher(values.map(reversed));
  const mostHeld = Math.max(MOST_HELD, ...values.map(({ length }) => length));

  const look = (text: string): { ranges: Range[]; unfinished: number } => {
    const { ranges, unfinished } = matcher(text);
    return { ranges: merged([...ranges, ...shapeRanges(text)]), unfinished };
  };
  const redact = (text: string): string => cutOut(text, look(text).ranges, 0, text.length);

  const excerpt = (text: string): string => {
    const { ranges, unfinished } = look(text);
    const ends = [...ranges];
    if (text.length - unfinished >= SHORTEST_END) ends.push({ start: unfinished, end: text.length });
    const left = text.length - backwards(reversed(text)).unfinished;
    if (left >= SHORTEST_END) ends.push({ start: 0, end: left });
    return cutOut(text, merged(ends), 0, text.length);
  };

  const stream = (): RedactStream => {
    let context = "";
    let held = "";
    const advance = (piece: string, isLast: boolean): string => {
      const text = context + held + piece;
      const from = context.length;
      const { ranges, unfinished } = look(text);
      const until = isLast ? text.length : settledUntil(text, ranges, Math.min(unfinished, unfinishedShape(text)));
      const safe = text.length - until > mostHeld ? text.length : Math.max(until, from);
      const shown = cutOut(text, ranges, from, safe);
      context = text.slice(Math.max(0, safe - CONTEXT), safe);
      held = text.slice(safe);
      return shown;
    };
    return { push: (piece) => advance(piece, false), flush: () => advance("", true) };
  };

  return Object.assign(redact, { excerpt, stream });
}

/** Up to where nothing that comes can change what is hidden. */
function settledUntil(text: string, ranges: readonly Range[], unfinished: number): number {
  let until = unfinished;
  // A token that ends where the text ends may go on.
  for (const { start, end } of ranges)
    if (end === text.length || (start < until && end > until)) until = Math.min(until, start);
  return until;
}

function merged(ranges: readonly Range[]): Range[] {
  const sorted = ranges.toSorted((a, b) => a.start - b.start || b.end - a.end);
  const whole: { start: number; end: number }[] = [];
  for (const { start, end } of sorted) {
    const last = whole.at(-1);
    if (last && start < last.end) last.end = Math.max(last.end, end);
    else if (end > start) whole.push({ start, end });
  }
  return whole;
}

function cutOut(text: string, ranges: readonly Range[], from: number, until: number): string {
  let shown = "";
  let at = from;
  for (const { start, end } of ranges) {
    if (end <= from || start >= until) continue;
    shown += text.slice(at, Math.max(at, start)) + HIDDEN;
    at = Math.min(end, until);
  }
  return shown + text.slice(at, until);
}

const reversed = (text: string): string => {
  let back = "";
  for (let at = text.length - 1; at >= 0; at--) back += text[at];
  return back;
};
