/**
 * A warm sandbox: cloned and set up for an environment before any session needs it. Its daemon waits at `GET /agent/warm`, a
 * WebSocket with a token of its own, until a session claims it; the link then hands it that session's token, and with it the
 * daemon fetches its boot answer and goes on as that session's sandbox. It holds no secrets before.
 */
import { z } from "zod";
import { BranchName, RepoUrl } from "./environment.ts";
import { HarnessName, VariableName } from "./environment-names.ts";
import { HarnessDefinition } from "./harness-definition.ts";
import { SandboxId, WarmId } from "./ids.ts";

/** What a warm sandbox is made of. */
export const WarmBoot = z.strictObject({
  repo: RepoUrl.nullable(),
  base_branch: BranchName.nullable(),
  cwd: z.string(),
  harness: HarnessName,
  harnesses: z.array(HarnessDefinition),
  setup: z.string().nullable(),
  variables: z.record(VariableName, z.string()),
  git_credentials: z.boolean(),
  /** How often what is new at the remote is fetched. */
  fetch_seconds: z.number().positive(),
});
export type WarmBoot = z.infer<typeof WarmBoot>;

/** `busy`: it fetches or sets up. `stale`: its clone cannot follow the remote, so it is to be replaced. */
export const WarmState = z.enum(["busy", "ready", "stale", "failed"]);
export type WarmState = z.infer<typeof WarmState>;

export const FromWarm = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("hello"), protocol: z.number().int(), warm: WarmId }),
  /** At each change, and as heartbeat. `detail`: what it does, or why it failed. */
  z.strictObject({ type: z.literal("state"), state: WarmState, detail: z.string().max(4000).nullable() }),
]);
export type FromWarm = z.infer<typeof FromWarm>;

export const ToWarm = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("welcome"), heartbeat_seconds: z.number().positive(), boot: WarmBoot }),
  /** From now on it is that sandbox, with that token. Repeated until its daemon dials as that sandbox. */
  z.strictObject({ type: z.literal("claimed"), sandbox: SandboxId, token: z.string() }),
  /** Nobody wants it any more: it ends. */
  z.strictObject({ type: z.literal("retired") }),
]);
export type ToWarm = z.infer<typeof ToWarm>;

/** An environment's warm pool, for people. */
export const WarmPoolStatus = z.strictObject({
  /** How many it is to have now; 0 outside of its hours. */
  wanted: z.number().int().nonnegative(),
  ready: z.number().int().nonnegative(),
  starting: z.number().int().nonnegative(),
  /** What the first of those that start does or waits for, as a session's start says it; none: none starts. */
  phase: z.string().nullable(),
  /** When its hours begin or end next; none: they do not. */
  changes_at: z.iso.datetime().nullable(),
  /** What keeps it from being full; none: nothing. */
  problem: z.string().nullable(),
});
export type WarmPoolStatus = z.infer<typeof WarmPoolStatus>;
