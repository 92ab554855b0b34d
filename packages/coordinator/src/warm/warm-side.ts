/** What the daemon of a warm sandbox is told and says: see `warm.ts` of the shared package. */
import { HangarError, repoFolder } from "@hangar/shared";
import type { GitCredentialAnswer, GitCredentialRequest, ToWarm, WarmState } from "@hangar/shared";
import { declaredFor } from "../session/declared.ts";
import { agentToken } from "../session/agent-token.ts";
import type { Deps, WarmRecord } from "../session/ports.ts";
import { poolOf } from "./pool.ts";
import { warmIdOf } from "./warm-token.ts";

/** Every call throws `stale_generation` once the sandbox is not on record any more. */
export interface WarmSide {
  /** The warm sandbox's id. `unauthorized`. */
  authenticate(token: string): Promise<string>;
  welcome(id: string): Promise<ToWarm>;
  report(id: string, state: WarmState, detail: string | null): Promise<void>;
  /** Its claim, as soon as there is one, or that it is retired, which ends it. */
  follow(id: string, signal: AbortSignal): AsyncIterable<ToWarm>;
  gitCredential(id: string, request: GitCredentialRequest): Promise<GitCredentialAnswer>;
}

const FETCH_SECONDS = 180;
const REREAD_MS = 15_000;

export function makeWarmSide(deps: Deps): WarmSide {
  const known = async (id: string): Promise<WarmRecord> => {
    const record = await deps.warm.get(id);
    if (record) return record;
    throw new HangarError("stale_generation", `The warm sandbox ${id} is not wanted any more`);
  };
  const environmentOf = async ({ owner, environment }: WarmRecord) => {
    const found = await deps.environments.get(owner, environment);
    if (found) return found;
    throw new HangarError("stale_generation", `The environment "${environment}" is gone`);
  };

  return {
    async authenticate(token) {
      const id = warmIdOf(deps.vault, token);
      await known(id);
      return id;
    },
    async welcome(id) {
      const record = await known(id);
      const environment = await environmentOf(record);
      const { repo, base_branch, harness, setup, variables } = environment;
      await deps.warm.heard(id, deps.clock());
      const { settings } = deps;
      return {
        type: "welcome",
        heartbeat_seconds: settings.heartbeat_seconds,
        boot: {
          repo,
          base_branch,
          cwd: `${deps.driver.workspace("")}/${repoFolder(repo)}`,
          harness,
          setup,
          variables,
          git_credentials:
            settings.git_credentials === "host" && deps.credentials !== null && /^https?:/.test(repo ?? ""),
          harnesses: declaredFor(environment, settings),
          fetch_seconds: settings.warm_fetch_seconds ?? FETCH_SECONDS,
        },
      };
    },
    async report(id, state, detail) {
      await deps.warm.heard(id, deps.clock());
      for (;;) {
        const record = await known(id);
        if (record.state === state && record.detail === detail) return;
        const now = deps.clock();
        const retry = state === "failed" ? { retry_at: now + 300_000 } : {};
        if (!(await deps.warm.change(record, { state, detail, changed_at: now, unbuilt: false, ...retry }))) continue;
        await deps.pools.nudge(poolOf(record), now);
        return;
      }
    },
    async *follow(id, signal) {
      const watch = await deps.warm.watch(id);
      try {
        while (!signal.aborted) {
          const record = await deps.warm.get(id);
          if (record === null) {
            yield { type: "retired" };
            return;
          }
          if (record.handed && record.claimed_by !== null) {
            const session = await deps.sessions.get(`ses-${record.claimed_by.slice(4, 12)}`);
            if (session?.sandbox_id !== record.claimed_by) {
              yield { type: "retired" };
              return;
            }
            yield { type: "claimed", sandbox: record.claimed_by, token: agentToken(deps.vault, session) };
          }
          await watch.changed(REREAD_MS, signal);
        }
      } finally {
        watch.close();
      }
    },
    async gitCredential(id, request) {
      const { repo } = await environmentOf(await known(id));
      const { credentials, settings } = deps;
      const answer =
        credentials === null || settings.git_credentials === "off" || repo === null
          ? null
          : await credentials.fill(request, repo);
      if (answer) return answer;
      throw new HangarError("not_found", `This machine's git knows no credential for ${request.host}`);
    },
  };
}
