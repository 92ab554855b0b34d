/** `hangar session …` */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import {
  Checkpoint,
  CheckpointOutcome,
  HangarError,
  resumeHint,
  SecretInfo,
  Session,
  SessionListItem,
  Turn,
} from "@hangar/shared";
import { z } from "zod";
import { NOTHING } from "../client.ts";
import type { Context } from "../context.ts";
import { EXIT, ExitWith, hangarError } from "../failure.ts";
import { followTurn, getSession, waitFor, waitUntilReady, waitUntilSuspended } from "../follow.ts";
import { safe } from "../ui.ts";
import { confirm } from "./prompt.ts";
import { given, messageOf, post, sessionPath as path, type Waiting, waits } from "./session-parts.ts";
import { checkpointRows, showList, showSession, turnLine } from "./session-view.ts";

export interface NewOptions extends Waiting {
  readonly env?: string;
  readonly repo?: string;
  readonly base?: string;
  readonly branch?: string;
  readonly harness?: string;
  readonly model?: string;
  readonly title?: string;
  readonly idle?: number;
}

export async function newSession(context: Context, name: string, words: string[], options: NewOptions): Promise<void> {
  const { ui } = context;
  const message = await messageOf(context, words);
  const made = options.env === undefined ? await onTheSpot(context, options) : { environment: options.env };
  const session = await context.client().call("POST", "/api/sessions", Session, {
    name,
    ...made,
    ...given("base_branch", options.base),
    ...given("branch", options.branch),
    ...given("harness", options.harness),
    ...given("model", options.model),
    ...given("title", options.title),
    ...given("idle_minutes", options.idle),
    ...given("message", message),
  });
  const turn = session.turns.at(-1);
  if (!waits(ui, options)) {
    if (options.json) return ui.json(session);
    ui.out(
      `${session.name} is starting${turn ? " and has its first message" : ""}: ${ui.prefix} session get ${session.name}`,
    );
    return;
  }
  if (turn) return await finish(context, session, turn, options);
  const ready = await waitUntilReady(context, session);
  if (options.json) return ui.json(ready);
  ui.out(`${ready.name} is ready: ${ui.prefix} session send ${ready.name} "MESSAGE"`);
}

/** Without an environment: the repo that was given or that this folder was cloned from, and an agent that has a key. */
async function onTheSpot(context: Context, options: NewOptions): Promise<Record<string, unknown>> {
  const repo = options.repo ?? (await originOf(context.cwd));
  if (options.repo === undefined && repo !== null) context.ui.note(`repo: ${safe(repo)} (the origin of this folder)`);
  const { secrets } = await context.client().call("GET", "/api/secrets", z.object({ secrets: z.array(SecretInfo) }));
  const has = new Set(secrets.filter(({ environment }) => environment === null).map(({ name }) => name));
  const harness = options.harness ?? CHOSEN.find((name) => KEYS[name]?.some((key) => has.has(key)));
  if (options.harness === undefined && harness !== undefined)
    context.ui.note(`harness: ${harness} (its key is among the secrets)`);
  return {
    ...given("repo", repo ?? undefined),
    ...given("harness", harness),
    ...given("secrets", harness === undefined ? undefined : KEYS[harness]?.filter((key) => has.has(key))),
  };
}

/** Secrets that a harness takes when they are set. */
const KEYS: Record<string, string[]> = {
  claude: ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"],
  codex: ["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"],
  pi: [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
  ],
  antigravity: ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
};
/** Of these, the first whose key is set is taken where no harness is named. */
const CHOSEN = ["claude", "codex"];

async function originOf(folder: string): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)("git", ["-C", folder, "config", "--get", "remote.origin.url"]);
    return stdout.trim() || null;
  } catch {
    return null;
  }
}

export async function listSessions(context: Context, options: { all?: boolean; json?: boolean }): Promise<void> {
  const path = `/api/sessions${options.all ? "?all=1" : ""}`;
  const { sessions } = await context.client().call("GET", path, z.object({ sessions: z.array(SessionListItem) }));
  if (options.json) context.ui.json(sessions);
  else showList(context.ui, sessions, Date.now());
}

export async function showOne(context: Context, name: string, options: { json?: boolean }): Promise<void> {
  const session = await getSession(context, name);
  if (options.json) context.ui.json(session);
  else showSession(context.ui, session, Date.now());
}

