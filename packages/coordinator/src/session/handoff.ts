/**
 * A compact account of the session, for a harness that cannot resume the conversation (spec §5.5). Lossy, and labelled so.
 * Bounded: the task and the newest turns come first, older ones give way.
 */
import type { CheckResult } from "@hangar/shared";
import type { SessionRecord, TurnRecord } from "./record.ts";

const TOTAL = 16_000;
const TASK = 4000;
const MESSAGE = 800;
const SUMMARY = 1200;
const CHECK = 2000;

/** `resumes`: the harness goes on with a conversation of its own, which does not hold all of the turns. */
export function handoffAccount(
  record: Pick<SessionRecord, "branch" | "last_check">,
  turns: readonly TurnRecord[],
  resumes: boolean,
): string {
  const [first, ...rest] = turns;
  const head = [
    resumes
      ? "[Hangar: handoff] Work went on outside this conversation. This account of all of it leaves things out, so look at the repository before you rely on it."
      : "[Hangar: handoff] You continue another agent's work. Its conversation could not be resumed; this account of it leaves things out, so look at the repository before you rely on it.",
    `Branch: ${record.branch}`,
    ...(first ? [`The original task:\n${cut(first.message, TASK)}`, ...outcome(first)] : []),
  ].join("\n");
  const kept: string[] = [];
  const checked = checkText(record.last_check ?? null, turns);
  let room = TOTAL - head.length - checked.join("").length - 200;
  for (const turn of rest.toReversed()) {
    const text = [`Then it was asked:\n${cut(turn.message, MESSAGE)}`, ...outcome(turn)].join("\n");
    if (text.length > room) break;
    room -= text.length;
    kept.unshift(text);
  }
  const dropped = rest.length - kept.length;
  const gap = dropped > 0 ? [`(${dropped} turns in between are left out.)`] : [];
  return [head, ...gap, ...kept, ...checked, "End of the account. What follows is for you."].join("\n\n");
}

/** Bounded by its end, which says what went wrong. */
function checkText(check: CheckResult | null, turns: readonly TurnRecord[]): string[] {
  if (check === null) return [];
  const at = turns.findIndex(({ id }) => id === check.turn);
  const since =
    at === -1 || at === turns.length - 1 ? "" : ` Since then there were ${turns.length - 1 - at} more turns.`;
  const how = check.timed_out
    ? "did not end in time"
    : check.exit_code === 0
      ? "passed"
      : `failed (exit code ${check.exit_code})`;
  const said = check.output === "" ? "" : ` It printed:\n${cutStart(check.output, CHECK)}`;
  return [`The last check of the work, at ${check.at}, ${how}: ${JSON.stringify(check.check)}.${since}${said}`];
}

const outcome = (turn: TurnRecord): string[] => {
  if (turn.summary !== null) return [`It ended (${turn.state}) with:\n${cut(turn.summary, SUMMARY)}`];
  return [`It ended: ${turn.state}${turn.error === null ? "" : ` (${cut(turn.error, 300)})`}.`];
};

const cutStart = (text: string, most: number): string => (text.length <= most ? text : `[…] ${text.slice(-most)}`);
const cut = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most)} […]`);
