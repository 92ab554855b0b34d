/** Talks to Hangar's REST API (packages/shared/src/api.ts); every answer is parsed, every problem becomes a HangarError. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ClientConfig, HangarError, Problem, SessionEvent } from "@hangar/shared";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { z } from "zod";
import type { CliConfig } from "./config.ts";
import { hangarError } from "./failure.ts";

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface Client {
  readonly url: string;
  readonly token: string;
  /** The answer's body. */
  call<S extends z.ZodType>(method: Method, path: string, schema: S, body?: unknown): Promise<z.output<S>>;
  /** Events after `from` (a stream id, `0` or `$`), reconnecting where they were cut, until the signal fires. */
  events(session: string, from: string, signal: AbortSignal): AsyncIterable<SessionEvent>;
}

/** Of answers without a body. */
export const NOTHING = z.undefined();

/** Finds the running Hangar. HangarError `not_running` says how to start it. */
export function connect(config: CliConfig): Client {
  const local = readClientConfig(config.dataDir);
  const url = config.url ?? local?.url;
  if (url === undefined) throw notRunning();
  if (!URL.canParse(url)) throw new HangarError("invalid_request", `HANGAR_URL is not a URL: ${url}`);
  const token = config.token ?? local?.token;
  if (token === undefined)
    throw new HangarError(
      "unauthorized",
      `no token for ${url}: set HANGAR_TOKEN (it is in hangar.json of its data folder)`,
    );
  return clientOf(url, token, config.url !== null);
}

const notRunning = (cause?: unknown): HangarError =>
  new HangarError("not_running", "Hangar is not running: start it with `hangar up`", { cause });

/** What `hangar up` left for us; none: it never ran here, or the file is damaged. */
export function readClientConfig(dataDir: string): ClientConfig | null {
  try {
    return ClientConfig.parse(JSON.parse(readFileSync(join(dataDir, "hangar.json"), "utf8")));
  } catch {
    return null;
  }
}

export function clientOf(url: string, token: string, isElsewhere: boolean): Client {
  return { url, token, call, events };

  async function call<S extends z.ZodType>(
    method: Method,
    path: string,
    schema: S,
    body?: unknown,
  ): Promise<z.output<S>> {
    const answer = await request(path, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
    const text = await answer.text();
    const parsed = schema.safeParse(text === "" ? undefined : parseJson(text));
    if (parsed.success) return parsed.data;
    throw new HangarError(
      "internal",
      `${url} answers ${method} ${path} in a way that this version does not understand`,
      {
        cause: parsed.error,
      },
    );
  }

  async function request(path: string, init: RequestInit): Promise<Response> {
    let answer: Response;
    try {
      const headers = new Headers(init.headers);
      headers.set("authorization", `Bearer ${token}`);
      answer = await fetch(url + path, { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      if (!isElsewhere) throw notRunning(error);
      const cause = (error as { cause?: { message?: string } }).cause?.message ?? String(error);
      throw new HangarError("not_running", `Hangar at ${url} cannot be reached: ${cause}`, { cause: error });
    }
    if (answer.ok) return answer;
    const text = await answer.text();
    const problem = Problem.safeParse(parseJson(text));
    if (problem.success) throw hangarError(problem.data.code, problem.data.detail);
    throw new HangarError("internal", `${url} answers ${answer.status}: ${text.slice(0, 200)}`);
  }

  async function* events(session: string, from: string, signal: AbortSignal): AsyncIterable<SessionEvent> {
    let last = from;
    let failures = 0;
    while (!signal.aborted) {
      try {
        const path = `/api/sessions/${encodeURIComponent(session)}/events?from=${encodeURIComponent(last)}`;
        const answer = await request(path, { signal, headers: { accept: "text/event-stream" } });
        if (!answer.body) continue;
        const frames = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
        for await (const frame of frames) {
          failures = 0;
          const event = SessionEvent.safeParse(parseJson(frame.data));
          if (frame.id !== undefined) last = frame.id;
          if (event.success) yield event.data;
        }
      } catch (error) {
        if (signal.aborted) return;
        // A Hangar that is started again goes on where it was; one that refuses, or stays away, does not.
        if (error instanceof HangarError && error.code !== "not_running" && !error.retryable) throw error;
        if (++failures > 60) throw error;
      }
      await sleep(Math.min(100 * (failures + 1), 1000), undefined, { signal }).catch(() => undefined);
    }
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
