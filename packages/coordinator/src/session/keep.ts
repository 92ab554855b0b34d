/** Changes how long a session stays up, or its title. */
import type { KeepSession } from "@hangar/shared";
import { expiry, isLive, iso } from "./machine.ts";
import { refuseArchived } from "./open.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { update } from "./update.ts";

export async function keep(deps: Deps, id: string, input: KeepSession): Promise<SessionRecord> {
  return update(deps, id, (record) => {
    refuseArchived(record);
    const now = deps.clock();
    const idle = input.idle_minutes ?? record.idle_minutes;
    const ttl = input.ttl_minutes ?? record.ttl_minutes;
    return {
      guard: { rev: record.rev },
      change: {
        set: {
          idle_minutes: idle,
          ttl_minutes: ttl,
          title: input.title ?? record.title,
          last_active_at: iso(now),
          ...(input.ttl_minutes !== undefined && isLive(record.state) && { expires_at: expiry(ttl, now) }),
        },
        ...(input.idle_minutes !== undefined && { events: [{ type: "kept", idle_minutes: idle }] }),
        ...(isLive(record.state) && { dueBy: now }),
      },
    };
  });
}
