/** `/api/sessions/:id/export`, `/api/imports`: sessions between installations. Bytes go to and from the store itself. */
import { ExportRequest, ImportRequest } from "@hangar/shared";
import type { Sessions } from "../session/sessions.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const transferRoutes = (sessions: Sessions): Routes => ({
  "/api/sessions/:id/export": {
    POST: async (c) => c.json(await sessions.export(OWNER, param(c, "id"), await readBody(c, ExportRequest))),
  },
  "/api/imports": {
    POST: async (c) => c.json(await sessions.beginImport(OWNER, await readBody(c, ImportRequest)), 201),
  },
  "/api/imports/:id": {
    POST: async (c) => c.json(await sessions.commitImport(OWNER, param(c, "id"), await readBody(c, ImportRequest))),
    DELETE: async (c) => {
      await sessions.cancelImport(OWNER, param(c, "id"));
      return c.body(null, 204);
    },
  },
});
