/** `/api/secrets`: values go in and never come out. */
import { SecretPut } from "@hangar/shared";
import type { Secrets } from "../environment/secrets.ts";
import { OWNER } from "./auth.ts";
import { param, readBody, type Routes } from "./routes.ts";

export const secretRoutes = (secrets: Secrets): Routes => ({
  "/api/secrets": {
    GET: async (c) => c.json({ secrets: await secrets.list(OWNER) }),
  },
  "/api/secrets/:name": {
    PUT: async (c) => c.json(await secrets.put(OWNER, param(c, "name"), (await readBody(c, SecretPut)).value)),
    DELETE: async (c) => {
      await secrets.remove(OWNER, param(c, "name"));
      return c.body(null, 204);
    },
  },
});
