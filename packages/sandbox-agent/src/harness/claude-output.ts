/** Reads Claude Code's `--output-format stream-json`. What it does not know, it skips: newer versions add types. */
import type { TurnOutput, Usage } from "@hangar/shared";
import { z } from "zod";
import { apiErrorLine, exitLine } from "./api-errors.ts";
import type { Exit, OutputParser, Verdict } from "./harness.ts";
import { jsonIn } from "./json.ts";

const TITLE = "Claude Code";

const Block = z.looseObject({
  type: z.string(),
  text: z.string().optional(),
  id: z.string().optional(),
  name: z.string().optional(),
  input: z.unknown().optional(),
  tool_use_id: z.string().optional(),
  content: z.unknown().optional(),
  is_error: z.boolean().nullish(),
});
const Blocks = z.array(Block).catch([]);
const count = z.number().int().nonnegative().catch(0);

const Init = z.looseObject({ type: z.literal("system"), subtype: z.literal("init"), session_id: z.string() });
const Retry = z.looseObject({
  type: z.literal("system"),
  subtype: z.literal("api_retry"),
  attempt: z.number().int(),
  error_status: z.number().int().nullish(),
});
const Spoken = z.looseObject({
  type: z.enum(["assistant", "user"]),
  message: z.looseObject({ id: z.string().optional(), content: Blocks, usage: z.unknown().optional() }),
  /** Set for what a sub-agent says. */
  parent_tool_use_id: z.string().nullish(),
  is_api_error_message: z.boolean().nullish(),
});
const Tokens = z.looseObject({
  input_tokens: count,
  output_tokens: count,
  cache_read_input_tokens: count,
  cache_creation_input_tokens: count,
});
/** Of one model, since the last result line of the same process: so this turn's alone, sub-agents included. */
const ModelUsage = z.looseObject({
  inputTokens: count,
  outputTokens: count,
  cacheReadInputTokens: count,
  cacheCreationInputTokens: count,
  costUSD: z.number().nonnegative().catch(0),
});
const Result = z.looseObject({
  type: z.literal("result"),
  session_id: z.string().nullish(),
  subtype: z.string().catch(""),
  is_error: z.boolean().catch(false),
  api_error_status: z.number().int().nullish(),
  terminal_reason: z.string().nullish(),
  result: z.string().nullish(),
  errors: z.array(z.string()).nullish(),
  usage: Tokens.nullish(),
  model_usage_since_last_result: z.record(z.string(), ModelUsage).nullish(),
});
type Result = z.infer<typeof Result>;
const Line = z.union([Init, Retry, Spoken, Result]);

/** `credentials`: the secrets to name when the API refuses one. */
export function claudeParser(credentials: readonly string[]): OutputParser {
  const tools = new Map<string, string>();
  const messages = new Map<string, z.infer<typeof Tokens>>();
  const results: Result[] = [];
  let session: string | null = null;
  let said: string | null = null;

  const blockOutput = (block: z.infer<typeof Block>, isOwn: boolean): TurnOutput[] => {
    if (block.type === "text" && isOwn && (block.text ?? "") !== "") {
      said = block.text ?? "";
      return [{ kind: "text", text: said }];
    }
    if (block.type === "tool_use") {
      const name = block.name ?? "tool";
      if (block.id !== undefined) tools.set(block.id, name);
      return [{ kind: "tool_call", name, input: JSON.stringify(block.input ?? {}) }];
    }
    if (block.type === "tool_result") {
      const name = tools.get(block.tool_use_id ?? "") ?? "tool";
      return [{ kind: "tool_result", name, output: plain(block.content), is_error: block.is_error === true }];
    }
    return [];
  };

  return {
    opening: [],
    plain: false,
    session: () => session,
    line(text) {
      const parsed = Line.safeParse(jsonIn(text));
      if (!parsed.success) return [];
      const line = parsed.data;
      if (line.type === "result") {
        results.push(line);
        session = line.session_id ?? session;
        return [];
      }
      if (line.type === "system") {
        if (line.subtype === "api_retry") {
          return [{ kind: "retry", attempt: line.attempt, status: line.error_status ?? null }];
        }
        session = line.session_id;
        return [];
      }
      // The result line tells an API error better than this imitation of an answer.
      if (line.is_api_error_message === true) return [];
      const isAnswer = line.type === "assistant";
      const tokens = Tokens.safeParse(line.message.usage);
      if (isAnswer && tokens.success) messages.set(line.message.id ?? "", tokens.data);
      const blocks = isAnswer
        ? line.message.content
        : line.message.content.filter(({ type }) => type === "tool_result");
      return blocks.flatMap((block) => blockOutput(block, (line.parent_tool_use_id ?? null) === null));
    },
    end(exit, stderr): Promise<Verdict> {
      const last = results.at(-1);
      const unknown = /No conversation found/i.test([...(last?.errors ?? []), stderr].join("\n"));
      const failed = last === undefined || last.is_error;
      return Promise.resolve({
        session: unknown ? null : session,
        unknownConversation: unknown,
        error: failed ? errorLine(last, exit, stderr, credentials) : null,
        summary: failed ? said : last.result || said,
        usage: usageOf(results, [...messages.values()]),
      });
    },
  };
}

function errorLine(result: Result | undefined, exit: Exit, stderr: string, credentials: readonly string[]): string {
  if (result === undefined) return exitLine(TITLE, exit, stderr);
  const detail = result.result || result.errors?.join("; ") || result.terminal_reason || result.subtype;
  return apiErrorLine({
    title: TITLE,
    status: result.api_error_status ?? null,
    detail,
    credentials,
    tooLong: result.terminal_reason === "prompt_too_long",
  });
}

/**
 * The tokens and cost of this turn. `total_cost_usd` is no use: it sums up the conversation. Without a result line (a turn
 * that was stopped) the messages' own numbers are what there is, and no cost.
 */
function usageOf(results: readonly Result[], messages: readonly z.infer<typeof Tokens>[]): Usage | null {
  const models = results.flatMap((result) => Object.values(result.model_usage_since_last_result ?? {}));
  if (models.length > 0) {
    return {
      input_tokens: sum(models.map((each) => each.inputTokens)),
      output_tokens: sum(models.map((each) => each.outputTokens)),
      cache_read_tokens: sum(models.map((each) => each.cacheReadInputTokens)),
      cache_write_tokens: sum(models.map((each) => each.cacheCreationInputTokens)),
      cost_usd: sum(models.map((each) => each.costUSD)),
    };
  }
  const tokens = results.length > 0 ? results.flatMap((result) => result.usage ?? []) : messages;
  if (tokens.length === 0) return null;
  return {
    input_tokens: sum(tokens.map((each) => each.input_tokens)),
    output_tokens: sum(tokens.map((each) => each.output_tokens)),
    cache_read_tokens: sum(tokens.map((each) => each.cache_read_input_tokens)),
    cache_write_tokens: sum(tokens.map((each) => each.cache_creation_input_tokens)),
    cost_usd: null,
  };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

/** The text of a tool result's content: a string, or blocks of text and images. */
function plain(content: unknown): string {
  if (typeof content === "string") return content;
  return Blocks.parse(content)
    .map((block) => block.text ?? `[${block.type}]`)
    .join("\n");
}
