/** `/mcp`: the Model Context Protocol over streamable HTTP, without sessions: any replica answers any request. */
import { createMcpHandler } from "@modelcontextprotocol/server";
import type { Log } from "../telemetry.ts";
import { makeServer, type ToolDeps } from "../mcp/tools.ts";
import { asHangarError, toProblem } from "./problem.ts";
import { newRequestId } from "./upgrades.ts";

export interface McpFace {
  readonly fetch: (request: Request) => Promise<Response>;
}

export function mcpFace(deps: Omit<ToolDeps, "problem">, log: Log): McpFace {
  const problem: ToolDeps["problem"] = (thrown) => {
    const error = asHangarError(thrown);
    const requestId = newRequestId();
    if (error.status >= 500) log.error({ requestId, code: error.code, error: thrown }, "an MCP tool failed");
    return toProblem(error, requestId);
  };
  const handler = createMcpHandler(() => makeServer({ ...deps, problem }), {
    maxRequestBodySize: 8 * 1024 * 1024,
    onerror: (error) => log.warn({ error }, "an MCP request was refused or cut off"),
  });
  return { fetch: (request) => handler.fetch(request) };
}
