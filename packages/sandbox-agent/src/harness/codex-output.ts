/** Reads Codex's `exec --json`. What it does not know, it skips: newer versions add types. */
import type { TurnOutput, Usage } from "@hangar/shared";
import { z } from "zod";
import { apiErrorLine, exitLine } from "./api-errors.ts";
import type { OutputParser, Verdict } from "./harness.ts";
import { jsonIn } from "./json.ts";

const TITLE = "Codex";
const count = z.number().int().nonnegative().catch(0);

/** Tokens of a whole conversation; `input_tokens` includes what came from and went to the cache. */
const CodexUsage = z.looseObject({
  input_tokens: count,
  cached_input_tokens: count,
  cache_write_input_tokens: count,
  output_tokens: count,
});
export type CodexUsage = z.infer<typeof CodexUsage>;

const Item = z.looseObject({
  id: z.string(),
  type: z.string(),
  text: z.string().optional(),
  message: z.string().optional(),
  command: z.string().optional(),
  aggregated_output: z.string().optional(),
  exit_code: z.number().nullish(),
  status: z.string().optional(),
});
type Item = z.infer<typeof Item>;

const Line = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("thread.started"), thread_id: z.string() }),
  z.looseObject({ type: z.literal("item.started"), item: Item }),
  z.looseObject({ type: z.literal("item.completed"), item: Item }),
  z.looseObject({ type: z.literal("turn.completed"), usage: CodexUsage.nullish() }),
  z.looseObject({ type: z.literal("turn.failed"), error: z.looseObject({ message: z.string() }) }),
  // No failure by itself: `turn.failed` says whether the turn went wrong.
  z.looseObject({ type: z.literal("error"), message: z.string() }),
]);

/** `before`: what the conversation had used. `credentials`: the secrets to name when the API refuses one. */
export function codexParser(before: CodexUsage | null, credentials: readonly string[]): OutputParser {
  const begun = new Set<string>();
  let session: string | null = null;
  let said: string | null = null;
  let total: CodexUsage | null = null;
  let completed = false;
  let failure: string | null = null;

  const itemOutput = (item: Item, isOver: boolean): TurnOutput[] => {
    if (item.type === "reasoning" || item.type === "todo_list") return [];
    if (item.type === "agent_message") {
      if (!isOver || (item.text ?? "") === "") return [];
      said = item.text ?? "";
      return [{ kind: "text", text: said }];
    }
    if (item.type === "error") return isOver ? [{ kind: "stderr", text: `${item.message ?? "an error"}\n` }] : [];
    const name = item.type === "command_execution" ? "shell" : item.type;
    const call: TurnOutput = { kind: "tool_call", name, input: item.command ?? restOf(item) };
    const isNew = !begun.has(item.id);
    begun.add(item.id);
    if (!isOver) return isNew ? [call] : [];
    const result: TurnOutput = {
      kind: "tool_result",
      name,
      output: item.aggregated_output ?? restOf(item),
      is_error: item.status === "failed" || (item.exit_code ?? 0) !== 0,
    };
    return isNew ? [call, result] : [result];
  };

  return {
    opening: [],
    plain: false,
    session: () => session,
    line(text) {
      const parsed = Line.safeParse(jsonIn(text));
      if (!parsed.success) return [];
      const line = parsed.data;
      switch (line.type) {
        case "thread.started":
          session = line.thread_id;
          return [];
        case "turn.completed":
          completed = true;
          total = line.usage ?? null;
          return [];
        case "turn.failed":
          failure = line.error.message;
          return [];
        case "error":
          return errorOutput(line.message);
        case "item.started":
        case "item.completed":
          return itemOutput(line.item, line.type === "item.completed");
        default:
          return [];
      }
    },
    end(exit, stderr): Promise<Verdict> {
      const unknown = /no rollout found for thread id/i.test(stderr);
      return Promise.resolve({
        session,
        unknownConversation: unknown,
        error: errorLine(failure, completed, exit, stderr, credentials),
        summary: said,
        usage: total === null ? null : difference(total, before),
      });
    },
  };
}

/** `Reconnecting... 2/5 (unexpected status 401 …)` is a retry; anything else is only told. */
function errorOutput(message: string): TurnOutput[] {
  const attempt = /^Reconnecting\.\.\. (\d+)\/\d+/.exec(message)?.[1];
  if (attempt === undefined) return [{ kind: "stderr", text: `${message}\n` }];
  return [{ kind: "retry", attempt: Number(attempt), status: statusIn(message) }];
}

function errorLine(
  failure: string | null,
  completed: boolean,
  exit: Parameters<OutputParser["end"]>[0],
  stderr: string,
  credentials: readonly string[],
): string | null {
  if (failure !== null) {
    // What it says of a status of 500 and above, in the place of it.
    const isDown = /experiencing high demand/i.test(failure);
    return apiErrorLine({ title: TITLE, status: statusIn(failure), detail: failure, credentials, isDown });
  }
  return completed ? null : exitLine(TITLE, exit, stderr);
}

const statusIn = (message: string): number | null => {
  const status = /\bstatus:? (\d{3})\b/.exec(message)?.[1];
  return status === undefined ? null : Number(status);
};

/** The total that a line of a rollout file holds. */
export function usageInRollout(line: string): CodexUsage | null {
  const record = z
    .looseObject({ payload: z.looseObject({ info: z.looseObject({ total_token_usage: CodexUsage }) }) })
    .safeParse(jsonIn(line));
  return record.success ? record.data.payload.info.total_token_usage : null;
}

function difference(total: CodexUsage, before: CodexUsage | null): Usage {
  const less = (key: "input_tokens" | "cached_input_tokens" | "cache_write_input_tokens" | "output_tokens"): number =>
    Math.max(0, total[key] - (before?.[key] ?? 0));
  const cached = less("cached_input_tokens");
  const written = less("cache_write_input_tokens");
  return {
    input_tokens: Math.max(0, less("input_tokens") - cached - written),
    output_tokens: less("output_tokens"),
    cache_read_tokens: cached,
    cache_write_tokens: written,
    // Codex says no cost.
    cost_usd: null,
  };
}

/** What an item of another kind holds, for people. */
function restOf(item: Item): string {
  const { id: _id, type: _type, status: _status, ...rest } = item;
  return JSON.stringify(rest);
}
