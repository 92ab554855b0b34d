/** `/api/environments`. */
import { z } from "zod";
import type { Environments } from "../environment/environments.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const environmentRoutes = (environments: Environments): Routes => ({
  "/api/environments": {
    GET: async (c) => c.json({ environments: await environments.list(OWNER) }),
  },
  "/api/environments/:name/warm": {
    GET: async (c) => c.json(await environments.pool(OWNER, param(c, "name"))),
  },
  "/api/environments/:name": {
    GET: async (c) => c.json(await environments.get(OWNER, param(c, "name"))),
    PUT: async (c) => c.json(await environments.put(OWNER, param(c, "name"), await readBody(c, z.unknown()))),
    DELETE: async (c) => {
      await environments.remove(OWNER, param(c, "name"));
      return c.body(null, 204);
    },
  },
});
