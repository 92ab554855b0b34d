/** How sessions, turns and checkpoints look to a person. */
import type { Checkpoint, CheckResult, Session, SessionListItem, Turn, Usage } from "@hangar/shared";
import { ago, bytes, firstLine, safe, table, type Ui } from "../ui.ts";

export function showList(ui: Ui, sessions: readonly SessionListItem[], now: number): void {
  if (sessions.length === 0) {
    ui.note(`No sessions yet. Make one: ${ui.prefix} session new NAME --repo URL "what to do"`);
    return;
  }
  const rows = sessions.map((one) => [
    one.name,
    stateText(ui, one.state),
    one.harness,
    shortRepo(one.repo),
    ago(one.last_active_at, now),
    safe(firstLine(one.status ?? one.last_summary ?? one.title)),
  ]);
  const head = ["NAME", "STATE", "HARNESS", "REPO", "ACTIVE", "LAST"].map((title) => ui.color.dim(title));
  for (const line of table([head, ...rows], ui.columns)) ui.out(line);
}

export function showSession(ui: Ui, session: Session, now: number): void {
  const { color } = ui;
  const row = (name: string, value: string | null) => {
    if (value !== null && value !== "") ui.out(`${color.dim(name.padEnd(12))} ${value}`);
  };
  ui.out(
    `${color.bold(session.name)}  ${stateText(ui, session.state)}${session.title === session.name ? "" : `  ${safe(session.title)}`}`,
  );
  row("status", session.status && safe(session.status));
  row("id", session.id);
  row(
    "repo",
    session.repo
      ? `${session.repo}  ${color.dim("branch")} ${session.branch}`
      : `none  ${color.dim("branch")} ${session.branch}`,
  );
  row(
    "harness",
    `${session.harness}${session.model ? ` (${session.model})` : ""}  ${color.dim("environment")} ${session.environment}`,
  );
  row("conversation", session.harness_session);
  row("sandbox", session.sandbox_id);
  const { forked_from: fork } = session;
  row("fork of", fork && `${fork.name}  ${color.dim("checkpoint")} ${fork.checkpoint}`);
  row("restored", restoredText(session));
  row("kept awake", session.kept_awake_by.length > 0 ? `by ${session.kept_awake_by.join(", ")}` : null);
  row("held", heldText(session));
  row(
    "idle",
    session.idle_minutes === 0
      ? "stays up until it is suspended"
      : `suspends after ${session.idle_minutes} min without activity`,
  );
  row("active", ago(session.last_active_at, now));
  const queued = session.turns.filter((turn) => turn.state === "queued");
  row(
    "queue",
    queued.length > 0 ? `${queued.length} waiting: ${queued.map((turn) => quote(turn.message)).join(", ")}` : null,
  );
  row("check", session.last_check && `${checkLine(session.last_check)}, ${ago(session.last_check.at, now)}`);
  row("usage", usageText(session.usage));
  if (session.turns.length > 0) ui.out(color.dim("turns"));
  for (const turn of session.turns.slice(-5)) showTurn(ui, turn);
  if (session.checkpoints.length > 0) ui.out(color.dim("checkpoints"));
  for (const line of checkpointRows(ui, session.checkpoints, now)) ui.out(`  ${line}`);
  if (session.leftover_sandbox) {
    ui.note(
      `The folder of ${session.leftover_sandbox}, which ended uncleanly, is still there: opening the session looks into it first.`,
    );
  }
  ui.note(color.dim(`next: ${nextCommand(ui, session)}`));
}

export function checkpointRows(ui: Ui, checkpoints: readonly Checkpoint[], now: number): string[] {
  return table(
    checkpoints
      .toReversed()
      .map((one) => [
        one.id,
        one.reason,
        ago(one.ts, now),
        `${bytes(one.bytes)} (${bytes(one.new_bytes)} new)`,
        one.head?.slice(0, 10) ?? "no commit",
        [...flags(one)].join(", "),
      ]),
    ui.columns - 2,
  );
}

function* flags(one: Checkpoint): Iterable<string> {
  if (one.bad !== null) yield `bad: ${safe(firstLine(one.bad))}`;
  if (!one.paired) yield "changed while it was taken";
  if (!one.proved) yield "not proved";
  if (one.left_out.length > 0)
    yield `left out: ${one.left_out.map(({ path, size }) => `${safe(path)} (${bytes(size)})`).join(", ")}`;
}

