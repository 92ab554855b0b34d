// oxlint-disable unicorn/prefer-add-event-listener -- a transport of the SDK has its handlers as properties
/**
 * `hangar mcp`: the Model Context Protocol over standard input and output, for clients that start a program. A bridge: every
 * message goes to the running Hangar's `/mcp`, whatever its kind, so that both have the same tools. It outlives the Hangar that
 * it found: each message goes to the one that runs then, and a call whose Hangar ends is answered with that.
 */
import { type JSONRPCMessage, type RequestId, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { HangarError, Problem } from "@hangar/shared";
import { connect } from "../client.ts";
import type { Context } from "../context.ts";
import { hangarError, oneLine } from "../failure.ts";

/** Ends when the client closes standard input. Nothing but the protocol's messages goes to standard output. */
export async function mcp(context: Context): Promise<void> {
  const { url } = context.client();
  const client = new StdioServerTransport();
  const over = Promise.withResolvers<void>();
  const waiting = new Set<RequestId>();
  const say = (message: JSONRPCMessage): void => void client.send(message).catch(() => over.resolve());
  const fail = (id: RequestId, error: unknown): void => {
    if (waiting.delete(id)) say(failure(id, error));
  };
  const hangar = new StreamableHTTPClientTransport(new URL("/mcp", url), {
    fetch: async (_url, init) => {
      const answer = await ask(context, init);
      const asked = requestOf(init?.body);
      // An answer that breaks off holds no answer to its call: without one, the client would wait for ever.
      return asked === null ? answer : watched(answer, () => fail(asked, brokenOff()));
    },
  });
  hangar.onmessage = (message) => {
    if (!("method" in message) && message.id !== undefined) waiting.delete(message.id);
    say(message);
  };
  client.onmessage = (message) => {
    const id = "method" in message && "id" in message ? message.id : null;
    if (id !== null) waiting.add(id);
    hangar.send(message).catch((error: unknown) => {
      context.ui.note(`hangar: ${describe(error)}`);
      if (id !== null) fail(id, error);
    });
  };
  client.onerror = (error) => context.ui.note(`hangar: ${oneLine(error.message)}`);
  client.onclose = () => over.resolve();
  process.stdin.once("end", () => over.resolve());
  await hangar.start();
  await client.start();
  await over.promise;
  await Promise.all([client.close(), hangar.close()]);
}

/** Of the Hangar that runs now: one that was started again may listen elsewhere. HangarError as its problem says. */
async function ask({ config }: Context, init: RequestInit | undefined): Promise<Response> {
  const { url, token } = connect(config);
  const headers = new Headers(init?.headers);
  headers.set("authorization", `Bearer ${token}`);
  let answer: Response;
  try {
    answer = await fetch(new URL("/mcp", url), { ...init, headers });
  } catch (error) {
    if (init?.signal?.aborted) throw error;
    throw new HangarError("not_running", `Hangar at ${url} cannot be reached: start it with \`hangar up\``, {
      cause: error,
    });
  }
  if (answer.ok || !answer.headers.get("content-type")?.startsWith("application/problem+json")) return answer;
  // Whether it offers streams of its own is asked by a GET, and its refusal is the answer.
  if (init?.method !== "POST") return answer;
  const problem = Problem.parse(await answer.json());
  throw hangarError(problem.code, problem.detail);
}

/** The id of the request that is sent; none: a notification, or an answer. */
function requestOf(body: unknown): RequestId | null {
  if (typeof body !== "string") return null;
  const message = JSON.parse(body) as { id?: RequestId; method?: string };
  return message.method === undefined ? null : (message.id ?? null);
}

/** The same answer, told when its body has ended, well or not, and has been read. */
function watched(answer: Response, onEnd: () => void): Response {
  if (!answer.body) return answer;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  // What was read last is still on its way to be understood.
  const end = (): void => void setTimeout(onEnd, 100);
  answer.body.pipeTo(writable).then(end, end);
  return new Response(readable, { status: answer.status, statusText: answer.statusText, headers: answer.headers });
}

const brokenOff = (): HangarError =>
  new HangarError("not_running", "Hangar ended during this call. What it had begun goes on: see list_sessions");

const describe = (error: unknown): string =>
  error instanceof HangarError
    ? `${error.code}: ${oneLine(error.message)}`
    : oneLine(error instanceof Error ? error.message : String(error));

const failure = (id: RequestId, error: unknown): JSONRPCMessage => ({
  jsonrpc: "2.0",
  id,
  error: {
    code: -32_603,
    message: describe(error),
    ...(error instanceof HangarError && { data: { code: error.code } }),
  },
});
