/** Reads a long append-only file from its end. */
import { open } from "node:fs/promises";

const BLOCK = 256 * 1024;
const LINE_END = 0x0a;

/** The last line that holds `needle`; none when no line does, or when there is no such file. */
export async function lastLineWith(path: string, needle: string): Promise<string | null> {
  const file = await open(path).catch(() => null);
  if (file === null) return null;
  try {
    let start = (await file.stat()).size;
    let held = Buffer.alloc(0);
    while (start > 0) {
      const size = Math.min(BLOCK, start);
      start -= size;
      const block = Buffer.alloc(size);
      await file.read(block, 0, size, start);
      held = Buffer.concat([block, held]);
      const at = held.lastIndexOf(needle);
      const from = at === -1 ? -1 : held.lastIndexOf(LINE_END, at) + 1;
      if (from > 0 || (from === 0 && start === 0)) {
        const to = held.indexOf(LINE_END, at);
        return held.toString("utf8", from, to === -1 ? held.length : to);
      }
      // What is not the needle's line need not be held; its beginning may be in the block before.
      const end = at === -1 ? held.indexOf(LINE_END) : -1;
      if (end !== -1) held = held.subarray(0, end);
    }
    return null;
  } finally {
    await file.close();
  }
}
