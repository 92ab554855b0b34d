/**
 * What a person or a pipe sees. Results go to standard output, everything else to standard error: on a terminal as one
 * line that moves, in a pipe as plain lines.
 */
import pc from "picocolors";

export interface Ui {
  readonly isTerminal: boolean;
  readonly color: ReturnType<typeof pc.createColors>;
  readonly columns: number;
  /** A line of the result. */
  out(line: string): void;
  /** Bytes of the result, as they are. */
  write(data: string | Uint8Array): void;
  json(value: unknown): void;
  /** A line beside the result. */
  note(line: string): void;
  /** What is going on now; replaced by the next. */
  progress(text: string): void;
  /** Ends the progress line, leaving nothing of it. */
  done(): void;
  prefix: string;
}

export interface Streams {
  readonly stdout: Stream;
  readonly stderr: Stream;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Pipes have neither. */
type Stream = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number };

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

export function createUi({ stdout, stderr, env }: Streams): Ui {
  const plain = env["NO_COLOR"] !== undefined && env["NO_COLOR"] !== "";
  const isTerminal = Boolean(stderr.isTTY) && env["TERM"] !== "dumb";
  const color = pc.createColors(!plain && isTerminal && Boolean(stdout.isTTY));
  let text: string | null = null;
  let since = 0;
  let timer: NodeJS.Timeout | undefined;
  let said: string | null = null;
  /** Whether standard output stands in the middle of a line. */
  let middle = false;

  const draw = () => {
    if (text === null || middle) return;
    const seconds = Math.floor((performance.now() - since) / 1000);
    const frame = FRAMES[Math.floor(performance.now() / 100) % FRAMES.length] ?? "";
    const line = `${text}${seconds >= 2 ? ` (${seconds} s)` : ""}`;
    stderr.write(`\r\x1b[K${color.cyan(frame)} ${line.slice(0, Math.max(10, (stderr.columns || 80) - 4))}`);
  };
  const clear = () => {
    if (text !== null && isTerminal && !middle) stderr.write("\r\x1b[K");
  };

  return {
    isTerminal: Boolean(stdout.isTTY) && isTerminal,
    color,
    columns: stdout.columns || 100,
    prefix: "hangar",
    out(line) {
      clear();
      if (middle) stdout.write("\n");
      middle = false;
      stdout.write(`${line}\n`);
    },
    write(data) {
      clear();
      stdout.write(data);
      const last = typeof data === "string" ? data.at(-1) : String.fromCodePoint(data.at(-1) ?? 10);
      if (data.length > 0) middle = last !== "\n";
    },
    json(value) {
      stdout.write(`${JSON.stringify(value, null, 2)}\n`);
    },
    note(line) {
      clear();
      if (middle && stdout.isTTY) stdout.write("\n");
      if (stdout.isTTY) middle = false;
      stderr.write(`${line}\n`);
    },
    progress(next) {
      if (!isTerminal) {
        if (next !== said) stderr.write(`${next}\n`);
        said = next;
        return;
      }
      if (text === null) since = performance.now();
      text = next;
      draw();
      timer ??= setInterval(draw, 100).unref();
    },
    done() {
      clear();
      clearInterval(timer);
      timer = undefined;
      text = null;
    },
  };
}

/** Columns as wide as they need, the last one cut at the terminal's edge. */
export function table(rows: readonly (readonly string[])[], columns: number): string[] {
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, i) => (widths[i] = Math.max(widths[i] ?? 0, width(cell))));
  return rows.map((row) => {
    const cells = row.map((cell, i) =>
      i === row.length - 1 ? cell : cell + " ".repeat((widths[i] ?? 0) - width(cell)),
    );
    return cut(cells.join("  ").trimEnd(), columns);
  });
}

// oxlint-disable-next-line no-control-regex -- colours take no room
const COLOURS = /\x1b\[[0-9;]*m/g;
const width = (text: string): number => text.replace(COLOURS, "").length;

function cut(line: string, columns: number): string {
  if (width(line) <= columns) return line;
  const plain = line.replace(COLOURS, "");
  return line === plain ? `${plain.slice(0, columns - 1)}…` : line;
}

export function ago(iso: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)} kB`;
  return n < 1_000_000_000 ? `${(n / 1_000_000).toFixed(1)} MB` : `${(n / 1_000_000_000).toFixed(2)} GB`;
}

export const firstLine = (text: string): string => text.trim().split("\n", 1)[0] ?? "";
/** Text of agents and repos may hold control characters that would drive the terminal; line breaks and tabs stay. */
// oxlint-disable-next-line no-control-regex -- they are what is taken out
export const safe = (text: string): string => text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
