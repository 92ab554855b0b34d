/** Reads the output of a declared harness: as plain text, or as JSON lines by the declaration's rules. */
import type { HarnessDefinition, TurnOutput, Usage } from "@hangar/shared";
import { exitLine } from "./api-errors.ts";
import { LIMITS, type OutputParser } from "./harness.ts";
import { jsonIn } from "./json.ts";
import { lastLines, oneLine } from "./text.ts";

const SUMMARY_LINES = 20;

/** `known`: the conversation that the turn goes on with, or that Hangar chose. */
export function declaredParser({ output }: HarnessDefinition, title: string, known: string | null): OutputParser {
  let session: string | null = known;
  let said = "";
  let last: string | null = null;
  let error: string | null = null;
  let usage: Usage | null = null;

  const readJson = (line: unknown): TurnOutput[] => {
    const outputs: TurnOutput[] = [];
    const { conversation, text, tool_call: call, tool_result: result, error: failure, usage: use } = output;
    if (conversation && holds(line, conversation.when)) session = textAt(line, conversation.path) ?? session;
    if (text && holds(line, text.when)) {
      const words = textAt(line, text.path);
      if (words !== null) {
        last = words;
        outputs.push({ kind: "text", text: words });
      }
    }
    if (call && holds(line, call.when)) {
      const name = textAt(line, call.name);
      if (name !== null)
        outputs.push({ kind: "tool_call", name, input: call.input ? (textAt(line, call.input) ?? "") : "" });
    }
    if (result && holds(line, result.when)) {
      const words = textAt(line, result.output);
      const name = result.name ? (textAt(line, result.name) ?? "tool") : "tool";
      const isError = result.is_error ? valueAt(line, result.is_error) === true : false;
      if (words !== null) outputs.push({ kind: "tool_result", name, output: words, is_error: isError });
    }
    if (failure && holds(line, failure.when)) error = textAt(line, failure.path) ?? `${title} failed`;
    if (use && holds(line, use.when)) usage = sum(usage, use, line);
    return outputs;
  };

  return {
    opening: [],
    plain: output.format === "text",
    session: () => session,
    line(line) {
      if (output.format === "jsonl") return readJson(jsonIn(line));
      said = `${said}${line}\n`.slice(-LIMITS.summary * 4);
      return [{ kind: "text", text: `${line}\n` }];
    },
    end: (exit, stderr) =>
      Promise.resolve({
        error:
          error === null ? (exit.code === 0 ? null : exitLine(title, exit, stderr)) : `${title}: ${oneLine(error)}`,
        session,
        summary: output.format === "text" ? lastLines(said, SUMMARY_LINES, LIMITS.summary) : last,
        usage,
        unknownConversation: false,
      }),
  };
}

const holds = (line: unknown, when: Readonly<Record<string, unknown>>): boolean =>
  typeof line === "object" &&
  line !== null &&
  Object.entries(when).every(([path, wanted]) => valueAt(line, path) === wanted);

function valueAt(line: unknown, path: string): unknown {
  let value = line;
  for (const piece of path.replaceAll(/\[(\d+)\]/g, ".$1").split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, piece)) return undefined;
    value = (value as Record<string, unknown>)[piece];
  }
  return value;
}

/** What is no text is shown as JSON. None: nothing is there. */
function textAt(line: unknown, path: string): string | null {
  const value = valueAt(line, path);
  if (value === undefined || value === null) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}

function sum(before: Usage | null, rule: NonNullable<HarnessDefinition["output"]["usage"]>, line: unknown): Usage {
  const number = (path: string | undefined): number | null => {
    const value = path === undefined ? undefined : valueAt(line, path);
    return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;
  };
  const whole = (path: string): number => Math.floor(number(path) ?? 0);
  const cost = number(rule.cost_usd);
  return {
    input_tokens: (before?.input_tokens ?? 0) + whole(rule.input_tokens),
    output_tokens: (before?.output_tokens ?? 0) + whole(rule.output_tokens),
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    cost_usd: cost === null ? (before?.cost_usd ?? null) : (before?.cost_usd ?? 0) + cost,
  };
}
