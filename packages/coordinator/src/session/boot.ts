/** What a start needs: where to clone, what to restore from, and the secrets, fresh. */
import { HangarError, repoFolder } from "@hangar/shared";
import type { BootSpec, GitCredentialAnswer, GitCredentialRequest, RestoreCandidate } from "@hangar/shared";
import { identityKey } from "../store/store.ts";
import { present } from "./agent-token.ts";
import { readMarker } from "./marker.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import type { AgentIdentity } from "./faces.ts";
import { borrowing } from "./fork.ts";
import { declaredFor } from "./declared.ts";
import { secretsOf } from "./secret-values.ts";
import { failStart } from "./start-failed.ts";

/** What cannot be answered fails the start with its line. */
export async function boot(deps: Deps, agent: AgentIdentity): Promise<BootSpec> {
  const record = await present(deps, agent);
  try {
    return await spec(deps, record);
  } catch (error) {
    if (error instanceof HangarError && !error.retryable) await failStart(deps, record, error.code, error.message);
    throw error;
  }
}

async function spec(deps: Deps, record: SessionRecord): Promise<BootSpec> {
  const environment = await deps.environments.get(record.owner, record.environment);
  if (!environment) {
    throw new HangarError(
      "environment_not_found",
      `The environment "${record.environment}" is gone: apply it again with \`hangar env apply -f FILE\``,
    );
  }
  const candidates = await restoreCandidates(deps, record);
  const { settings } = deps;
  return {
    session: record.id,
    sandbox: record.sandbox_id ?? "",
    generation: record.generation,
    repo: record.repo,
    base_branch: record.base_branch,
    branch: record.branch,
    cwd: `${deps.driver.workspace(record.id)}/${repoFolder(record.repo)}`,
    harness: record.harness,
    model: record.model,
    harness_session: record.harness_session,
    harnesses: declaredFor(environment, settings),
    setup: environment.setup,
    variables: environment.variables,
    ...(await secretsOf(deps, record.owner, environment)),
    keep_ignored: environment.keep_ignored,
    candidates,
    identity: candidates.length > 0 || record.adopting !== null ? await identityOf(deps, record) : null,
    recipients: [record.recipient, deps.vault.recipient],
    adopt: record.adopting !== null,
    baseline: record.baseline_due,
    renamed_branch: await parentsBranch(deps, record),
    git_credentials:
      settings.git_credentials === "host" && deps.credentials !== null && /^https?:/.test(record.repo ?? ""),
    settings: {
      checkpoint_minutes: settings.session_checkpoint_minutes,
      max_untracked_bytes: Math.floor(settings.session_max_untracked_mb * 1_000_000),
      max_part_bytes: Math.floor(settings.session_max_part_mb * 1_000_000),
    },
  };
}

/**
 * Newest first; ones that did not restore before come last. Where a certain one was asked for, it alone. A checkpoint whose
 * marker is gone, damaged or forged is none.
 */
async function restoreCandidates(deps: Deps, record: SessionRecord): Promise<RestoreCandidate[]> {
  const parent = borrowing(record);
  if (parent) {
    const marker = await readMarker(deps, parent.session, parent.checkpoint);
    if (marker) return [{ checkpoint: parent.checkpoint, meta: marker.meta, parts: marker.parts }];
    throw new HangarError(
      "checkpoint_invalid",
      `The checkpoint that this fork begins from is gone: remove it, and fork ${parent.name} again`,
    );
  }
  const newestFirst = (await deps.sessions.checkpoints(record.id)).toReversed();
  const wanted =
    record.restore_from === null
      ? [...newestFirst.filter(({ bad }) => bad === null), ...newestFirst.filter(({ bad }) => bad !== null)]
      : newestFirst.filter(({ id }) => id === record.restore_from);
  const candidates: RestoreCandidate[] = [];
  for (const { id } of wanted) {
    try {
      const marker = await readMarker(deps, record.id, id);
      if (marker) candidates.push({ checkpoint: id, meta: marker.meta, parts: marker.parts });
      else deps.log.warn({ session: record.id, checkpoint: id }, "a checkpoint's marker is gone from the store");
    } catch (error) {
      if (!(error instanceof HangarError && error.code === "checkpoint_invalid")) throw error;
      deps.log.warn({ session: record.id, checkpoint: id, error }, "a checkpoint is not restored from");
    }
  }
  if (wanted.length > 0 && candidates.length === 0) {
    throw new HangarError(
      "checkpoint_invalid",
      "No checkpoint of this session has a valid marker in the store: see docs/recover.md to recover by hand",
    );
  }
  return candidates;
}

/** The branch that the parent worked on, which the fork's own takes the place of; none: it is no fork, or has its own already. */
async function parentsBranch(deps: Deps, record: SessionRecord): Promise<string | null> {
  const parent = borrowing(record);
  return parent === null ? null : ((await deps.sessions.get(parent.session))?.branch ?? null);
}

export async function identityOf(deps: Deps, record: SessionRecord): Promise<string> {
  const sealed = await deps.store.read(identityKey(borrowing(record)?.session ?? record.id));
  if (!sealed) {
    throw new HangarError(
      "checkpoint_invalid",
      "The session's key is gone from the store: the vault's key opens its checkpoints too, see docs/recover.md",
    );
  }
  return new TextDecoder().decode(await deps.vault.open(sealed));
}

/** For the session's own remote and no other. */
export async function gitCredential(
  deps: Deps,
  agent: AgentIdentity,
  request: GitCredentialRequest,
): Promise<GitCredentialAnswer> {
  const record = await present(deps, agent);
  const { credentials } = deps;
  if (credentials === null || deps.settings.git_credentials === "off" || record.repo === null) {
    throw new HangarError("not_found", "No credentials are offered to this sandbox");
  }
  const answer = await credentials.fill(request, record.repo);
  if (answer) {
    deps.redaction.learn(record, answer.password);
    return answer;
  }
  throw new HangarError("not_found", `This machine's git knows no credential for ${request.host}`);
}
