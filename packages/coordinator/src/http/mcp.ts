/** `/mcp`: the Model Context Protocol over streamable HTTP, without sessions: any replica answers any request. */
import { createMcpHandler } from "@modelcontextprotocol/server";
import type { Log } from "../telemetry.ts";
import { makeServer, type ToolDeps } from "../mcp/tools.ts";

export interface McpFace {
  readonly fetch: (request: Request) => Promise<Response>;
}

export function mcpFace(deps: ToolDeps, log: Log): McpFace {
  const handler = createMcpHandler(() => makeServer(deps), {
    maxRequestBodySize: 8 * 1024 * 1024,
    onerror: (error) => log.warn({ error }, "an MCP request was refused or cut off"),
  });
  return { fetch: (request) => handler.fetch(request) };
}
