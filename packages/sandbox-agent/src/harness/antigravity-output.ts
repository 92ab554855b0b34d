/** Reads Antigravity's `--output-format stream-json`. Its exit code and its "SUCCESS" alone prove nothing: the result tells. */
import type { TurnOutput, Usage } from "@hangar/shared";
import { z } from "zod";
import { apiErrorLine, exitLine } from "./api-errors.ts";
import type { OutputParser, Verdict } from "./harness.ts";
import { jsonIn } from "./json.ts";

const TITLE = "Antigravity";
const count = z.number().int().nonnegative().catch(0);

/** Thinking is part of `output_tokens`; what the cache gave is not part of `input_tokens`. */
const Tokens = z.looseObject({ input_tokens: count, output_tokens: count, cache_read_tokens: count });
const Tool = z.looseObject({
  parameters: z.unknown().optional(),
  output: z.string().nullish().catch(null),
  error: z
    .union([z.string(), z.looseObject({ message: z.string() })])
    .nullish()
    .catch(null),
});
const Line = z.discriminatedUnion("event", [
  z.looseObject({ event: z.literal("init"), conversation_id: z.string() }),
  z.looseObject({
    event: z.literal("step_update"),
    step_update: z.looseObject({
      step_index: z.number().int().catch(-1),
      step_type: z.string().catch(""),
      state: z.string().catch(""),
      text_delta: z.string().nullish(),
      tool_name: z.string().nullish(),
      tool_info: Tool.nullish().catch(null),
    }),
  }),
  z.looseObject({
    event: z.literal("result"),
    result: z.looseObject({
      conversation_id: z.string().nullish(),
      status: z.string().catch(""),
      response: z.string().nullish().catch(null),
      error: z.string().nullish().catch(null),
      denied_actions: z.array(z.unknown()).nullish().catch(null),
      usage: Tokens.nullish().catch(null),
    }),
  }),
]);
type Result = Extract<z.infer<typeof Line>, { event: "result" }>["result"];
type Step = Extract<z.infer<typeof Line>, { event: "step_update" }>["step_update"];

/** `credentials`: the secrets to name when the API refuses one. */
export function antigravityParser(credentials: readonly string[]): OutputParser {
  /** Steps whose call is told; a step is said more than once while it goes on. */
  const called = new Set<number>();
  let session: string | null = null;
  let result: Result | null = null;
  /** What the answer's step has said so far: it comes in pieces. */
  let answer = "";
  let answering = -1;

  const told = (): TurnOutput[] => {
    const text = answer.trim();
    answer = "";
    return text === "" ? [] : [{ kind: "text", text }];
  };
  const toolOutput = (step: Step): TurnOutput[] => {
    const name = step.tool_name ?? "tool";
    const info = step.tool_info;
    const outputs: TurnOutput[] = [];
    if (!called.has(step.step_index)) {
      called.add(step.step_index);
      outputs.push({ kind: "tool_call", name, input: JSON.stringify(info?.parameters ?? {}) });
    }
    if (step.state === "ACTIVE") return outputs;
    const error = typeof info?.error === "string" ? info.error : (info?.error?.message ?? null);
    const isError = step.state === "ERROR" || (error !== null && error !== "");
    const output = [info?.output ?? "", error ?? ""].filter((text) => text !== "").join("\n");
    return [...outputs, { kind: "tool_result", name, output, is_error: isError }];
  };

  return {
    opening: [],
    plain: false,
    session: () => session,
    line(text): TurnOutput[] {
      const parsed = Line.safeParse(jsonIn(text));
      if (!parsed.success) return [];
      const line = parsed.data;
      if (line.event === "init") {
        session = line.conversation_id;
        return [];
      }
      if (line.event === "result") {
        result = line.result;
        session = line.result.conversation_id || session;
        return told();
      }
      const step = line.step_update;
      if (step.step_type === "tool") return [...told(), ...toolOutput(step)];
      if (step.step_type !== "agent_response") return [];
      const before = step.step_index === answering ? [] : told();
      answering = step.step_index;
      answer += step.text_delta ?? "";
      return step.state === "DONE" ? [...before, ...told()] : before;
    },
    end(exit, stderr): Promise<Verdict> {
      return Promise.resolve({
        session,
        // It begins anew without a word: the id that it says is compared with the one asked for.
        unknownConversation: false,
        error: result === null ? exitLine(TITLE, exit, stderr) : errorIn(result, credentials),
        summary: result?.response?.trim() || null,
        usage: result?.usage ? usageOf(result.usage) : null,
      });
    },
  };
}

function errorIn(result: Result, credentials: readonly string[]): string | null {
  if (result.status !== "SUCCESS") {
    const detail = result.error || result.response || result.status;
    return apiErrorLine({ title: TITLE, status: statusIn(detail), detail, credentials });
  }
  const denied = result.denied_actions?.length ?? 0;
  if (denied > 0 && !result.response?.trim()) return `${TITLE} was not allowed ${denied} actions, and gave no answer`;
  return null;
}

const statusIn = (message: string): number | null => {
  const status = /\b([45]\d\d)\b/.exec(message)?.[1];
  return status === undefined ? null : Number(status);
};

const usageOf = (tokens: z.infer<typeof Tokens>): Usage => ({
  input_tokens: tokens.input_tokens,
  output_tokens: tokens.output_tokens,
  cache_read_tokens: tokens.cache_read_tokens,
  cache_write_tokens: 0,
  cost_usd: null,
});
