/** What becomes of the folder of a sandbox that ended without a last checkpoint. */
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

export interface Disposition {
  /** To be destroyed: nothing in it is anybody's work. */
  readonly sandbox_id: string | null;
  /** To be taken over by the next start: it holds newer work than any checkpoint. */
  readonly leftover_sandbox: string | null;
}

/**
 * A folder is worth taking over only where its sandbox was ready once, or where it is itself one that was taken over and not
 * touched since. What a start that never came to its end has cloned and half restored is not the session's work. What is
 * neither stays where it is until the session is removed.
 */
export async function disposition(deps: Deps, record: SessionRecord): Promise<Disposition> {
  const { state, sandbox_id: own, adopting, leftover_sandbox: earlier, phase } = record;
  if (!deps.driver.keepsFolders) return { sandbox_id: own, leftover_sandbox: null };
  const canAdopt = async (id: string | null): Promise<string | null> =>
    id !== null && (await deps.driver.canAdopt(id)) ? id : null;

  if (state !== "STARTING")
    return { sandbox_id: null, leftover_sandbox: (await canAdopt(own)) ?? (await canAdopt(earlier)) };
  if (adopting === null) return { sandbox_id: own, leftover_sandbox: await canAdopt(earlier) };
  const isMoved = (await deps.driver.status(adopting)) === null;
  if (!isMoved) return { sandbox_id: own, leftover_sandbox: adopting };
  return { sandbox_id: null, leftover_sandbox: phase === "starting" ? own : null };
}
