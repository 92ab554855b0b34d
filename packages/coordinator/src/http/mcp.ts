/**
 * `/mcp`: the Model Context Protocol over streamable HTTP, without sessions: any replica answers any request. What it needs is
 * loaded by the first one: most installations are never asked, and an idle coordinator holds 146 MB instead of 164 without it.
 */
import type { ToolDeps } from "../mcp/tools.ts";
import type { Log } from "../telemetry.ts";
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
  const load = async (): Promise<McpFace> => {
    const { createMcpHandler } = await import("@modelcontextprotocol/server");
    const { makeServer } = await import("../mcp/tools.ts");
    return createMcpHandler(() => makeServer({ ...deps, problem }), {
      maxRequestBodySize: 8 * 1024 * 1024,
      onerror: (error) => log.warn({ error }, "an MCP request was refused or cut off"),
    });
  };
  let handler: Promise<McpFace> | null = null;
  return { fetch: async (request) => (await (handler ??= load())).fetch(request) };
}
