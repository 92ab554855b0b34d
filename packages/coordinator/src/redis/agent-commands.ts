/** Commands for a sandbox: a stream that holds what has no result yet, and the results by command id. */
import type { AgentCommands, CommandResult, PendingCommand } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { sandboxKeys } from "./keys.ts";
import { REREAD_MS, untilBack } from "./reread.ts";
import type { Wake } from "./wake.ts";

/** How long a result is kept for who waits for it, seconds: small ones for a replica that takes over, big ones briefly. */
const KEEP_SMALL = 86_400;
const KEEP_BIG = 900;
const BIG = 65_536;

export function makeAgentCommands(client: RedisClient, wake: Wake): AgentCommands {
  const result = async (sandbox: string, id: string): Promise<CommandResult | null> => {
    const text = await client.call((redis) => redis.get(sandboxKeys(sandbox).result(id)));
    return text === null ? null : (JSON.parse(text) as CommandResult);
  };
  const settle = async (sandbox: string, id: string, text: string): Promise<void> => {
    const keys = sandboxKeys(sandbox);
    const seconds = text.length > BIG ? KEEP_BIG : KEEP_SMALL;
    await client.script("settleCommand", [keys.commands, keys.ids, keys.result(id)], [id, text, seconds, sandbox]);
  };

  return {
    push: async (sandbox, id, command) => {
      const keys = sandboxKeys(sandbox);
      await client.script("pushCommand", [keys.commands, keys.ids], [id, JSON.stringify(command), sandbox]);
    },
    async *follow(sandbox, signal) {
      const watch = await wake.watch(`commands:${sandbox}`);
      try {
        let at = "-";
        while (!signal.aborted) {
          const from = at;
          const entries = await untilBack(
            () => client.call((redis) => redis.xrange(sandboxKeys(sandbox).commands, from, "+", "COUNT", 50)),
            signal,
          );
          for (const [entry, fields] of entries ?? []) {
            if (signal.aborted) return;
            yield toCommand(fields);
            at = `(${entry}`;
          }
          if (!entries?.length) await watch.changed(REREAD_MS, signal);
        }
      } finally {
        watch.close();
      }
    },
    settle: (sandbox, id, value) => settle(sandbox, id, JSON.stringify(value)),
    result,
    async wait(sandbox, id, signal) {
      const watch = await wake.watch(`results:${sandbox}`);
      try {
        while (!signal.aborted) {
          const value = await untilBack(() => result(sandbox, id), signal);
          if (value) return value;
          await watch.changed(REREAD_MS, signal);
        }
        throw signal.reason;
      } finally {
        watch.close();
      }
    },
    withdraw: (sandbox, id) => settle(sandbox, id, ""),
    drop: async (sandbox) => {
      const keys = sandboxKeys(sandbox);
      await client.call((redis) => redis.del(keys.commands, keys.ids));
    },
  };
}

function toCommand(fields: string[]): PendingCommand {
  const value = (name: string): string => fields[fields.indexOf(name) + 1] ?? "";
  return { id: value("id"), command: JSON.parse(value("command")) as PendingCommand["command"] };
}
