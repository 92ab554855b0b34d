/** The listening socket: which port, and what is said when it cannot be had. */
import { createAdaptorServer } from "@hono/node-server";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { HangarError } from "@hangar/shared";

export function createServer(fetch: (request: Request) => Response | Promise<Response>): Server {
  const server = createAdaptorServer({ fetch }) as Server;
  // An upload of a large part over a slow line takes its time.
  server.requestTimeout = 3_600_000;
  server.headersTimeout = 30_000;
  server.keepAliveTimeout = 20_000;
  return server;
}

/**
 * Listens on the first of `ports` that is free and answers with it. HangarError `in_use` when none is, `invalid_request`
 * when the address is none of this machine's.
 */
export async function listen(server: Server, host: string, ports: readonly number[]): Promise<number> {
  for (const port of ports) {
    const error = await tryPort(server, host, port);
    if (error === null) return (server.address() as AddressInfo).port;
    if (error.code === "EADDRINUSE") continue;
    const why = error.code === "EACCES" ? "this user may not listen there" : error.message;
    throw new HangarError(
      "invalid_request",
      `Cannot listen on ${host}:${port}: ${why}. Set HANGAR_HOST and HANGAR_PORT`,
      {
        cause: error,
      },
    );
  }
  throw new HangarError(
    "in_use",
    `Port ${ports.join(", ")} of ${host} is in use: stop what uses it, or set HANGAR_PORT to another`,
  );
}

const tryPort = (server: Server, host: string, port: number): Promise<NodeJS.ErrnoException | null> =>
  new Promise((resolve) => {
    const failed = (error: NodeJS.ErrnoException): void => resolve(error);
    server.once("error", failed);
    server.listen(port, host, () => {
      server.off("error", failed);
      resolve(null);
    });
  });

/** Takes no more connections, lets requests under way end for `graceMs`, then cuts what is left. */
export async function closeServer(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // A connection whose last answer ends meanwhile would stay for its keep-alive time.
  const idle = setInterval(() => server.closeIdleConnections(), 25);
  const cut = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(cut);
}
