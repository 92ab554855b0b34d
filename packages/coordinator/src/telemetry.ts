/**
 * Logs: JSON lines on standard error, through pino. What is logged is ids, codes and times; never a token, a secret's
 * value, a message, or a URL's query (signed URLs carry their signature there). Errors may quote what they failed on: every
 * string passes the redactor all the same.
 */
import { pino, type LogFn } from "pino";
import { HangarError, redactor, type Redact } from "@hangar/shared";

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
export function createLog(options: { level: string; replica: string; redact?: Redact }, target?: LogTarget): Log {
  const redact = options.redact ?? redactor([]);
  const base = {
    level: options.level,
    base: { replica: options.replica },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: {
      level: (label: string) => ({ level: label }),
      log: (fields: Record<string, unknown>) => redactFields(fields, redact) as Record<string, unknown>,
    },
    hooks: {
      logMethod(this: unknown, args: Parameters<LogFn>, method: LogFn): void {
        const hidden = args.map((each: unknown) => (typeof each === "string" ? redact(each) : each));
        method.apply(this as never, hidden as never);
      },
    },
    // A second net under "never log them": whatever is called so is not shown.
    redact: {
      paths: ["token", "secret", "password", "authorization", "*.token", "*.secret", "*.password", "*.authorization"],
      censor: "[not shown]",
    },
  };
  return target === undefined ? pino(base, pino.destination({ fd: 2, sync: true })) : pino(base, target);
}

/** Every string in it, hidden; errors told as fields. */
function redactFields(value: unknown, redact: Redact): unknown {
  if (typeof value === "string") return redact(value);
  if (value instanceof Error) return redactFields(describeError(value), redact);
  if (Array.isArray(value)) return value.map((each) => redactFields(each, redact));
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, redactFields(each, redact)]));
}

/** An error for a log line: a HangarError is its code and line; anything else also has its stack, causes included. */
export function describeError(error: unknown): Fields {
  if (!(error instanceof Error)) return { message: String(error) };
  const cause = error.cause === undefined ? {} : { cause: describeError(error.cause) };
  if (error instanceof HangarError) return { code: error.code, message: error.message, ...cause };
  return { name: error.name, message: error.message, stack: error.stack, ...cause };
}
