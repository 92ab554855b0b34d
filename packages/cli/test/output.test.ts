import { Writable } from "node:stream";
import { HangarError } from "@hangar/shared";
import { expect, test } from "vitest";
import { describeFailure, EXIT, ExitWith } from "../src/failure.ts";
import { ago, bytes, createUi, safe, table } from "../src/ui.ts";

/** A stream that keeps what is written; a terminal when `columns` is given. */
function sink(columns?: number) {
  let text = "";
  const stream = new Writable({ write: (chunk, _, done) => ((text += String(chunk)), done()) });
  return Object.assign(stream, columns === undefined ? {} : { isTTY: true, columns }, { text: () => text });
}

test("in a pipe progress is plain lines on standard error, each once, and nothing is coloured", () => {
  const [stdout, stderr] = [sink(), sink()];
  const ui = createUi({ stdout, stderr, env: {} });
  for (const line of ["a: starting", "a: starting", "a: ready"]) ui.progress(line);
  ui.done();
  ui.out(ui.color.red("result"));
  expect(stderr.text()).toBe("a: starting\na: ready\n");
  expect(stdout.text()).toBe("result\n");
});

test("on a terminal progress is one line that is taken away again, and NO_COLOR is heeded", () => {
  const [stdout, stderr] = [sink(40), sink(40)];
  const ui = createUi({ stdout, stderr, env: { TERM: "xterm" } });
  ui.progress("x".repeat(100));
  ui.out("result");
  ui.done();
  expect(stderr.text()).not.toContain("\n");
  expect(
    Math.max(
      ...stderr
        .text()
        .split("\r")
        .map((line) => line.length),
    ),
  ).toBeLessThan(60);
  expect(stderr.text().endsWith("\r\x1b[K")).toBe(true);
  expect(ui.color.red("r")).toBe("\x1b[31mr\x1b[39m");
  expect(createUi({ stdout, stderr, env: { NO_COLOR: "1" } }).color.red("r")).toBe("r");
});

test("a line after output without a line break begins on a line of its own", () => {
  const [stdout, stderr] = [sink(), sink()];
  const ui = createUi({ stdout, stderr, env: {} });
  ui.write("half");
  ui.out("next");
  expect(stdout.text()).toBe("half\nnext\n");
});

test("a table's columns line up and its last one is cut at the edge", () => {
  expect(
    table(
      [
        ["NAME", "LAST"],
        ["a", "x".repeat(30)],
      ],
      20,
    ),
  ).toEqual(["NAME  LAST", `a     ${"x".repeat(13)}…`]);
});

test("what an agent wrote cannot drive the terminal", () => {
  expect(safe("a\x1b[2Jb\x07\r\nc\td\x9b")).toBe("a[2Jb\nc\td");
});

test("times and sizes for people", () => {
  const now = Date.parse("2026-12-01T12:00:00Z");
  expect(
    ["2026-12-01T11:59:30Z", "2026-12-01T11:30:00Z", "2026-12-01T02:00:00Z", "2026-11-01T12:00:00Z"].map((at) =>
      ago(at, now),
    ),
  ).toEqual(["30 s ago", "30 min ago", "10 h ago", "30 days ago"]);
  expect([0, 999, 1500, 45_000, 5_250_000, 3e9].map(bytes)).toEqual([
    "0 B",
    "999 B",
    "1.5 kB",
    "45 kB",
    "5.3 MB",
    "3.00 GB",
  ]);
});

test("every kind of failure has its exit code, and its text is one line", () => {
  const code = (error: unknown) => describeFailure(error).exitCode;
  expect(code(new HangarError("not_running"))).toBe(EXIT.not_running);
  expect(code(new HangarError("session_not_found"))).toBe(EXIT.not_found);
  expect(code(new HangarError("name_taken"))).toBe(EXIT.conflict);
  expect(code(new HangarError("invalid_request"))).toBe(EXIT.usage);
  expect(code(new HangarError("clone_failed"))).toBe(EXIT.refused);
  expect(code(new HangarError("unauthorized"))).toBe(EXIT.unauthorized);
  expect(code(new HangarError("redis_unavailable"))).toBe(EXIT.unavailable);
  expect(code(new HangarError("internal"))).toBe(EXIT.failed);
  expect(code(new Error("x"))).toBe(EXIT.failed);
  expect(describeFailure(new ExitWith(42))).toEqual({ line: null, exitCode: 42 });
  expect(describeFailure(new Error("a\n  b\n")).line).toBe("a b");
});
