/** Finds any of many strings in a text, in one pass whose cost hardly grows with how many there are. */

/** Half-open, in UTF-16 units. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

export interface Found {
  /** In order; they may overlap. */
  readonly ranges: Range[];
  /** Where a string begins that the text ends in the middle of, at the earliest; the text's length: nowhere. */
  readonly unfinished: number;
}

/** UTF-16 units by which strings are looked up. No string is shorter. */
const KEY = 4;

export function makeMatcher(strings: readonly string[]): (text: string) => Found {
  const byKey = new Map<string, string[]>();
  const firstTwo = new Uint8Array(65_536);
  for (const string of strings.toSorted((a, b) => b.length - a.length)) {
    const key = string.slice(0, KEY);
    const same = byKey.get(key);
    if (same) same.push(string);
    else byKey.set(key, [string]);
    firstTwo[slot(string, 0)] = 1;
  }
  return (text) => {
    const ranges: Range[] = [];
    let unfinished = text.length;
    for (let at = 0; at + KEY <= text.length; at++) {
      if (firstTwo[slot(text, at)] === 0) continue;
      for (const string of byKey.get(text.slice(at, at + KEY)) ?? []) {
        if (text.startsWith(string, at)) {
          ranges.push({ start: at, end: at + string.length });
          // The others here are shorter.
          break;
        }
        const isCut = at + string.length > text.length && at < unfinished;
        if (isCut && string.startsWith(text.slice(at))) unfinished = at;
      }
    }
    return { ranges, unfinished };
  };
}

const slot = (text: string, at: number): number => ((text.charCodeAt(at) & 255) << 8) | (text.charCodeAt(at + 1) & 255);
