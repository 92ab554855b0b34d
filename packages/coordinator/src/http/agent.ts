/** `/agent/…`: the plain HTTP of a sandbox's daemon, with its own token. */
import {
  BeginCheckpoint,
  CheckpointId,
  CommitCheckpoint,
  DownloadRequest,
  GitCredentialRequest,
  HangarError,
  RenewUploads,
} from "@hangar/shared";
import type { AgentIdentity, AgentSide } from "../session/sessions.ts";
import type { WarmSide } from "../warm/warm-side.ts";
import { isWarmToken } from "../warm/warm-token.ts";
import { bearer } from "./auth.ts";
import { type Ctx, type Handler, param, readBody, type Routes } from "./routes.ts";

export function agentRoutes(agents: AgentSide, warm: WarmSide): Routes {
  const asAgent =
    (handle: (agent: AgentIdentity, c: Ctx) => Promise<unknown>): Handler =>
    async (c) => {
      const agent = await agents.authenticate(bearer(c.req.header("authorization")));
      return c.json((await handle(agent, c)) as object);
    };
  return {
    "/agent/successor": {
      POST: async (c) => c.json(await agents.successor(bearer(c.req.header("authorization")))),
    },
    "/agent/boot": { GET: asAgent((agent) => agents.boot(agent)) },
    "/agent/checkpoints": {
      POST: asAgent(async (agent, c) => agents.begin(agent, await readBody(c, BeginCheckpoint))),
    },
    "/agent/checkpoints/:id/urls": {
      POST: asAgent(async (agent, c) => agents.renew(agent, checkpointId(c), await readBody(c, RenewUploads))),
    },
    "/agent/checkpoints/:id/commit": {
      POST: asAgent(async (agent, c) => agents.commit(agent, checkpointId(c), await readBody(c, CommitCheckpoint))),
    },
    "/agent/downloads": {
      POST: asAgent(async (agent, c) => agents.downloads(agent, await readBody(c, DownloadRequest))),
    },
    "/agent/git-credential": {
      // A sandbox that waits clones as well.
      POST: async (c) => {
        const token = bearer(c.req.header("authorization"));
        const request = await readBody(c, GitCredentialRequest);
        if (isWarmToken(token)) return c.json(await warm.gitCredential(await warm.authenticate(token), request));
        return c.json(await agents.gitCredential(await agents.authenticate(token), request));
      },
    },
  };
}

function checkpointId(c: Ctx): string {
  const parsed = CheckpointId.safeParse(param(c, "id"));
  if (parsed.success) return parsed.data;
  throw new HangarError("invalid_request", "the path: not a checkpoint's id");
}
