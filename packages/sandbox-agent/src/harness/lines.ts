/** Splits a byte stream into lines, bounded, so that a line without an end cannot fill the memory. */

export interface Line {
  /** Without its end. */
  readonly text: string;
  /** Bytes that were dropped because the line was over the limit; `text` is its beginning. */
  readonly dropped: number;
}

export interface Splitter {
  /** The lines that `chunk` completes. */
  push(chunk: Buffer): Line[];
  /** What is left without a line end. */
  flush(): Line[];
}

const LINE_END = 0x0a;

/** Every line by itself. */
export function lineSplitter(limit: number): Splitter {
  const line = lineBuffer(limit);
  return {
    push(chunk) {
      const lines: Line[] = [];
      let from = 0;
      for (let at = chunk.indexOf(LINE_END); at !== -1; at = chunk.indexOf(LINE_END, from)) {
        line.keep(chunk.subarray(from, at));
        lines.push(line.take());
        from = at + 1;
      }
      line.keep(chunk.subarray(from));
      return lines;
    },
    flush: () => (line.isEmpty() ? [] : [line.take()]),
  };
}

/** For text that nobody parses: the whole lines of one read are one `Line`, so that a million of them cost little. */
export function blockSplitter(limit: number): Splitter {
  const line = lineBuffer(limit);
  return {
    push(chunk) {
      const blocks: Line[] = [];
      const last = chunk.lastIndexOf(LINE_END);
      let from = 0;
      if (last !== -1 && !line.isEmpty()) {
        from = chunk.indexOf(LINE_END) + 1;
        line.keep(chunk.subarray(0, from - 1));
        blocks.push(line.take());
      }
      if (from <= last) blocks.push({ text: chunk.toString("utf8", from, last), dropped: 0 });
      line.keep(chunk.subarray(last + 1));
      return blocks;
    },
    flush: () => (line.isEmpty() ? [] : [line.take()]),
  };
}

/** The beginning of a line whose end has not come yet. */
function lineBuffer(limit: number) {
  let parts: Buffer[] = [];
  let size = 0;
  let dropped = 0;
  return {
    isEmpty: () => size + dropped === 0,
    keep(bytes: Buffer): void {
      const room = limit - size;
      if (room > 0 && bytes.length > 0) parts.push(bytes.subarray(0, room));
      size += Math.min(room, bytes.length);
      dropped += Math.max(0, bytes.length - room);
    },
    take(): Line {
      const line = { text: Buffer.concat(parts).toString("utf8").replace(/\r$/, ""), dropped };
      [parts, size, dropped] = [[], 0, 0];
      return line;
    },
  };
}
