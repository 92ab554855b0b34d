/** Gives a sandbox a command and waits for its result. */
import { HangarError, isErrorCode } from "@hangar/shared";
import type { AgentCommand } from "@hangar/shared";
import { isUp } from "./machine.ts";
import type { Deps } from "./ports.ts";
import type { SessionRecord } from "./record.ts";

/**
 * The result's value, unparsed. Throws what the daemon said, `timeout`, or `sandbox_not_found` when the session is not up.
 * A command that nobody waits for any more is taken back.
 */
export async function ask(
  deps: Deps,
  record: SessionRecord,
  id: string,
  seconds: number,
  command: AgentCommand,
  signal?: AbortSignal,
): Promise<unknown> {
  const { sandbox_id: sandbox } = record;
  if (sandbox === null || !isUp(record.state)) {
    throw new HangarError(
      sandbox === null ? "sandbox_not_found" : "wrong_state",
      `The session "${record.name}" is ${record.state}: open it first with \`hangar session open ${record.name}\``,
    );
  }
  const limit = AbortSignal.timeout(seconds * 1000);
  await deps.commands.push(sandbox, id, command);
  try {
    const result = await deps.commands.wait(sandbox, id, signal ? AbortSignal.any([signal, limit]) : limit);
    if (result.ok) return result.value;
    throw new HangarError(isErrorCode(result.code) ? result.code : "internal", result.error);
  } catch (error) {
    if (!limit.aborted && !signal?.aborted) throw error;
    await deps.commands.withdraw(sandbox, id);
    if (!limit.aborted) throw error;
    throw new HangarError("timeout", `The sandbox gave no answer in ${seconds} s`, { cause: error });
  }
}
