/** Bounds and one-liners for text that comes from outside. */

/** At most `max` characters: what is over is cut out of the middle, and the cut says how much. */
export function cutMiddle(text: string, max: number): string {
  if (text.length <= max) return text;
  const kept = Math.max(0, max - 40);
  const head = Math.ceil(kept / 2);
  return `${text.slice(0, head)}\n… ${text.length - kept} characters cut …\n${text.slice(text.length - (kept - head))}`;
}

/** The last `lines` lines that hold anything, at most `max` characters of them; none when there are none. */
export function lastLines(text: string, lines: number, max: number): string | null {
  const kept = text
    .split("\n")
    .map((line) => line.trimEnd())
    .filter((line) => line !== "")
    .slice(-lines)
    .join("\n");
  return kept === "" ? null : kept.slice(-max);
}

/** One line of at most `max` characters, without control characters. */
export const oneLine = (text: string, max = 500): string => {
  // oxlint-disable-next-line no-control-regex -- what a terminal would obey must not reach a person's screen
  const line = text
    .replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")
    .replace(/[\x00-\x1f\x7f\s]+/g, " ")
    .trim();
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
};

/** The text in pieces of at most `max` UTF-16 units, none ending within a character. */
export function pieces(text: string, max: number): string[] {
  const found: string[] = [];
  for (let from = 0; from < text.length;) {
    const isWithin = from + max < text.length && /[\ud800-\udbff]/.test(text.charAt(from + max - 1));
    const to = from + max - (isWithin ? 1 : 0);
    found.push(text.slice(from, to));
    from = to;
  }
  return found;
}
