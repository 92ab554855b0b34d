/** A session and its turns (spec §5.1). What users read over REST, MCP and the CLI is exactly this. */
import { z } from "zod";
import { Activity } from "./activity.ts";
import { Checkpoint, LeftOut } from "./checkpoint.ts";
import { BranchName, RepoUrl } from "./environment.ts";
import { HarnessName } from "./environment-names.ts";
import { CheckpointId, SandboxId, SessionId, Slug, TurnId } from "./ids.ts";

export const SessionState = z.enum(["STARTING", "ACTIVE", "IDLE", "SUSPENDING", "SUSPENDED", "ARCHIVED", "FAILED"]);
export type SessionState = z.infer<typeof SessionState>;

/** What a start of a sandbox is doing; shown while it runs. */
export const StartPhase = z.enum(["starting", "cloning", "setup", "restoring", "ready"]);
export type StartPhase = z.infer<typeof StartPhase>;

export const Usage = z.strictObject({
  input_tokens: z.number().int().nonnegative(),
  output_tokens: z.number().int().nonnegative(),
  cache_read_tokens: z.number().int().nonnegative(),
  cache_write_tokens: z.number().int().nonnegative(),
  /** US dollars, of this turn alone; none when the harness does not say. */
  cost_usd: z.number().nonnegative().nullable(),
});
export type Usage = z.infer<typeof Usage>;

/** queued → running → done | failed | interrupted | cancelled. `interrupted`: its daemon died; never run again by Hangar. */
export const TurnState = z.enum(["queued", "running", "done", "failed", "interrupted", "cancelled"]);
export type TurnState = z.infer<typeof TurnState>;

export const Turn = z.strictObject({
  id: TurnId,
  message: z.string(),
  state: TurnState,
  /** The sandbox generation it ran in; none while queued. */
  run_id: z.string().nullable(),
  idempotency_key: z.string().max(200).nullable(),
  harness: HarnessName,
  harness_session: z.string().nullable(),
  queued_at: z.iso.datetime(),
  started_at: z.iso.datetime().nullable(),
  finished_at: z.iso.datetime().nullable(),
  exit_code: z.number().int().nullable(),
  /** The last assistant message; redacted. */
  summary: z.string().nullable(),
  /** Why it failed, in one line, with what to do. */
  error: z.string().nullable(),
  /** The harness began anew instead of resuming. */
  conversation_lost: z.boolean(),
  /** The prompt began with a handoff account: lossy compared with a native resume. */
  handoff: z.boolean(),
  usage: Usage.nullable(),
  checkpoint_id: z.string().nullable(),
});
export type Turn = z.infer<typeof Turn>;

/** What the work's check said when it was run last. */
export const CheckResult = z.strictObject({
  /** The script, cut. */
  check: z.string(),
  at: z.iso.datetime(),
  /** 0: the work is good. */
  exit_code: z.number().int(),
  /** It was ended by its time limit. */
  timed_out: z.boolean(),
  /** The end of what it printed, both streams; redacted. */
  output: z.string(),
  /** The newest turn that had begun by then; none: none had. */
  turn: TurnId.nullable(),
});
export type CheckResult = z.infer<typeof CheckResult>;

/** The session and checkpoint that a fork began from. */
export const ForkedFrom = z.strictObject({ session: SessionId, name: Slug, checkpoint: CheckpointId });
export type ForkedFrom = z.infer<typeof ForkedFrom>;

/** Harnesses that can go on with a copy of a conversation under an id of its own; others get an account of it. */
export const FORKING_HARNESSES: readonly string[] = ["claude", "codex", "pi", "script"];

export const Session = z.strictObject({
  id: SessionId,
  name: Slug,
  title: z.string().max(200),
  owner: z.string(),
  environment: Slug,
  harness: HarnessName,
  model: z.string().nullable(),
  repo: RepoUrl.nullable(),
  base_branch: BranchName.nullable(),
  branch: BranchName,
  harness_session: z.string().nullable(),
  sandbox_id: SandboxId.nullable(),
  state: SessionState,
  /** Why it is in that state, in one line, for a person; none when there is nothing to say. */
  status: z.string().nullable(),
  phase: StartPhase.nullable(),
  generation: z.number().int().nonnegative(),
  turns: z.array(Turn),
  checkpoints: z.array(Checkpoint),
  idle_minutes: z.number().nonnegative(),
  ttl_minutes: z.number().nonnegative(),
  /** When the sandbox's hard limit falls; none without one. */
  expires_at: z.iso.datetime().nullable(),
  /** What keeps it awake now, newest report of its sandbox; empty when nothing does. */
  kept_awake_by: z.array(z.string()),
  /**
   * Files that no checkpoint holds: they keep the session from being suspended, for idleness until then (none: it is not
   * suspended for idleness). None: there are no such files.
   */
  held: z.strictObject({ files: z.array(LeftOut), until: z.iso.datetime().nullable() }).nullable(),
  activity: Activity.nullable(),
  /** The checkpoint that the present sandbox was restored from, and whether it verified. */
  restored_from: z
    .strictObject({ checkpoint: z.string(), verified: z.boolean(), missing: z.array(z.string()) })
    .nullable(),
  /** None: it is no fork. */
  forked_from: ForkedFrom.nullable(),
  /** A sandbox that ended without a last checkpoint and whose folder may still hold work. */
  leftover_sandbox: SandboxId.nullable(),
  /** The last assistant message of a session, kept also after archive. */
  last_summary: z.string().nullable(),
  /** None: it was never run. */
  last_check: CheckResult.nullable(),
  usage: Usage.nullable(),
  job_id: z.string().nullable(),
  created_at: z.iso.datetime(),
  last_active_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
});
export type Session = z.infer<typeof Session>;

/** `hangar/session/<name>` (spec §5.1). */
export const defaultBranch = (name: string): string => `hangar/session/${name}`;

/** The folder a session's repo is checked out at under `/workspace`: the last part of the repo's path, made safe. */
export function repoFolder(repo: string | null): string {
  const last =
    (repo ?? "")
      .replace(/\/+$/, "")
      .replace(/\.git$/, "")
      .split(/[/:]/)
      .pop() ?? "";
  const safe = last.replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[.-]+/, "");
  return safe.slice(0, 100) || "repo";
}
