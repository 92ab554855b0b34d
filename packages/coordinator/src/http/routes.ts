/** How the parts of `http/` say what they serve: one table of path → method → handler, mounted by `app.ts`. */
import type { Context } from "hono";
import { HangarError } from "@hangar/shared";
import type { z } from "zod";

export interface AppEnv {
  Variables: { requestId: string };
}
export type Ctx = Context<AppEnv>;
export type Handler = (c: Ctx) => Response | Promise<Response>;
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export type Routes = Readonly<Record<string, Readonly<Partial<Record<Method, Handler>>>>>;

/**
 * The body, parsed. An empty one counts as `{}`. HangarError `malformed_json`; what the schema refuses is thrown as it is
 * and becomes `invalid_request`.
 */
export async function readBody<S extends z.ZodType>(c: Ctx, schema: S): Promise<z.output<S>> {
  return schema.parse(parseJson(new Uint8Array(await c.req.arrayBuffer())));
}

export function parseJson(bytes: Uint8Array): unknown {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.trim() === "" ? {} : JSON.parse(text);
  } catch (error) {
    // V8's own line quotes the body, which may be a secret: only the place is told.
    const at =
      error instanceof SyntaxError ? /at position \d+(?: \(line \d+ column \d+\))?/.exec(error.message)?.[0] : "";
    const why = error instanceof SyntaxError ? (at ?? "it does not parse") : "it is not UTF-8";
    throw new HangarError("malformed_json", `The body is not valid JSON: ${why}`);
  }
}

/** A path parameter; routes name them, so one is always there. */
export const param = (c: Ctx, name: string): string => c.req.param(name) ?? "";

/** `?name=1`, `?name=true` or `?name`. */
export const flag = (c: Ctx, name: string): boolean => ["", "1", "true"].includes(c.req.query(name) ?? "0");
