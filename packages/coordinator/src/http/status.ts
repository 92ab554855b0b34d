/** `/api/status` and `/healthz`. */
import type { Status } from "@hangar/shared";
import type { Routes } from "./routes.ts";

export interface StatusDeps {
  status(): Promise<Status>;
  /** Whether this replica can serve: Redis answers and it is not stopping. */
  healthy(): Promise<boolean>;
}

export const statusRoutes = (deps: StatusDeps): Routes => ({
  "/api/status": { GET: async (c) => c.json(await deps.status()) },
  "/healthz": { GET: async (c) => ((await deps.healthy()) ? c.text("ok") : c.text("not ready", 503)) },
});
