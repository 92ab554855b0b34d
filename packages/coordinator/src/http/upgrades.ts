/**
 * WebSocket upgrades. A refused one is answered as a problem like any request; an accepted one gets its handler's `ws` with
 * a bounded frame and a check that its other end is alive.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { HangarError, MAX_FRAME } from "@hangar/shared";
import { type WebSocket, WebSocketServer } from "ws";
import type { CheckHost } from "./auth.ts";
import { asHangarError, problemResponse } from "./problem.ts";
import type { Log } from "../telemetry.ts";

export interface Upgrade {
  readonly url: URL;
  readonly authorization: string | undefined;
  /** Named groups of the route's pattern, decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Aborted when the caller goes away before it is upgraded. */
  readonly signal: AbortSignal;
}

export interface UpgradeRoute {
  readonly pattern: RegExp;
  /** Decides; throws a HangarError to refuse. What it returns takes the open socket over, in the same tick. */
  accept(upgrade: Upgrade): Promise<(ws: WebSocket) => void>;
}

export interface UpgradeDeps {
  readonly log: Log;
  readonly checkHost: CheckHost;
  /** Why none is accepted now; `null`: they are. */
  readonly refusing: () => string | null;
  /** A socket that answers no ping for this long is ended. */
  readonly pingMs: number;
}

/** Returns how to end every socket: daemons and terminals see `1001`, going away. */
export function serveUpgrades(server: Server, routes: readonly UpgradeRoute[], deps: UpgradeDeps): () => Promise<void> {
  const wss = new WebSocketServer({ noServer: true, maxPayload: MAX_FRAME, perMessageDeflate: false });
  const stopPings = endDeadSockets(wss, deps.pingMs);

  const upgrade = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const gone = new AbortController();
    const onClose = (): void => gone.abort();
    const ignore = (): void => {};
    socket.once("close", onClose);
    socket.on("error", ignore);
    const requestId = newRequestId();
    try {
      const take = await accept(request, gone.signal);
      const refusing = deps.refusing();
      if (refusing !== null) throw new HangarError("not_running", refusing);
      if (socket.destroyed) return;
      wss.handleUpgrade(request, socket, head, (ws) => {
        socket.off("close", onClose);
        socket.off("error", ignore);
        ws.on("error", (error) => deps.log.debug({ requestId, error: error.message }, "a WebSocket failed"));
        wss.emit("connection", ws, request);
        take(ws);
      });
    } catch (error) {
      const known = asHangarError(error);
      if (known.status >= 500) deps.log.error({ requestId, error }, "an upgrade failed");
      else deps.log.debug({ requestId, code: known.code }, "an upgrade was refused");
      await writeResponse(socket, problemResponse(known, requestId));
    }
  };

  const accept = async (request: IncomingMessage, signal: AbortSignal): Promise<(ws: WebSocket) => void> => {
    deps.checkHost(request.headers.host, request.headers.origin);
    const url = requestUrl(request);
    for (const route of routes) {
      const match = route.pattern.exec(url.pathname);
      if (match) {
        const params = Object.fromEntries(Object.entries(match.groups ?? {}).map(([k, v]) => [k, decodePiece(v)]));
        return route.accept({ url, authorization: request.headers.authorization, params, signal });
      }
    }
    throw new HangarError("not_found", `There is no WebSocket at ${url.pathname.slice(0, 200)}`);
  };

  server.on("upgrade", (request, socket, head) => void upgrade(request, socket, head));

  return async () => {
    stopPings();
    for (const ws of wss.clients) ws.close(1001, "the coordinator is stopping");
    const deadline = Date.now() + 1000;
    while (wss.clients.size > 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
    for (const ws of wss.clients) ws.terminate();
  };
}

export const newRequestId = (): string => `req-${randomUUID().replaceAll("-", "").slice(0, 16)}`;

/** The timer runs only while there are sockets. A paused one reads no pong: its peer's own check ends it. */
function endDeadSockets(wss: WebSocketServer, pingMs: number): () => void {
  const answered = new WeakSet<WebSocket>();
  let timer: NodeJS.Timeout | null = null;
  const pass = (): void => {
    for (const ws of wss.clients) {
      if (ws.isPaused) continue;
      if (!answered.delete(ws)) ws.terminate();
      else ws.ping();
    }
    if (wss.clients.size === 0) stop();
  };
  const stop = (): void => {
    if (timer) clearInterval(timer);
    timer = null;
  };
  wss.on("connection", (ws: WebSocket) => {
    answered.add(ws);
    ws.on("pong", () => answered.add(ws));
    ws.on("message", () => answered.add(ws));
    timer ??= setInterval(pass, pingMs).unref();
  });
  return stop;
}

function requestUrl(request: IncomingMessage): URL {
  const target = request.url ?? "/";
  if (!target.startsWith("/") || !URL.canParse(`http://hangar${target}`)) {
    throw new HangarError("invalid_request", "The request's target is not a path");
  }
  return new URL(`http://hangar${target}`);
}

function decodePiece(piece: string | undefined): string {
  try {
    return decodeURIComponent(piece ?? "");
  } catch {
    throw new HangarError("invalid_request", "The path is not well-formed");
  }
}

async function writeResponse(socket: Duplex, response: Response): Promise<void> {
  if (socket.destroyed) return;
  const body = Buffer.from(await response.arrayBuffer());
  const lines = [`HTTP/1.1 ${response.status} Refused`, "connection: close", `content-length: ${body.length}`];
  response.headers.forEach((value, name) => lines.push(`${name}: ${value}`));
  socket.end(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`), body]));
}
