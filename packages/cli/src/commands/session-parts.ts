/** What commands on one session share. */
import { HangarError } from "@hangar/shared";
import type { z } from "zod";
import { type Context, readAll } from "../context.ts";

export interface Waiting {
  /** None: on a terminal yes, in a pipe no. */
  readonly wait?: boolean;
  readonly json?: boolean;
}

/** The words as one message; `-` is standard input; none: no message. */
export async function messageOf(context: Context, words: string[]): Promise<string | undefined> {
  if (words.length === 0) return undefined;
  if (words.length > 1 || words[0] !== "-") return words.join(" ");
  const text = (await readAll(context.stdin)).replace(/\n$/, "");
  if (text.trim() === "") throw new HangarError("invalid_request", "standard input holds no message");
  return text;
}

export const sessionPath = (name: string): string => `/api/sessions/${encodeURIComponent(name)}`;
export const post = <S extends z.ZodType>(
  context: Context,
  name: string,
  action: string,
  schema: S,
  body: unknown = {},
): Promise<z.output<S>> => context.client().call("POST", `${sessionPath(name)}/${action}`, schema, body);
export const waits = (ui: Context["ui"], options: Waiting): boolean => options.wait ?? (ui.isTerminal && !options.json);
export const given = (key: string, value: unknown): Record<string, unknown> =>
  value === undefined ? {} : { [key]: value };
