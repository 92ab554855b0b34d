import { SessionState } from "@hangar/shared";
import { expect, it } from "vitest";
import { allowedFrom, awakeBy, isLive, move, TRANSITIONS } from "../../src/session/machine.ts";
import type { SessionRecord } from "../../src/session/record.ts";

const record = (state: SessionState): SessionRecord =>
  ({ id: "ses-00000000", name: "fix", state, rev: 7 }) as SessionRecord;

it("moves exactly as the table says", () => {
  const moves: string[] = [];
  for (const from of SessionState.options) {
    for (const to of SessionState.options) {
      try {
        const { guard, change } = move(record(from), to, 1, null);
        expect(guard).toEqual({ from: allowedFrom(to), rev: 7 });
        expect(change.events).toEqual([{ type: "state", state: to, status: null }]);
        moves.push(`${from} ${to}`);
      } catch (error) {
        expect(error).toMatchObject({ code: "wrong_state" });
      }
    }
  }
  expect(moves.sort()).toEqual(
    [
      "STARTING IDLE",
      "STARTING SUSPENDED",
      "STARTING FAILED",
      "IDLE ACTIVE",
      "IDLE SUSPENDING",
      "IDLE SUSPENDED",
      "IDLE FAILED",
      "ACTIVE IDLE",
      "ACTIVE SUSPENDING",
      "ACTIVE SUSPENDED",
      "ACTIVE FAILED",
      "SUSPENDING IDLE",
      "SUSPENDING SUSPENDED",
      "SUSPENDING FAILED",
      "SUSPENDED STARTING",
      "SUSPENDED ARCHIVED",
      "FAILED STARTING",
      "FAILED ARCHIVED",
    ].sort(),
  );
});

it("leads out of every state but ARCHIVED, and to ARCHIVED only without a sandbox", () => {
  for (const state of SessionState.options) expect(TRANSITIONS[state].length > 0).toBe(state !== "ARCHIVED");
  expect(allowedFrom("ARCHIVED").some(isLive)).toBe(false);
});

it("does not let a sandbox's clock keep it awake for ever", () => {
  const now = Date.parse("2026-12-01T10:00:00Z");
  const activity = { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: "2099-01-01T00:00:00Z" };
  const live = { ...record("IDLE"), activity, used_at: 0 };
  expect(awakeBy(live, now)).toEqual(["used 0 s ago"]);
  const old = { ...live, activity: { ...activity, last_used_at: "2026-12-01T09:58:00Z" } };
  expect(awakeBy(old, now)).toEqual([]);
});
