/** Read, decide, write: again when something else changed the session in between. */
import { HangarError } from "@hangar/shared";
import type { Move } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

const ATTEMPTS = 50;

/** `decide` is called with the record as it is; none from it: leave it as it is. Answers the record afterwards. */
export async function update(
  deps: Pick<Deps, "sessions">,
  id: string,
  decide: (record: SessionRecord) => Move | null | Promise<Move | null>,
): Promise<SessionRecord> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const record = await deps.sessions.get(id);
    if (!record) throw new HangarError("session_not_found", "The session is gone");
    const decided = await decide(record);
    if (!decided) return record;
    const result = await deps.sessions.change(id, { rev: record.rev, ...decided.guard }, decided.change);
    if (result.ok) return result.record;
    if (result.why === "idempotent" || result.why === "duplicate") return record;
  }
  throw new HangarError("internal", `The session ${id} is changed by too many at once; try again`);
}
