/** A session's checkpoints: take one, list them, go back to one. */
import { RestoreSession } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const checkpointRoutes = (sessions: Sessions): Routes => ({
  "/api/sessions/:id/checkpoint": {
    POST: async (c) => c.json(await sessions.checkpointNow(OWNER, param(c, "id"))),
  },
  "/api/sessions/:id/checkpoints": {
    GET: async (c) => c.json({ checkpoints: await sessions.checkpoints(OWNER, param(c, "id")) }),
  },
  "/api/sessions/:id/restore": {
    POST: async (c) => c.json(await sessions.restore(OWNER, param(c, "id"), await readBody(c, RestoreSession)), 202),
  },
});
