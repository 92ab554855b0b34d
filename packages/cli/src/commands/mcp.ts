// oxlint-disable unicorn/prefer-add-event-listener -- a transport of the SDK has its handlers as properties
/**
 * `hangar mcp`: the Model Context Protocol over standard input and output, for clients that start a program. A bridge: every
 * message goes to the running Hangar's `/mcp`, whatever its kind, so that both have the same tools.
 */
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import type { Context } from "../context.ts";

/** Ends when the client closes standard input. Nothing but the protocol's messages goes to standard output. */
export async function mcp(context: Context): Promise<void> {
  const { url, token } = context.client();
  const hangar = new StreamableHTTPClientTransport(new URL("/mcp", url), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  });
  const client = new StdioServerTransport();
  const over = Promise.withResolvers<void>();
  client.onclose = () => over.resolve();
  process.stdin.once("end", () => over.resolve());
  client.onerror = (error) => context.ui.note(`hangar: ${error.message}`);
  hangar.onmessage = (message) => void client.send(message).catch(() => over.resolve());
  client.onmessage = (message) =>
    void hangar.send(message).catch((error: unknown) => {
      const text = error instanceof Error ? error.message : String(error);
      context.ui.note(`hangar: ${text}`);
      if (!("id" in message) || !("method" in message)) return;
      const answer = { jsonrpc: "2.0" as const, id: message.id, error: { code: -32_603, message: text } };
      void client.send(answer).catch(() => over.resolve());
    });
  await hangar.start();
  await client.start();
  await over.promise;
  await Promise.all([client.close(), hangar.close()]);
}
