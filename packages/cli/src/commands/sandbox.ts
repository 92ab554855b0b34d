/** `hangar sb …`: the sandboxes that run now. */
import { ExecResult, SandboxInfo } from "@hangar/shared";
import { z } from "zod";
import type { Context } from "../context.ts";
import { ExitWith } from "../failure.ts";
import { ago, table } from "../ui.ts";

export async function listSandboxes(context: Context, options: { json?: boolean }): Promise<void> {
  const answer = z.object({ sandboxes: z.array(SandboxInfo) });
  const { sandboxes } = await context.client().call("GET", "/api/sandboxes", answer);
  const { ui } = context;
  if (options.json) return ui.json(sandboxes);
  if (sandboxes.length === 0) return ui.note("No sandbox runs.");
  const head = ["SANDBOX", "SESSION", "STATE", "STARTED", "KEPT AWAKE BY"].map((title) => ui.color.dim(title));
  const rows = sandboxes.map((one) => [
    one.id,
    one.session_name,
    one.state.toLowerCase() + (one.connected ? "" : " (not connected)"),
    one.started_at ? ago(one.started_at, Date.now()) : "-",
    one.kept_awake_by.join(", ") || "-",
  ]);
  for (const line of table([head, ...rows], ui.columns)) ui.out(line);
}

export async function exec(
  context: Context,
  name: string,
  argv: string[],
  options: { cwd?: string; timeout?: number; json?: boolean },
): Promise<void> {
  const body = {
    argv,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.timeout === undefined ? {} : { timeout_seconds: options.timeout }),
  };
  const result = await context
    .client()
    .call("POST", `/api/sandboxes/${encodeURIComponent(name)}/exec`, ExecResult, body);
  const stdout = Buffer.from(result.stdout, "base64");
  const stderr = Buffer.from(result.stderr, "base64");
  if (options.json) context.ui.json({ ...result, stdout: stdout.toString(), stderr: stderr.toString() });
  else {
    context.ui.write(stdout);
    process.stderr.write(stderr);
    if (result.truncated) context.ui.note("hangar: the output was cut: it was too long");
    if (result.timed_out) context.ui.note("hangar: it took too long and was ended");
  }
  if (result.exit_code !== 0) throw new ExitWith(result.exit_code > 0 && result.exit_code < 256 ? result.exit_code : 1);
}
