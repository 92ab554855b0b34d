/** Programs and terminals in a session's sandbox. Each counts as a use of it. */
import { ExecRequest, ExecResult, HangarError, newCommandId } from "@hangar/shared";
import type { z } from "zod";
import { ask } from "./ask.ts";
import { expiry, isLive, iso, NO_ACTIVITY } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

/** Output beyond this is cut, per stream; both, in base64, fit into a frame of the link. */
const MAX_OUTPUT = 1_048_576;

export async function exec(
  deps: Deps,
  record: SessionRecord,
  input: ExecRequest,
  signal?: AbortSignal,
): Promise<ExecResult> {
  const { argv, cwd, timeout_seconds }: z.output<typeof ExecRequest> = ExecRequest.parse(input);
  await touch(deps, record);
  const answer = await ask(
    deps,
    record,
    newCommandId(),
    timeout_seconds + 30,
    { kind: "exec", argv, cwd: cwd ?? null, timeout_seconds, max_bytes: MAX_OUTPUT },
    signal,
  );
  await touch(deps, record);
  const result = ExecResult.safeParse(answer);
  if (result.success) return result.data;
  throw new HangarError("internal", "The sandbox gave an answer that makes no sense");
}

export async function openTerminal(
  deps: Deps,
  record: SessionRecord,
  input: { what: "shell" | "harness"; cols: number; rows: number; url: string },
  signal?: AbortSignal,
): Promise<void> {
  await touch(deps, record);
  const { harness, harness_session, model } = record;
  const command = { kind: "terminal", ...input, harness, harness_session, model } as const;
  await ask(deps, record, newCommandId(), 60, command, signal);
  await countTerminal(deps, record);
}

/** It counts from now on; the daemon's next report says how many there are. */
async function countTerminal(deps: Deps, { id, generation }: SessionRecord): Promise<void> {
  const activity = (await deps.sessions.get(id))?.activity ?? NO_ACTIVITY;
  const terminals_open = Math.max(activity.terminals_open, 1);
  await deps.sessions.change(id, { generation }, { quiet: true, set: { activity: { ...activity, terminals_open } } });
}

/** It stays awake for a while, and its time limit moves. */
export async function touch(deps: Deps, record: SessionRecord): Promise<void> {
  if (!isLive(record.state)) return;
  const now = deps.clock();
  await deps.sessions.change(
    record.id,
    { generation: record.generation },
    { quiet: true, set: { used_at: now, last_active_at: iso(now), expires_at: expiry(record.ttl_minutes, now) } },
  );
}
