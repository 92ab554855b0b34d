/**
 * A stand-in for a model that speaks the Anthropic Messages API on loopback, for tests and demos with the real Claude Code.
 * What it answers is in `brain.ts`. By hand: `node test/stand-ins/anthropic.ts [PORT]` prints its URL.
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

/** Tokens that every answer reports, so that a test can tell one turn's use from a sum. */
export const ANTHROPIC_USAGE = { input_tokens: 100, output_tokens: 10 } as const;

export const startAnthropic = (port = 0): Promise<StandIn> => startStandIn(handle, port);

/** The conversation in a Messages request. */
function saidIn(body: unknown): Said[] {
  return asArray(asObject(body)["messages"]).flatMap((message): Said[] => {
    const { role, content } = asObject(message);
    if (role !== "user" && role !== "assistant") return [];
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : asArray(content);
    return blocks.flatMap((block): Said[] => {
      const { type, text, content: result } = asObject(block);
      if (type === "tool_result") return [{ role: "tool", output: plain(result) }];
      const said = type === "text" ? withoutAdditions(asText(text)) : "";
      return said === "" ? [] : [{ role, text: said }];
    });
  });
}

function handle(request: Recorded, response: ServerResponse, forced: () => number | null): void {
  const path = request.path.split("?")[0];
  if (request.method === "GET" && path === "/v1/models") return sendJson(response, 200, { data: [], has_more: false });
  if (request.method === "HEAD" || request.method === "GET") return void response.writeHead(200).end();
  if (path === "/v1/messages/count_tokens") return sendJson(response, 200, { input_tokens: 100 });
  if (path !== "/v1/messages") return sendFailure(response, 404);
  const status = forced();
  const answer: Answer = status === null ? answerTo(saidIn(request.body)) : { kind: "fail", status };
  if (answer.kind === "fail") return sendFailure(response, answer.status);
  if (answer.kind === "overflow") {
    return sendJson(response, 400, {
      type: "error",
      error: { type: "invalid_request_error", message: "prompt is too long: 300000 tokens > 200000 maximum" },
    });
  }
  const body = asObject(request.body);
  const message = messageOf(answer, asText(body["model"]), shellTool(body));
  if (body["stream"] === true) return sendEvents(response, streamOf(message));
  sendJson(response, 200, message);
}

type Block = { type: "text"; text: string } | { type: "tool_use"; id: string; name: string; input: unknown };

/** What this agent calls the tool that runs commands. */
const shellTool = (body: Record<string, unknown>): string =>
  asArray(body["tools"])
    .map((tool) => asText(asObject(tool)["name"]))
    .find((name) => name.toLowerCase() === "bash") ?? "Bash";

const messageOf = (answer: Exclude<Answer, { kind: "fail" | "overflow" }>, model: string, shell: string) => {
  const block: Block =
    answer.kind === "text"
      ? { type: "text", text: answer.text }
      : {
          type: "tool_use",
          id: `toolu_${crypto.randomUUID().replaceAll("-", "")}`,
          ...(answer.kind === "use"
            ? { name: answer.tool, input: answer.input }
            : {
                name: shell,
                input: { command: answer.command, description: "What the stand-in was told to run" },
              }),
        };
  return {
    id: `msg_${crypto.randomUUID().replaceAll("-", "")}`,
    type: "message",
    role: "assistant",
    model,
    content: [block],
    stop_reason: answer.kind === "text" ? "end_turn" : "tool_use",
    stop_sequence: null,
    usage: { ...ANTHROPIC_USAGE, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
  };
};

function streamOf(message: ReturnType<typeof messageOf>): { event: string; data: unknown }[] {
  const [block] = message.content;
  const empty = block?.type === "tool_use" ? { ...block, input: {} } : { type: "text", text: "" };
  const delta =
    block?.type === "tool_use"
      ? { type: "input_json_delta", partial_json: JSON.stringify(block.input) }
      : { type: "text_delta", text: block?.text ?? "" };
  const events = [
    {
      type: "message_start",
      message: { ...message, content: [], stop_reason: null, usage: { ...message.usage, output_tokens: 1 } },
    },
    { type: "content_block_start", index: 0, content_block: empty },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: message.stop_reason, stop_sequence: null }, usage: message.usage },
    { type: "message_stop" },
  ];
  return events.map((data) => ({ event: data.type, data }));
}

const ERROR_TYPES: Record<number, string> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  429: "rate_limit_error",
  529: "overloaded_error",
};
function sendFailure(response: ServerResponse, status: number): void {
  const type = ERROR_TYPES[status] ?? "api_error";
  // What the real API says of a key.
  const message = status === 401 ? "invalid x-api-key" : `the stand-in was told to fail with ${status}`;
  sendJson(response, status, { type: "error", error: { type, message } });
}

const plain = (content: unknown): string =>
  typeof content === "string"
    ? content
    : asArray(content)
        .map((block) => asText(asObject(block)["text"]))
        .join("\n");

if (import.meta.main) {
  const standIn = await startAnthropic(Number(process.argv[2] ?? 0));
  process.stdout.write(`${standIn.url}\n`);
}
