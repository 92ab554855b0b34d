/** `/api/sessions`: make, list, look at, keep, remove; open, suspend, archive; and their events. */
import { CheckSession, ForkSession, KeepSession, NewSession, OpenSession, SuspendSession } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { eventStream, type StreamDeps } from "./events.ts";
import { OWNER } from "./auth.ts";
import { flag, param, readBody, type Routes } from "./routes.ts";

export const sessionRoutes = (sessions: Sessions, streams: StreamDeps): Routes => ({
  "/api/sessions": {
    GET: async (c) => c.json({ sessions: await sessions.list(OWNER, { all: flag(c, "all") }) }),
    POST: async (c) => c.json(await sessions.create(OWNER, await readBody(c, NewSession)), 201),
  },
  "/api/sessions/:id": {
    GET: async (c) => c.json(await sessions.get(OWNER, param(c, "id"))),
    PATCH: async (c) => c.json(await sessions.keep(OWNER, param(c, "id"), await readBody(c, KeepSession))),
    DELETE: async (c) => {
      await sessions.remove(OWNER, param(c, "id"), { force: flag(c, "force") });
      return c.body(null, 204);
    },
  },
  "/api/sessions/:id/open": {
    POST: async (c) => c.json(await sessions.open(OWNER, param(c, "id"), await readBody(c, OpenSession)), 202),
  },
  "/api/sessions/:id/suspend": {
    POST: async (c) => c.json(await sessions.suspend(OWNER, param(c, "id"), await readBody(c, SuspendSession)), 202),
  },
  "/api/sessions/:id/archive": {
    POST: async (c) => c.json(await sessions.archive(OWNER, param(c, "id")), 202),
  },
  "/api/sessions/:id/check": {
    POST: async (c) =>
      c.json(await sessions.check(OWNER, param(c, "id"), await readBody(c, CheckSession), c.req.raw.signal)),
  },
  "/api/sessions/:id/fork": {
    POST: async (c) => {
      const forks = await sessions.fork(OWNER, param(c, "id"), await readBody(c, ForkSession));
      return c.json({ sessions: forks }, 201);
    },
  },
  "/api/sessions/:id/events": { GET: (c) => eventStream(c, sessions, streams) },
});