export async function openSession(
  context: Context,
  name: string,
  options: Waiting & { harness?: string; model?: string },
): Promise<void> {
  const body = { ...given("harness", options.harness), ...given("model", options.model) };
  const session = await post(context, name, "open", Session, body);
  const now = options.wait === false ? session : await waitUntilReady(context, session);
  if (options.json) return context.ui.json(now);
  const { ui } = context;
  ui.out(now.state === "STARTING" ? `${now.name} is starting` : `${now.name} is ready in ${now.sandbox_id}`);
  const hint = resumeHint(now.harness, now.harness_session);
  if (now.state !== "STARTING")
    ui.note(ui.color.dim(`talk to the agent yourself: ${ui.prefix} session attach ${now.name}`));
  if (now.state !== "STARTING" && hint !== null) ui.note(ui.color.dim(`or in its shell (attach --shell): ${hint}`));
  if (now.restored_from && !now.restored_from.verified)
    ui.note(`what was restored could not be verified: ${now.status ?? ""}`);
  for (const missing of now.restored_from?.missing ?? []) ui.note(`missing: ${safe(missing)}`);
}

export async function send(
  context: Context,
  name: string,
  words: string[],
  options: Waiting & { timeout?: number; key?: string },
): Promise<void> {
  const message = await messageOf(context, words);
  if (message === undefined)
    throw new HangarError("invalid_request", "give a message, or - to read it from standard input");
  const body = { message, ...given("timeout_seconds", options.timeout), ...given("idempotency_key", options.key) };
  const sent = await post(context, name, "send", z.object({ session: Session, turn: Turn }), body);
  const { ui } = context;
  if (waits(ui, options)) return await finish(context, sent.session, sent.turn, options);
  if (options.json) return ui.json(sent.turn);
  const ahead = sent.session.turns.filter(
    (turn) => turn.id !== sent.turn.id && ["queued", "running"].includes(turn.state),
  ).length;
  ui.out(
    `sent to ${sent.session.name}${ahead > 0 ? `, behind ${ahead} other${ahead === 1 ? "" : "s"}` : ""}: ${ui.prefix} session get ${sent.session.name}`,
  );
}

/** Shows a turn to its end. One that did not end well makes the command fail. */
async function finish(context: Context, session: Session, sent: Turn, options: Waiting): Promise<void> {
  const { ui } = context;
  const turn = await followTurn(context, session, sent, !options.json);
  if (options.json) ui.json(turn);
  else ui.note(ui.color.dim(turnLine(turn)));
  if (turn.state === "done") return;
  if (turn.error) ui.note(`hangar: ${safe(turn.error)}`);
  throw new ExitWith(EXIT.failed);
}

export async function cancelTurn(
  context: Context,
  name: string,
  turn: string | undefined,
  options: { json?: boolean },
): Promise<void> {
  const id =
    turn ??
    (await getSession(context, name)).turns.findLast((one) => one.state === "running" || one.state === "queued")?.id;
  if (id === undefined) throw hangarError("wrong_state", `no turn of ${name} is running or waiting`);
  const cancelled = await post(context, name, `turns/${encodeURIComponent(id)}/cancel`, Turn);
  if (options.json) context.ui.json(cancelled);
  else context.ui.out(`${id} is ${cancelled.state === "cancelled" ? "cancelled" : "being cancelled"}`);
}

export async function suspend(
  context: Context,
  name: string,
  options: Waiting & { push?: boolean; force?: boolean; acceptLoss?: boolean },
): Promise<void> {
  const session = await post(context, name, "suspend", Session, {
    push: options.push ?? false,
    force: options.force ?? false,
    accept_loss: options.acceptLoss ?? false,
  });
  const now = options.wait === false ? session : await waitUntilSuspended(context, session);
  if (options.json) return context.ui.json(now);
  if (now.state !== "SUSPENDED") return context.ui.out(`${now.name} is being suspended`);
  const last = now.checkpoints.at(-1);
  context.ui.out(`${now.name} is suspended${last ? `: ${last.id} holds it, and no sandbox runs` : ""}`);
  if (now.status) context.ui.note(safe(now.status));
}

