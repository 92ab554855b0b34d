/** Reads pi's `--mode json`. Its exit code is 0 even when the API failed: the last assistant message tells. */
import type { TurnOutput, Usage } from "@hangar/shared";
import { z } from "zod";
import { apiErrorLine, exitLine } from "./api-errors.ts";
import type { OutputParser, Verdict } from "./harness.ts";
import { jsonIn } from "./json.ts";

const TITLE = "pi";
const count = z.number().int().nonnegative().catch(0);

const Block = z.looseObject({ type: z.string(), text: z.string().optional() });
const Blocks = z.array(Block).catch([]);
const PiUsage = z.looseObject({
  input: count,
  output: count,
  cacheRead: count,
  cacheWrite: count,
  cost: z.looseObject({ total: z.number().nonnegative().catch(0) }).nullish(),
});
const Line = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("session"), id: z.string() }),
  z.looseObject({
    type: z.literal("message_end"),
    message: z.looseObject({
      role: z.string(),
      content: Blocks,
      stopReason: z.string().nullish(),
      errorMessage: z.string().nullish(),
      usage: PiUsage.nullish().catch(null),
    }),
  }),
  z.looseObject({ type: z.literal("tool_execution_start"), toolName: z.string(), args: z.unknown().optional() }),
  z.looseObject({
    type: z.literal("tool_execution_end"),
    toolName: z.string(),
    result: z.looseObject({ content: Blocks }).nullish().catch(null),
    isError: z.boolean().catch(false),
  }),
  z.looseObject({
    type: z.literal("auto_retry_start"),
    attempt: z.number().int(),
    errorMessage: z.string().nullish(),
  }),
  z.looseObject({ type: z.literal("agent_settled") }),
]);

/** `credentials`: the secrets to name when the API refuses one. */
export function piParser(credentials: readonly string[]): OutputParser {
  const uses: z.infer<typeof PiUsage>[] = [];
  let session: string | null = null;
  let said: string | null = null;
  let failure: string | null = null;
  let answered = false;
  let settled = false;

  return {
    opening: [],
    plain: false,
    session: () => session,
    line(text): TurnOutput[] {
      const parsed = Line.safeParse(jsonIn(text));
      if (!parsed.success) return [];
      const line = parsed.data;
      switch (line.type) {
        case "session":
          session = line.id;
          return [];
        case "agent_settled":
          settled = true;
          return [];
        case "tool_execution_start":
          return [{ kind: "tool_call", name: line.toolName, input: JSON.stringify(line.args ?? {}) }];
        case "tool_execution_end":
          return [
            { kind: "tool_result", name: line.toolName, output: textOf(line.result?.content), is_error: line.isError },
          ];
        case "auto_retry_start":
          return [{ kind: "retry", attempt: line.attempt, status: statusIn(line.errorMessage ?? "") }];
        case "message_end": {
          const { role, content, stopReason, errorMessage, usage } = line.message;
          if (role !== "assistant") return [];
          answered = true;
          failure = stopReason === "error" || stopReason === "aborted" ? (errorMessage ?? stopReason) : null;
          if (usage) uses.push(usage);
          const spoken = textOf(content);
          if (spoken === "") return [];
          said = spoken;
          return [{ kind: "text", text: spoken }];
        }
        default:
          return [];
      }
    },
    end(exit, stderr): Promise<Verdict> {
      const ended = answered && settled;
      const error =
        failure === null
          ? ended
            ? null
            : exitLine(TITLE, exit, stderr)
          : apiErrorLine({ title: TITLE, status: statusIn(failure), detail: saidByApi(failure), credentials });
      return Promise.resolve({
        session,
        // An unknown id silently begins a new conversation: that the file is there was looked at before.
        unknownConversation: false,
        error,
        summary: said,
        usage: uses.length === 0 ? null : usageOf(uses),
      });
    },
  };
}

const textOf = (blocks: z.infer<typeof Blocks> | undefined): string =>
  (blocks ?? []).flatMap((block) => (block.type === "text" ? [block.text ?? ""] : [])).join("\n");

/** `401 {"type":"error",…}` */
const statusIn = (message: string): number | null => {
  const status = /^\D{0,20}(\d{3})\b/.exec(message)?.[1];
  return status === undefined ? null : Number(status);
};
const saidByApi = (message: string): string => {
  const body = z
    .looseObject({ error: z.looseObject({ message: z.string() }) })
    .safeParse(jsonIn(message.slice(Math.max(0, message.indexOf("{")))));
  return body.success ? body.data.error.message : message;
};

function usageOf(uses: readonly z.infer<typeof PiUsage>[]): Usage {
  const sum = (of: (use: z.infer<typeof PiUsage>) => number): number => uses.reduce((total, use) => total + of(use), 0);
  return {
    input_tokens: sum((use) => use.input),
    output_tokens: sum((use) => use.output),
    cache_read_tokens: sum((use) => use.cacheRead),
    cache_write_tokens: sum((use) => use.cacheWrite),
    cost_usd: sum((use) => use.cost?.total ?? 0),
  };
}
