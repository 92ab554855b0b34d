/** Runs the check of a session's work, and keeps what it said: a handoff tells the next agent. */
import { HangarError } from "@hangar/shared";
import type { CheckResult, CheckSession } from "@hangar/shared";
import { iso } from "./machine.ts";
import { refuseArchived } from "./open.ts";
import type { Deps } from "./ports.ts";
import type { CheckpointRecord, SessionRecord, TurnRecord } from "./record.ts";
import { exec } from "./sandbox-use.ts";
import { update } from "./update.ts";

/** Characters. */
const OUTPUT = 4000;
const SCRIPT = 200;
const CUT = "\n[…] (it printed more than is read, so its end is not here)";

/** @throws HangarError `invalid_request`: there is no check; `wrong_state`: the session is not up. */
export async function check(
  deps: Deps,
  record: SessionRecord,
  input: CheckSession,
  signal?: AbortSignal,
): Promise<CheckResult> {
  refuseArchived(record);
  const environment = await deps.environments.get(record.owner, record.environment);
  const script = input.check ?? environment?.check ?? null;
  if (script === null) {
    throw new HangarError(
      "invalid_request",
      `"${record.name}" has no check: give one, or set \`check\` in its environment (${record.environment})`,
    );
  }
  const { timeout_seconds } = input;
  // What both streams say, in the order it was said.
  const argv = ["sh", "-c", `exec 2>&1\n${script}`];
  const ran = await exec(deps, record, { argv, timeout_seconds }, signal);
  const turns = await deps.sessions.turns(record.id);
  const redact = await deps.redaction.for(record);
  // Before it is cut: half a secret would not be known for one.
  const said = redact(Buffer.from(ran.stdout, "base64").toString("utf8")).trimEnd();
  const result: CheckResult = {
    check: redact(script).slice(0, SCRIPT),
    at: iso(deps.clock()),
    exit_code: ran.exit_code,
    timed_out: ran.timed_out,
    output: `${said.length <= OUTPUT ? said : `[…] ${said.slice(-OUTPUT)}`}${ran.truncated ? CUT : ""}`,
    turn: turns.findLast(({ started_at }) => started_at !== null)?.id ?? null,
  };
  await update(deps, record.id, ({ rev }) => ({
    guard: { rev },
    change: { set: { last_check: result }, events: [{ type: "checked", result }] },
  }));
  return result;
}

/**
 * The last check as it counts for who goes on from a checkpoint with these turns. None: it was of later work. The newest
 * checkpoint is what the session is, whenever it was taken.
 */
export function checkAsOf(
  { last_check: check }: Pick<SessionRecord, "last_check">,
  of: { checkpoint: Pick<CheckpointRecord, "ts">; isNewest: boolean; turns: readonly Pick<TurnRecord, "id">[] },
): CheckResult | null {
  if (!check || !(of.isNewest || check.at <= of.checkpoint.ts)) return null;
  return check.turn === null || of.turns.some(({ id }) => id === check.turn) ? check : null;
}
