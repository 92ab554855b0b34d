/** Small durable files: replaced whole and atomically, or appended to line by line. */
import { closeSync, fdatasyncSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import type { z } from "zod";

/** Replaces a file: whole and on disk when it returns, or as it was. */
export function replaceFile(path: string, content: string | Uint8Array, mode = 0o600): void {
  const temporary = `${path}.new`;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const fd = openSync(temporary, "w", mode);
  try {
    writeAll(fd, typeof content === "string" ? Buffer.from(content) : content);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(temporary, path);
  syncFolder(dirname(path));
}

/** The parsed content; none when the file is not there or is not valid. */
export function readJson<T>(path: string, schema: z.ZodType<T>): T | null {
  const text = readText(path);
  if (text === null) return null;
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** None when the file is not there. */
export function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    throw error;
  }
}

/** A file of JSON lines that survives a kill at any byte: a torn line is skipped when it is read. */
export class LineFile {
  readonly #path: string;
  #fd: number;
  #torn = true;

  constructor(path: string) {
    this.#path = path;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    this.#fd = openSync(path, "a", 0o600);
  }

  /** Every line that parses as JSON, in order. */
  read(): unknown[] {
    const lines: unknown[] = [];
    for (const line of (readText(this.#path) ?? "").split("\n")) {
      try {
        if (line !== "") lines.push(JSON.parse(line));
      } catch {
        // cut short by a kill or a full disk
      }
    }
    return lines;
  }

  /** `sync`: on disk when it returns. Throws what the file system says; what was written of the line is then skipped later. */
  append(value: unknown, sync: boolean): void {
    const line = `${JSON.stringify(value)}\n`;
    try {
      writeAll(this.#fd, Buffer.from(this.#torn ? `\n${line}` : line));
      this.#torn = false;
    } catch (error) {
      this.#torn = true;
      throw error;
    }
    if (sync) fdatasyncSync(this.#fd);
  }

  /** Replaces all lines. */
  rewrite(values: readonly unknown[]): void {
    replaceFile(this.#path, values.map((value) => `${JSON.stringify(value)}\n`).join(""));
    closeSync(this.#fd);
    this.#fd = openSync(this.#path, "a", 0o600);
    this.#torn = false;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

export const isCode = (error: unknown, code: string): boolean =>
  error instanceof Error && "code" in error && error.code === code;

function writeAll(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
}

function syncFolder(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
