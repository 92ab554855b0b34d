/** `/api/sandboxes`: what runs, and a command in one of them. */
import { ExecRequest } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const sandboxRoutes = (sessions: Sessions): Routes => ({
  "/api/sandboxes": {
    GET: async (c) => c.json({ sandboxes: await sessions.sandboxes(OWNER) }),
  },
  "/api/sandboxes/:ref/exec": {
    POST: async (c) => {
      const request = await readBody(c, ExecRequest);
      return c.json(await sessions.exec(OWNER, param(c, "ref"), request, c.req.raw.signal));
    },
  },
});