function showTurn(ui: Ui, turn: Turn): void {
  const mark = { done: ui.color.green("✓"), queued: "·", running: ui.color.cyan("▸"), failed: ui.color.red("✗") };
  const sign = mark[turn.state as keyof typeof mark] ?? ui.color.yellow("!");
  ui.out(`  ${sign} ${quote(turn.message)}${turn.state === "done" ? "" : ` (${turn.state})`}`);
  const result = turn.error ?? turn.summary;
  if (result) ui.out(`    ${safe(firstLine(result)).slice(0, 300)}`);
  const rest = [...marksOf(turn), usageText(turn.usage)].filter((text) => text !== null);
  if (rest.length > 0) ui.out(`    ${ui.color.dim(rest.join("; "))}`);
}

/** What is not as it would be in one conversation. */
const marksOf = (turn: Turn): string[] => [
  ...(turn.handoff ? ["began with a handoff account, which is lossy"] : []),
  ...(turn.conversation_lost ? ["the agent's conversation was lost"] : []),
];

export const checkLine = ({ check, exit_code, timed_out }: CheckResult): string =>
  `${timed_out ? "did not end in time" : exit_code === 0 ? "passed" : `failed, exit code ${exit_code}`}: ${safe(firstLine(check)).slice(0, 80)}`;

/** One line about a turn that ended. */
export function turnLine(turn: Turn): string {
  const seconds =
    turn.started_at && turn.finished_at
      ? ` in ${((Date.parse(turn.finished_at) - Date.parse(turn.started_at)) / 1000).toFixed(1)} s`
      : "";
  const rest = [
    turn.checkpoint_id === null ? "nothing to checkpoint" : `checkpoint ${turn.checkpoint_id}`,
    usageText(turn.usage),
    ...marksOf(turn),
  ].filter(Boolean);
  return `turn ${turn.state}${seconds}: ${rest.join(", ")}`;
}

function usageText(usage: Usage | null): string | null {
  if (!usage) return null;
  const input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
  const cost = usage.cost_usd === null ? "" : `, $${usage.cost_usd.toFixed(usage.cost_usd < 1 ? 4 : 2)}`;
  return `${input.toLocaleString("en-US")} tokens in, ${usage.output_tokens.toLocaleString("en-US")} out${cost}`;
}

function restoredText({ restored_from }: Session): string | null {
  if (!restored_from) return null;
  const missing = restored_from.missing.length > 0 ? `; missing: ${restored_from.missing.map(safe).join(", ")}` : "";
  return `from ${restored_from.checkpoint}, ${restored_from.verified ? "verified" : "not verified"}${missing}`;
}

function heldText({ held, name }: Session): string | null {
  if (held === null) return null;
  const files = held.files.slice(0, 5).map(({ path, size }) => `${safe(path)} (${bytes(size)})`);
  const more = held.files.length > 5 ? ` and ${held.files.length - 5} more` : "";
  const until = held.until === null ? "" : ` until ${held.until}`;
  return `${files.join(", ")}${more}: in no checkpoint; stays up for it${until}, or: session suspend ${name} --accept-loss`;
}

function nextCommand(ui: Ui, session: Session): string {
  const name = `${ui.prefix} session`;
  switch (session.state) {
    case "ARCHIVED":
      return `${name} rm ${session.name}`;
    case "FAILED":
      return `${name} open ${session.name}  (tries again)`;
    case "SUSPENDED":
      return `${name} send ${session.name} "MESSAGE"  (opens it first)`;
    default:
      return `${name} send ${session.name} "MESSAGE"  ·  ${ui.prefix} sb attach ${session.name}`;
  }
}

function stateText(ui: Ui, state: string): string {
  const { color } = ui;
  const paint = {
    ACTIVE: color.green,
    IDLE: color.green,
    FAILED: color.red,
    STARTING: color.cyan,
    SUSPENDING: color.cyan,
  };
  return (paint[state as keyof typeof paint] ?? color.dim)(state.toLowerCase());
}

const shortRepo = (repo: string | null): string =>
  (repo ?? "-")
    .replace(/^\w+:\/\/(?:[^@/]*@)?/, "")
    .replace(/\.git$/, "")
    .slice(-40);
const quote = (text: string): string => `"${safe(firstLine(text)).slice(0, 80)}"`;
