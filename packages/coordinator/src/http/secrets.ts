/** `/api/secrets`: values go in and never come out. `?environment=` names the environment that one is for alone. */
import { SecretPut } from "@hangar/shared";
import type { Secrets } from "../environment/secrets.ts";
import { OWNER } from "./auth.ts";
import { type Ctx, param, readBody, type Routes } from "./routes.ts";

export const secretRoutes = (secrets: Secrets): Routes => ({
  "/api/secrets": {
    GET: async (c) => c.json({ secrets: await secrets.list(OWNER) }),
  },
  "/api/secrets/:name": {
    PUT: async (c) => c.json(await secrets.put(OWNER, keyOf(c), await readBody(c, SecretPut))),
    DELETE: async (c) => {
      await secrets.remove(OWNER, keyOf(c));
      return c.body(null, 204);
    },
  },
});

const keyOf = (c: Ctx) => ({ name: param(c, "name"), environment: c.req.query("environment") || null });
