import { describe, expect, test } from "vitest";
import { blockSplitter, lineSplitter, type Splitter } from "../../src/harness/lines.ts";
import { cutMiddle, lastLines, oneLine, pieces } from "../../src/harness/text.ts";

/** Feeds `text` in chunks of `size` bytes, so that every boundary is met, also within a character. */
function inChunks(splitter: Splitter, text: string, size: number) {
  const bytes = Buffer.from(text);
  const lines = [];
  for (let at = 0; at < bytes.length; at += size) lines.push(...splitter.push(bytes.subarray(at, at + size)));
  return [...lines, ...splitter.flush()];
}

const text = `one\n\n${"é".repeat(20)}\nfour\n\n\n${"z".repeat(45)}\nlast`;

describe.each([1, 2, 3, 5, 7, 16, 1000])("in chunks of %i bytes", (size) => {
  test("lines come whole", () => {
    const lines = inChunks(lineSplitter(1000), text, size);
    expect(lines).toEqual(text.split("\n").map((line) => ({ text: line, dropped: 0 })));
  });
  test("blocks hold every line once", () => {
    const blocks = inChunks(blockSplitter(1000), text, size);
    expect(blocks.map((block) => block.text).join("\n")).toBe(text);
  });
  test("a line over the limit keeps its beginning and says what it lost", () => {
    const lines = inChunks(lineSplitter(40), text, size);
    expect(lines[6]).toEqual({ text: "z".repeat(40), dropped: 5 });
    expect(lines.at(-1)).toEqual({ text: "last", dropped: 0 });
  });
});

test("text is cut to its bounds", () => {
  expect(cutMiddle("short", 10)).toBe("short");
  const cut = cutMiddle("a".repeat(5000) + "b".repeat(5000), 1000);
  expect(cut.length).toBeLessThanOrEqual(1000);
  expect(cut).toMatch(/^a+\n… \d+ characters cut …\nb+$/);
  expect(pieces(`${"x".repeat(9)}😀y`, 10)).toEqual(["x".repeat(9), "😀y"]);
  expect(lastLines("a\n\nb  \nc\n\n", 2, 100)).toBe("b\nc");
  expect(lastLines("\n \n", 2, 100)).toBeNull();
  expect(oneLine("\u001b[31mred\u001b[0m\nand\tmore")).toBe("red and more");
});
