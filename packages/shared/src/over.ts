/** When what was asked of a session is over: one rule for all who wait for it. */
import type { Session, Turn } from "./session.ts";

/** The agent is done with it, one way or another. None: it is not known yet. */
export const turnEnded = (turn: Turn | undefined): boolean =>
  turn !== undefined && turn.state !== "queued" && turn.state !== "running";

/** Its checkpoint follows the agent's end: it has settled when the session is idle, or the next turn runs. */
export const turnSettled = (session: Session, id: string): boolean =>
  turnEnded(session.turns.find((turn) => turn.id === id)) &&
  (session.state !== "ACTIVE" || session.turns.some(({ state }) => state === "running"));

/** Feed it each state from the answer to the suspend on: true once it is suspended, or has been given up. */
export function suspendWatch(): (session: Session) => boolean {
  let begun = false;
  return ({ state }) => {
    begun ||= state === "SUSPENDING";
    return state === "SUSPENDED" || state === "ARCHIVED" || state === "FAILED" || (begun && state === "IDLE");
  };
}
