import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { lastLineWith } from "../../src/harness/last-line.ts";
import { makeSandbox } from "./support.ts";

const BLOCK = 256 * 1024;

// Distances from the end that put the line before, on and behind the edge of a block, needle and beginning apart.
test.each([0, 1, 10, BLOCK - 30, BLOCK - 12, BLOCK - 5, BLOCK, BLOCK + 7, 3 * BLOCK - 8])(
  "finds the last line that holds it, %i bytes before the end",
  async (distance) => {
    await using sandbox = await makeSandbox();
    const path = join(sandbox.home, "long.jsonl");
    const filler = "x".repeat(Math.max(0, distance - 1));
    const line = `{"ü":1,"needle":"the last"}`;
    const text = `{"needle":"the first"}\n${"y".repeat(1000)}\n${line}${distance === 0 ? "" : `\n${filler}`}`;
    await writeFile(path, text);
    expect(await lastLineWith(path, '"needle"')).toBe(line);
  },
);

test("finds a first line, a line of several blocks, and nothing where there is none", async () => {
  await using sandbox = await makeSandbox();
  const path = join(sandbox.home, "long.jsonl");
  const long = `{"needle":"${"z".repeat(3 * BLOCK)}"}`;
  await writeFile(path, `${long}\n${"y\n".repeat(BLOCK)}`);
  expect(await lastLineWith(path, '"needle"')).toBe(long);
  expect(await lastLineWith(path, '"nothing"')).toBeNull();
  expect(await lastLineWith(join(sandbox.home, "missing"), '"needle"')).toBeNull();
});
