/** Finds what a person or a token names, and shows sessions as people see them. */
import { HangarError, SandboxId, startText } from "@hangar/shared";
import type { Checkpoint, SandboxInfo, Session, SessionListItem, Turn } from "@hangar/shared";
import { atRisk, heldUntil, isHolding } from "./held.ts";
import { awakeBy, isLive, iso } from "./machine.ts";
import type { Deps } from "./ports.ts";
import { hideCredentials } from "./redaction.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";

/** By id, name or sandbox id. `session_not_found`; `sandbox_not_found` for a sandbox that is no more. */
export async function find(deps: Deps, owner: string, ref: string): Promise<SessionRecord> {
  const isSandbox = SandboxId.safeParse(ref).success;
  const record = await deps.sessions.find(owner, isSandbox ? sessionOf(ref) : ref);
  if (isSandbox && record?.sandbox_id !== ref) {
    throw new HangarError("sandbox_not_found", `There is no sandbox ${ref}: see \`hangar sb list\``);
  }
  if (record && record.ending !== "remove") return record;
  throw new HangarError(
    "session_not_found",
    `There is no session "${ref.slice(0, 100)}": see \`hangar session list --all\``,
  );
}

/** The session that a sandbox id was made for. */
export const sessionOf = (sandbox: string): string => `ses-${sandbox.slice(4, 12)}`;

export async function show(deps: Deps, record: SessionRecord): Promise<Session> {
  const [turns, checkpoints] = await Promise.all([
    deps.sessions.turns(record.id),
    deps.sessions.checkpoints(record.id),
  ]);
  return toSession(deps, record, turns.map(toTurn), checkpoints);
}

export const toTurn = ({ timeout_seconds: _t, preamble: _p, ...turn }: TurnRecord): Turn => turn;

export const toCheckpoint = ({ meta_file: _m, ...checkpoint }: CheckpointRecord): Checkpoint => checkpoint;

/** The user of ssh is no secret; a token in a URL is. */
const shownRepo = (repo: string | null): string | null =>
  repo === null || repo.startsWith("ssh:") ? repo : hideCredentials(repo);

/** While it starts, what the start does or waits for. */
const shownStatus = ({ state, phase, status }: SessionRecord): string | null =>
  state === "STARTING" ? startText(phase, status) : status;

/** Without the fields that only Hangar needs. */
function toSession(deps: Deps, record: SessionRecord, turns: Turn[], checkpoints: CheckpointRecord[]): Session {
  return {
    id: record.id,
    name: record.name,
    title: record.title,
    owner: record.owner,
    environment: record.environment,
    harness: record.harness,
    model: record.model,
    repo: shownRepo(record.repo),
    base_branch: record.base_branch,
    branch: record.branch,
    harness_session: record.harness_session,
    sandbox_id: record.sandbox_id,
    state: record.state,
    status: shownStatus(record),
    phase: record.phase,
    generation: record.generation,
    turns,
    checkpoints: checkpoints.map(toCheckpoint),
    idle_minutes: record.idle_minutes,
    ttl_minutes: record.ttl_minutes,
    expires_at: record.expires_at,
    kept_awake_by: awakeBy(record, deps.clock(), deps.settings),
    held: heldOf(deps, record, checkpoints),
    activity: record.activity,
    restored_from: record.restored_from,
    forked_from: record.forked_from,
    leftover_sandbox: record.leftover_sandbox,
    last_summary: record.last_summary,
    last_check: record.last_check ?? null,
    usage: record.usage,
    job_id: record.job_id,
    created_at: record.created_at,
    last_active_at: record.last_active_at,
    updated_at: record.updated_at,
  };
}

function heldOf(deps: Deps, record: SessionRecord, checkpoints: CheckpointRecord[]): Session["held"] {
  const files = isLive(record.state) && isHolding(deps.settings) ? atRisk(record, checkpoints) : [];
  if (files.length === 0) return null;
  return { files: [...files], until: record.idle_minutes === 0 ? null : iso(heldUntil(record, deps.settings)) };
}

export async function listItem(deps: Deps, record: SessionRecord): Promise<SessionListItem> {
  const { turns, queued, checkpoints } = await deps.sessions.counts(record.id);
  const { id, name, title, environment, harness, repo, branch, state, phase } = record;
  const { last_summary, last_active_at } = record;
  const status = shownStatus(record);
  const shown = { id, name, title, environment, harness, repo: shownRepo(repo), branch, state, status, phase };
  return { ...shown, turns, queued, checkpoints, last_summary, last_active_at };
}

export function sandboxInfo(deps: Deps, record: SessionRecord, sandbox: string): SandboxInfo {
  return {
    id: sandbox,
    session: record.id,
    session_name: record.name,
    driver: deps.driver.name,
    // A replica that was killed could not say that its link is gone.
    connected: record.connected && deps.clock() - record.seen_at < deps.settings.heartbeat_seconds * 4000,
    state: record.state,
    started_at: record.sandbox_started_at,
    expires_at: record.expires_at,
    kept_awake_by: awakeBy(record, deps.clock(), deps.settings),
  };
}