export async function keep(
  context: Context,
  name: string,
  options: { idle?: number; ttl?: number; title?: string; json?: boolean },
): Promise<void> {
  const body = {
    ...given("idle_minutes", options.idle),
    ...given("ttl_minutes", options.ttl),
    ...given("title", options.title),
  };
  if (Object.keys(body).length === 0)
    throw new HangarError("invalid_request", "say what to keep: --idle, --ttl or --title");
  const session = await context.client().call("PATCH", path(name), Session, body);
  if (options.json) return context.ui.json(session);
  const idle =
    session.idle_minutes === 0
      ? "stays up until you suspend it"
      : `suspends after ${session.idle_minutes} min without activity`;
  context.ui.out(`${session.name} ${idle}`);
}

export async function archive(context: Context, name: string, options: Waiting & { yes?: boolean }): Promise<void> {
  await confirm(
    context,
    `Archive ${name}? Its checkpoints go; the record and the transcript's summary stay.`,
    options.yes,
  );
  const session = await post(context, name, "archive", Session);
  context.ui.progress(`${session.name}: archiving`);
  let begun = session.state === "SUSPENDING";
  const now =
    options.wait === false
      ? session
      : await waitFor(context, session, "to be archived", (one) => {
          begun ||= one.state === "SUSPENDING";
          return one.state === "ARCHIVED" || (begun && one.state === "IDLE");
        });
  context.ui.done();
  if (options.wait !== false && now.state !== "ARCHIVED")
    throw hangarError(
      "checkpoint_failed",
      `${now.name} was not archived: ${now.status ?? "no checkpoint could be committed"}`,
    );
  if (options.json) context.ui.json(now);
  else context.ui.out(`${now.name} is ${now.state === "ARCHIVED" ? "archived" : "being archived"}`);
}

export async function remove(
  context: Context,
  name: string,
  options: { force?: boolean; yes?: boolean },
): Promise<void> {
  await confirm(
    context,
    `Remove ${name} with all its checkpoints? This cannot be undone.`,
    options.yes ?? options.force,
  );
  await context.client().call("DELETE", `${path(name)}${options.force ? "?force=1" : ""}`, NOTHING);
  context.ui.out(`${name} is removed`);
}

export async function checkpointNow(context: Context, name: string, options: { json?: boolean }): Promise<void> {
  context.ui.progress(`${name}: taking a checkpoint`);
  const answer = z.object({ outcome: CheckpointOutcome, checkpoint: Checkpoint.nullable() });
  const { outcome, checkpoint } = await post(context, name, "checkpoint", answer).finally(() => context.ui.done());
  if (outcome.outcome === "failed") throw hangarError(outcome.code, outcome.error);
  if (options.json) return context.ui.json({ outcome, checkpoint });
  const { ui } = context;
  if (outcome.outcome === "unchanged") return ui.out(`nothing changed since ${outcome.checkpoint}`);
  ui.out(`committed ${outcome.checkpoint}`);
  if (checkpoint) for (const line of checkpointRows(ui, [checkpoint], Date.now())) ui.note(line);
}

export async function listCheckpoints(context: Context, name: string, options: { json?: boolean }): Promise<void> {
  const answer = z.object({ checkpoints: z.array(Checkpoint) });
  const { checkpoints } = await context.client().call("GET", `${path(name)}/checkpoints`, answer);
  if (options.json) return context.ui.json(checkpoints);
  if (checkpoints.length === 0) context.ui.note(`${name} has no checkpoint yet`);
  for (const line of checkpointRows(context.ui, checkpoints, Date.now())) context.ui.out(line);
}

export async function restore(context: Context, name: string, checkpoint: string, options: Waiting): Promise<void> {
  const session = await post(context, name, "restore", Session, { checkpoint });
  const settled = (now: Session) =>
    now.state === "FAILED" ||
    (now.generation > session.generation || session.state === "STARTING"
      ? ["IDLE", "ACTIVE"].includes(now.state)
      : false);
  context.ui.progress(`${session.name}: going back to ${checkpoint}`);
  const now = options.wait === false ? session : await waitFor(context, session, "to be restored", settled);
  context.ui.done();
  if (now.state === "FAILED")
    throw hangarError("checkpoint_invalid", `${now.name}: ${now.status ?? "the restore failed"}`);
  if (options.json) context.ui.json(now);
  else
    context.ui.out(
      options.wait === false
        ? `${now.name} goes back to ${checkpoint}`
        : `${now.name} is at ${now.restored_from?.checkpoint ?? checkpoint}`,
    );
}
