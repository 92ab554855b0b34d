/**
 * The HTTP face: every route of `packages/shared/src/api.ts` and of the daemon's protocol, behind the checks that all of
 * them share. Testable in process: `createApp(deps).request(…)`.
 */
import { Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { HangarError } from "@hangar/shared";
import type { Environments } from "./environment/environments.ts";
import type { Secrets } from "./environment/secrets.ts";
import { agentRoutes } from "./http/agent.ts";
import type { CheckAdmin, CheckHost } from "./http/auth.ts";
import { checkpointRoutes } from "./http/checkpoints.ts";
import { environmentRoutes } from "./http/environments.ts";
import type { McpFace } from "./http/mcp.ts";
import { asHangarError, problemResponse } from "./http/problem.ts";
import type { AppEnv, Ctx, Method, Routes } from "./http/routes.ts";
import { sandboxRoutes } from "./http/sandboxes.ts";
import { secretRoutes } from "./http/secrets.ts";
import { sessionRoutes } from "./http/sessions.ts";
import { statusRoutes, type StatusDeps } from "./http/status.ts";
import { transferRoutes } from "./http/transfer.ts";
import { turnRoutes } from "./http/turns.ts";
import { vaultRoutes, type VaultDeps } from "./http/vault.ts";
import { newRequestId } from "./http/upgrades.ts";
import type { AgentSide, Sessions } from "./session/sessions.ts";
import type { Log } from "./telemetry.ts";
import type { WarmSide } from "./warm/warm-side.ts";

export interface AppDeps extends StatusDeps {
  readonly sessions: Sessions;
  readonly agents: AgentSide;
  readonly warm: WarmSide;
  readonly environments: Environments;
  readonly secrets: Secrets;
  readonly vault: VaultDeps;
  readonly mcp: McpFace;
  readonly checkAdmin: CheckAdmin;
  readonly checkHost: CheckHost;
  /** The volume store's signed URLs, where this replica serves them; it has its own checks and limits. */
  readonly volume: { readonly prefix: string; handle(request: Request): Promise<Response> } | null;
  readonly log: Log;
  /** Why nothing is served now, while it starts and while it stops; `null`: it serves. */
  readonly refusing: () => string | null;
  /** Fires when it stops: streams without an end of their own end then. */
  readonly stopping: AbortSignal;
}

/** A message may hold 1,000,000 characters, each up to six bytes of JSON. */
const MAX_API_BODY = 8 * 1024 * 1024;
/** A commit names up to 4096 parts and 2000 paths of up to 4 KiB. */
const MAX_AGENT_BODY = 16 * 1024 * 1024;

export function createApp(deps: AppDeps): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.use("*", async (c, next) => {
    const requestId = newRequestId();
    c.set("requestId", requestId);
    deps.checkHost(c.req.header("host"), c.req.header("origin"));
    const refusing = deps.refusing();
    if (refusing !== null && c.req.path !== "/healthz") throw new HangarError("not_running", refusing);
    await next();
    c.header("x-request-id", requestId);
    c.header("x-content-type-options", "nosniff");
    if (!c.res.headers.has("cache-control")) c.header("cache-control", "no-store");
  });
  app.use("/api/*", async (c, next) => {
    deps.checkAdmin(c.req.header("authorization"));
    await next();
  });
  app.use("/mcp", async (c, next) => {
    deps.checkAdmin(c.req.header("authorization"));
    await next();
  });
  app.use("/api/*", limitBody(MAX_API_BODY));
  app.use("/agent/*", limitBody(MAX_AGENT_BODY));

  mount(app, statusRoutes(deps));
  mount(app, sessionRoutes(deps.sessions, deps));
  mount(app, turnRoutes(deps.sessions));
  mount(app, checkpointRoutes(deps.sessions));
  mount(app, transferRoutes(deps.sessions));
  mount(app, environmentRoutes(deps.environments));
  mount(app, secretRoutes(deps.secrets));
  mount(app, vaultRoutes(deps.vault));
  mount(app, sandboxRoutes(deps.sessions));
  mount(app, agentRoutes(deps.agents, deps.warm));
  mount(app, WEBSOCKETS);
  app.all("/mcp", (c) => deps.mcp.fetch(c.req.raw));
  const { volume } = deps;
  if (volume) app.all(`${volume.prefix}/*`, (c) => volume.handle(c.req.raw));

  app.notFound((c) => {
    throw new HangarError("not_found", `There is nothing at ${c.req.path.slice(0, 200)}`);
  });
  app.onError((error, c) => {
    logError(deps.log, error, c);
    return problemResponse(error, c.get("requestId"));
  });
  return app;
}

function mount(app: Hono<AppEnv>, routes: Routes): void {
  for (const [path, methods] of Object.entries(routes)) {
    for (const [method, handler] of Object.entries(methods)) app.on(method as Method, path, handler);
    const allowed = Object.keys(methods).join(", ");
    app.all(path, (c) => {
      const line = `${c.req.method} is not offered here: ${allowed} is`;
      const answer = problemResponse(new HangarError("method_not_allowed", line), c.get("requestId"));
      answer.headers.set("allow", allowed);
      return answer;
    });
  }
}

const upgradeOnly = (): never => {
  throw new HangarError("invalid_request", "This is a WebSocket: send an upgrade request");
};
const WEBSOCKETS: Routes = {
  "/api/sandboxes/:ref/terminal": { GET: upgradeOnly },
  "/agent/link": { GET: upgradeOnly },
  "/agent/warm": { GET: upgradeOnly },
  "/agent/terminals/:id": { GET: upgradeOnly },
};

const limitBody = (maxSize: number) =>
  bodyLimit({
    maxSize,
    onError: () => {
      throw new HangarError("body_too_large", `The body is over ${maxSize / 1024 / 1024} MiB`);
    },
  });

/** Logged once, here; what the caller did wrong is theirs to see and only of interest when looked for. */
function logError(log: Log, error: unknown, c: Ctx): void {
  const known = asHangarError(error);
  const fields = { requestId: c.get("requestId"), method: c.req.method, path: c.req.path, code: known.code };
  if (known.status >= 500) log.error({ ...fields, error }, "a request failed");
  else log.debug({ ...fields, detail: known.message }, "a request was refused");
}
