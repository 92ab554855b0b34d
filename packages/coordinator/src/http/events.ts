/** A session's event log as server-sent events: `id` is the log's own, so a reader that reconnects misses nothing. */
import { HangarError, type SessionEvent } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { OWNER } from "./auth.ts";
import { asHangarError } from "./problem.ts";
import { type Ctx, param } from "./routes.ts";
import type { Log } from "../telemetry.ts";

/** A comment this often keeps proxies from closing a quiet stream, and finds readers that are gone. */
const HEARTBEAT_MS = 15_000;

export interface StreamDeps {
  readonly log: Log;
  /** Ends every stream. */
  readonly stopping: AbortSignal;
}

/**
 * From after `Last-Event-ID`, else `?from=`, else now. A reader whose stream ends asks again: of a session that was removed,
 * it then gets a problem.
 */
export async function eventStream(c: Ctx, sessions: Sessions, deps: StreamDeps): Promise<Response> {
  const ref = param(c, "id");
  const from = startOf(c.req.header("last-event-id") ?? c.req.query("from") ?? "$");
  // A session that is not there is a problem, not an empty stream; its id holds when its name is used anew.
  const { id } = await sessions.get(OWNER, ref);
  const stop = new AbortController();
  const ended = AbortSignal.any([stop.signal, deps.stopping]);
  const events = sessions.events(OWNER, id, from, ended)[Symbol.asyncIterator]();
  const text = new TextEncoder();

  let heartbeat: NodeJS.Timeout | undefined;
  const end = (): void => {
    clearInterval(heartbeat);
    stop.abort();
  };
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      // Headers reach the reader with the first bytes.
      controller.enqueue(text.encode(": connected\n\n"));
      heartbeat = setInterval(() => controller.enqueue(text.encode(": \n\n")), HEARTBEAT_MS).unref();
    },
    // One event for each time the reader has room: a slow reader holds nothing in memory.
    async pull(controller) {
      try {
        const next = await events.next();
        if (!next.done) {
          controller.enqueue(text.encode(frame(next.value)));
          return;
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        // The reader comes back with its last id, here or at another replica.
        if (!deps.stopping.aborted) {
          deps.log.warn({ requestId: c.get("requestId"), session: id, error }, "an event stream was broken off");
          controller.enqueue(text.encode(`: ${asHangarError(error).code}\n\n`));
        }
      }
      end();
      controller.close();
    },
    async cancel() {
      end();
      await events.return?.();
    },
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no" },
  });
}

const frame = (event: SessionEvent): string => `id: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`;

/** A time (ms since 1970) is after everything before it: stream ids are a time and a number. */
function startOf(from: string): string {
  if (/^(?:\$|0|\d{1,15}-\d{1,10})$/.test(from)) return from;
  if (/^\d{1,15}$/.test(from)) return `${Number(from) - 1}-9999999999`;
  throw new HangarError("invalid_request", "from: give 0, $, an event's id or milliseconds since 1970");
}
