/** What a start waits for outside of its daemon: shown in `get`, and said once in the events. */
import { startText } from "@hangar/shared";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { oneLine } from "./turn.ts";

/** Does nothing when that start is over, its daemon was heard, or that was said last. */
export async function startWaits(deps: Deps, { id, generation, nonce }: SessionRecord, line: string): Promise<void> {
  const record = await deps.sessions.get(id);
  const detail = oneLine(line);
  if (record === null || record.seen_at > 0 || record.status === detail) return;
  await deps.sessions.change(
    id,
    { from: ["STARTING"], generation, nonce, rev: record.rev },
    {
      set: { status: detail },
      events: [{ type: "phase", phase: "starting", detail, text: startText("starting", detail) }],
    },
  );
}
