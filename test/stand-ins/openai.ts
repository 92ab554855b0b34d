/**
 * A stand-in for a model that speaks OpenAI's Responses API on loopback, for tests with the real Codex. What it answers is in
 * `brain.ts`. By hand: `node test/stand-ins/openai.ts [PORT]` prints its URL.
 */
import type { ServerResponse } from "node:http";
import { type Answer, answerTo, type Said, withoutAdditions } from "./brain.ts";
import {
  asArray,
  asObject,
  asText,
  type Recorded,
  sendEvents,
  sendJson,
  type StandIn,
  startStandIn,
} from "./server.ts";

/** Tokens that every answer reports; `input_tokens` includes the cached ones. */
export const OPENAI_USAGE = { input_tokens: 120, cached_tokens: 20, output_tokens: 10 } as const;

export const startOpenAi = (port = 0): Promise<StandIn> => startStandIn(handle, port);

/** The conversation in a Responses request. */
function saidIn(body: unknown): Said[] {
  return asArray(asObject(body)["input"]).flatMap((item): Said[] => {
    const { type, role, content, output } = asObject(item);
    if (type === "function_call_output" || type === "custom_tool_call_output")
      return [{ role: "tool", output: plain(output) }];
    if (type !== "message" || (role !== "user" && role !== "assistant")) return [];
    const text = withoutAdditions(plain(content));
    return text === "" || text.startsWith("# AGENTS.md") ? [] : [{ role, text }];
  });
}

function handle(request: Recorded, response: ServerResponse, forced: () => number | null): void {
  const path = request.path.split("?")[0];
  if (request.method === "GET" && path === "/v1/models") return sendJson(response, 200, { object: "list", data: [] });
  if (request.method !== "POST" || path !== "/v1/responses") return sendFailure(response, 404);
  const status = forced();
  const answer: Answer = status === null ? answerTo(saidIn(request.body)) : { kind: "fail", status };
  if (answer.kind === "fail") return sendFailure(response, answer.status);
  if (answer.kind === "use") throw new Error("this stand-in calls no tool by its name");
  if (answer.kind === "overflow") {
    return sendJson(response, 400, {
      error: {
        type: "invalid_request_error",
        code: "context_length_exceeded",
        message: "Your input exceeds the context window of this model.",
      },
    });
  }
  sendEvents(response, streamOf(answer, asText(asObject(request.body)["model"])));
}

function streamOf(
  answer: Extract<Answer, { kind: "text" | "run" }>,
  model: string,
): { event: string; data: unknown }[] {
  const id = `resp_${crypto.randomUUID().replaceAll("-", "")}`;
  const item = itemOf(answer);
  const response = { id, object: "response", model, status: "in_progress", output: [] as unknown[] };
  const events = [
    { type: "response.created", response },
    { type: "response.output_item.added", output_index: 0, item: { ...item, status: "in_progress" } },
    ...(answer.kind === "text"
      ? [
          {
            type: "response.output_text.delta",
            output_index: 0,
            content_index: 0,
            item_id: item.id,
            delta: answer.text,
          },
        ]
      : []),
    { type: "response.output_item.done", output_index: 0, item },
    {
      type: "response.completed",
      response: { ...response, status: "completed", output: [item], usage: usageOf() },
    },
  ];
  return events.map((data, index) => ({ event: data.type, data: { ...data, sequence_number: index } }));
}

const itemOf = (answer: Extract<Answer, { kind: "text" | "run" }>) =>
  answer.kind === "text"
    ? {
        type: "message",
        id: `msg_${crypto.randomUUID()}`,
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: answer.text, annotations: [] }],
      }
    : {
        type: "function_call",
        id: `fc_${crypto.randomUUID()}`,
        call_id: `call_${crypto.randomUUID()}`,
        name: "exec_command",
        arguments: JSON.stringify({ cmd: answer.command }),
        status: "completed",
      };

const usageOf = () => ({
  input_tokens: OPENAI_USAGE.input_tokens,
  input_tokens_details: { cached_tokens: OPENAI_USAGE.cached_tokens },
  output_tokens: OPENAI_USAGE.output_tokens,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: OPENAI_USAGE.input_tokens + OPENAI_USAGE.output_tokens,
});

function sendFailure(response: ServerResponse, status: number): void {
  const message = status === 401 ? "Incorrect API key provided" : `the stand-in was told to fail with ${status}`;
  sendJson(response, status, { error: { message, type: "stand_in", code: null } });
}

const plain = (content: unknown): string =>
  typeof content === "string"
    ? content
    : asArray(content)
        .map((block) => asText(asObject(block)["text"]))
        .join("\n");

if (import.meta.main) {
  const standIn = await startOpenAi(Number(process.argv[2] ?? 0));
  process.stdout.write(`${standIn.url}\n`);
}
