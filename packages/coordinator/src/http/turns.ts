/** Messages to a session's agent. */
import { SendMessage } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const turnRoutes = (sessions: Sessions): Routes => ({
  "/api/sessions/:id/send": {
    POST: async (c) => c.json(await sessions.send(OWNER, param(c, "id"), await readBody(c, SendMessage)), 202),
  },
  "/api/sessions/:id/turns/:turn/cancel": {
    POST: async (c) => c.json(await sessions.cancelTurn(OWNER, param(c, "id"), param(c, "turn")), 202),
  },
});
