/**
 * Logs: JSON lines on standard error, through pino. What is logged is ids, codes and times; never a token, a secret's
 * value, a message, or a URL's query (signed URLs carry their signature there).
 */
import { pino } from "pino";
import { HangarError } from "@hangar/shared";

export type Fields = Readonly<Record<string, unknown>>;

export interface Log {
  debug(fields: Fields, line: string): void;
  info(fields: Fields, line: string): void;
  warn(fields: Fields, line: string): void;
  error(fields: Fields, line: string): void;
  child(fields: Fields): Log;
}

export interface LogTarget {
  write(line: string): unknown;
}

/** `target`: where lines go; standard error unless given. */
export function createLog(options: { level: string; replica: string }, target?: LogTarget): Log {
  const base = {
    level: options.level,
    base: { replica: options.replica },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { error: describeError },
    // A second net under "never log them": whatever is called so is not shown.
    redact: {
      paths: ["token", "secret", "password", "authorization", "*.token", "*.secret", "*.password", "*.authorization"],
      censor: "[not shown]",
    },
  };
  return target === undefined ? pino(base, pino.destination({ fd: 2, sync: true })) : pino(base, target);
}

/** An error for a log line: a HangarError is its code and line; anything else also has its stack, causes included. */
export function describeError(error: unknown): Fields {
  if (!(error instanceof Error)) return { message: String(error) };
  const cause = error.cause === undefined ? {} : { cause: describeError(error.cause) };
  if (error instanceof HangarError) return { code: error.code, message: error.message, ...cause };
  return { name: error.name, message: error.message, stack: error.stack, ...cause };
}
