/** A loopback HTTP server for stand-ins: reads JSON bodies, records requests, closes with everything that is open. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Recorded {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

export interface StandIn extends AsyncDisposable {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  /** Every request so far, oldest first. */
  readonly requests: Recorded[];
  /** Answers the next `times` model requests with an HTTP status, whatever they ask. */
  failNext(status: number, times?: number): void;
  close(): Promise<void>;
}

/** Handles one request; `forced` is the status that `failNext` asks for. */
export type Handler = (request: Recorded, response: ServerResponse, forced: () => number | null) => void;

export async function startStandIn(handle: Handler, port = 0): Promise<StandIn> {
  const requests: Recorded[] = [];
  let failing = { status: 0, times: 0 };
  const forced = (): number | null => {
    if (failing.times === 0) return null;
    failing = { ...failing, times: failing.times - 1 };
    return failing.status;
  };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const recorded: Recorded = {
        method: request.method ?? "",
        path: request.url ?? "",
        headers: request.headers,
        body: parsed(Buffer.concat(chunks).toString("utf8")),
      };
      requests.push(recorded);
      handle(recorded, response, forced);
    });
  });
  server.on("upgrade", (_request, socket) => socket.end("HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    failNext: (status, times = 1) => {
      failing = { status, times };
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

/** Sends server-sent events and ends the response. */
export function sendEvents(response: ServerResponse, events: readonly { event?: string; data: unknown }[]): void {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  for (const { event, data } of events) {
    if (event !== undefined) response.write(`event: ${event}\n`);
    response.write(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
  }
  response.end();
}

export const asObject = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
export const asArray = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
export const asText = (value: unknown): string => (typeof value === "string" ? value : "");

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
