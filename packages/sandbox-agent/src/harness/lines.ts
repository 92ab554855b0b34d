/** Splits a byte stream into lines, bounded, so that a line without an end cannot fill the memory. */

export interface Line {
  readonly text: string;
  /** Bytes that were dropped because the line was over the limit; `text` is its beginning. */
  readonly dropped: number;
}

export interface LineSplitter {
  /** The lines that `chunk` completes. */
  push(chunk: Buffer): Line[];
  /** What is left without a line end. */
  flush(): Line[];
}

const LINE_END = 0x0a;

export function lineSplitter(limit: number): LineSplitter {
  let parts: Buffer[] = [];
  let size = 0;
  let dropped = 0;

  const keep = (bytes: Buffer): void => {
    const room = Math.max(0, limit - size);
    if (room > 0) parts.push(bytes.subarray(0, room));
    size += Math.min(room, bytes.length);
    dropped += Math.max(0, bytes.length - room);
  };
  const take = (): Line => {
    const text = Buffer.concat(parts).toString("utf8").replace(/\r$/, "");
    const line = { text, dropped };
    [parts, size, dropped] = [[], 0, 0];
    return line;
  };

  return {
    push(chunk) {
      const lines: Line[] = [];
      let from = 0;
      for (let at = chunk.indexOf(LINE_END); at !== -1; at = chunk.indexOf(LINE_END, from)) {
        keep(chunk.subarray(from, at));
        lines.push(take());
        from = at + 1;
      }
      keep(chunk.subarray(from));
      return lines;
    },
    flush: () => (size + dropped > 0 ? [take()] : []),
  };
}
