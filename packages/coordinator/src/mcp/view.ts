/** What a tool answers with: text for the model that reads it, the same as data for programs. Bounded. */
import { turnEnded } from "@hangar/shared";
import type { Checkpoint, Session, SessionListItem, Turn } from "@hangar/shared";

export interface Answer {
  readonly text: string;
  readonly data: Record<string, unknown>;
}

const TURNS = 10;
const MESSAGE = 300;

export function sessionAnswer(session: Session): Answer {
  const { name, state, status, phase, harness, branch, repo, forked_from, turns, usage, last_check } = session;
  const { kept_awake_by } = session;
  const shown = turns.slice(-TURNS).map(turnData);
  const newest = session.checkpoints.at(-1);
  return {
    text: [
      `${name} is ${state}${status ? `: ${status}` : ""}`,
      `${harness} on ${repo ?? "no repository"}, branch ${branch}${forked_from ? `, a fork of ${forked_from.name}` : ""}`,
      ...(kept_awake_by.length > 0 ? [`kept awake by ${kept_awake_by.join(", ")}`] : []),
      newest ? `${session.checkpoints.length} checkpoints, the newest ${newest.id}` : "no checkpoint yet",
      ...turns.slice(-TURNS).map((turn) => `- ${turnLine(turn)}`),
    ].join("\n"),
    data: {
      id: session.id,
      name,
      state,
      status,
      phase,
      harness,
      branch,
      repo,
      forked_from,
      turns: shown,
      turn_count: turns.length,
      checkpoint: newest?.id ?? null,
      usage,
      last_check,
    },
  };
}

export const listAnswer = (items: readonly SessionListItem[]): Answer => ({
  text:
    items.length === 0
      ? "There are no sessions."
      : items
          .map(({ name, state, harness, repo, status }) =>
            [`${name}: ${state}, ${harness}, ${repo ?? "no repository"}`, ...(status ? [status] : [])].join("; "),
          )
          .join("\n"),
  data: { sessions: items },
});

/** A turn that has ended, or a handle to ask for it again. */
export function turnAnswer(session: Session, turn: Turn): Answer {
  const isOver = turnEnded(turn);
  const again = { session: session.name, turn: turn.id, wait_seconds: 45 };
  const body = [turn.summary, turn.error].filter((text) => text !== null).join("\n\n");
  return {
    text: isOver
      ? `${session.name}: ${turnLine(turn)}${body === "" ? "" : `\n\n${body}`}`
      : `${session.name}: turn ${turn.id} is ${turn.state}. Ask again with get_session ${JSON.stringify(again)}`,
    data: {
      session: session.name,
      state: session.state,
      turn: { ...turnData(turn), summary: turn.summary },
      // Clients may show a model the data alone.
      ...(isOver ? {} : { ask_again: { tool: "get_session", arguments: again } }),
    },
  };
}

export const checkpointsAnswer = (session: string, checkpoints: readonly Checkpoint[]): Answer => ({
  text:
    checkpoints.length === 0
      ? `${session} has no checkpoint yet.`
      : checkpoints
          .toReversed()
          .map(
            ({ id, ts, reason, bytes, bad }) =>
              `${id}  ${ts}  ${reason}  ${bytes} bytes${bad ? `  damaged: ${bad}` : ""}`,
          )
          .join("\n"),
  data: {
    session,
    checkpoints: checkpoints.map(({ id, ts, reason, bytes, branch, head, turn_id, bad }) => ({
      id,
      ts,
      reason,
      bytes,
      branch,
      head,
      turn_id,
      bad,
    })),
  },
});

const turnData = (turn: Turn): Record<string, unknown> => ({
  id: turn.id,
  state: turn.state,
  message: cut(turn.message),
  summary: turn.summary === null ? null : cut(turn.summary),
  error: turn.error,
  handoff: turn.handoff,
  conversation_lost: turn.conversation_lost,
  checkpoint_id: turn.checkpoint_id,
  usage: turn.usage,
});

function turnLine(turn: Turn): string {
  const marks = [
    ...(turn.handoff ? ["by handoff, which is lossy"] : []),
    ...(turn.conversation_lost ? ["its conversation was lost"] : []),
  ];
  return `turn ${turn.id} is ${turn.state}${marks.length > 0 ? ` (${marks.join("; ")})` : ""}: ${cut(turn.message)}`;
}

const cut = (text: string): string => (text.length <= MESSAGE ? text : `${text.slice(0, MESSAGE)} […]`);
