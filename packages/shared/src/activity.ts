/** The four signals that keep a session awake (spec §5.4), and nothing else does. */
import { z } from "zod";

export const Activity = z.strictObject({
  /** An agent turn is running. */
  turn_running: z.boolean(),
  /** Terminals open on the sandbox through Hangar, dashboard or CLI. */
  terminals_open: z.number().int().nonnegative(),
  /** tmux clients attached in the sandbox that are not Hangar's own terminals. */
  tmux_clients: z.number().int().nonnegative(),
  /** When a keystroke, exec, file access or MCP call last used the sandbox; none: never. */
  last_used_at: z.iso.datetime().nullable(),
});
export type Activity = z.infer<typeof Activity>;

/** How long one use of the sandbox keeps it awake, milliseconds (spec §5.4: 90 seconds). */
export const USE_KEEPS_AWAKE_MS = 90_000;

/**
 * What keeps a session awake at `now` (ms since 1970), for people: `[]` when nothing does. `windowMs`: how long one use
 * counts; USE_KEEPS_AWAKE_MS outside tests.
 */
export function keptAwakeBy(activity: Activity, now: number, windowMs: number = USE_KEEPS_AWAKE_MS): string[] {
  const by: string[] = [];
  if (activity.turn_running) by.push("a turn is running");
  if (activity.terminals_open > 0) by.push(plural(activity.terminals_open, "open terminal"));
  if (activity.tmux_clients > 0) by.push(plural(activity.tmux_clients, "attached tmux client"));
  const used = activity.last_used_at === null ? Number.NaN : Date.parse(activity.last_used_at);
  if (now - used < windowMs) by.push(`used ${Math.max(0, Math.round((now - used) / 1000))} s ago`);
  return by;
}

const plural = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`;
