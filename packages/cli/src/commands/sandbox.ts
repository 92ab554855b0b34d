/** `hangar sb …`: the sandboxes that run now. */
import { once } from "node:events";
import { ExecResult, HangarError, Problem, SandboxInfo, Session, TerminalControl } from "@hangar/shared";
import { WebSocket } from "ws";
import { z } from "zod";
import type { Context } from "../context.ts";
import { ExitWith, hangarError } from "../failure.ts";
import { getSession, waitUntilReady } from "../follow.ts";
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

/** Ctrl-]: what telnet uses, and hardly anything else. */
const DETACH = 0x1d;

/** A terminal of the sandbox in this one. Detaching leaves what runs in it running. */
export async function attach(context: Context, name: string, options: { agent?: boolean }): Promise<void> {
  const { stdin, ui } = context;
  const stdout = process.stdout;
  if (!stdin.isTTY || !stdout.isTTY)
    throw new HangarError(
      "invalid_request",
      "attach needs a terminal; to run one command: hangar sb exec NAME -- COMMAND",
    );
  await openFirst(context, name);
  const client = context.client();
  const what = options.agent ? "harness" : "shell";
  const size = (): { cols: number; rows: number } => ({
    cols: Math.min(stdout.columns || 80, 1000),
    rows: Math.min(stdout.rows || 24, 1000),
  });
  const query = new URLSearchParams({ what, cols: String(size().cols), rows: String(size().rows) });
  const url = `${client.url.replace(/^http/, "ws")}/api/sandboxes/${encodeURIComponent(name)}/terminal?${query.toString()}`;
  ui.progress(`attaching to ${name}`);
  const socket = await dial(url, client.token).finally(() => ui.done());
  ui.note(ui.color.dim(`attached to ${name}; detach with Ctrl-] (what runs in it goes on)`));

  let ending = "the connection ended";
  const onData = (data: Buffer) => {
    const at = data.indexOf(DETACH);
    if (at !== 0) socket.send(at === -1 ? data : data.subarray(0, at));
    if (at === -1) return;
    ending = "detached";
    socket.close(1000);
  };
  const onResize = () => socket.send(JSON.stringify({ type: "resize", ...size() }));
  socket.on("message", (data: Buffer, isBinary: boolean) => {
    if (isBinary) {
      stdout.write(data);
      return;
    }
    const control = TerminalControl.safeParse(JSON.parse(data.toString()));
    if (control.success && control.data.type === "exit")
      ending = control.data.code === 0 ? "ended" : `ended with code ${control.data.code}`;
  });
  stdin.setRawMode?.(true);
  stdin.on("data", onData);
  stdin.resume();
  stdout.on("resize", onResize);
  try {
    await once(socket, "close");
  } finally {
    stdout.off("resize", onResize);
    stdin.off("data", onData);
    stdin.setRawMode?.(false);
    stdin.pause();
    // Whatever mode the program left the terminal in: the main screen, a visible cursor, no mouse reports, no colours.
    stdout.write("\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n");
  }
  ui.note(ui.color.dim(`${name}: ${ending}`));
}

/** As `send` does. A sandbox that is named by its own id is taken as it is. */
async function openFirst(context: Context, name: string): Promise<void> {
  if (name.startsWith("sbx-")) return;
  const session = await getSession(context, name);
  if (session.state !== "SUSPENDED" && session.state !== "STARTING" && session.state !== "FAILED") return;
  const path = `/api/sessions/${encodeURIComponent(name)}/open`;
  await waitUntilReady(context, await context.client().call("POST", path, Session, {}));
}

/** Refused upgrades carry a problem, as every other answer does. */
function dial(url: string, token: string): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { headers: { authorization: `Bearer ${token}` }, perMessageDeflate: false });
    socket.on("open", () => resolve(socket));
    socket.on("error", (error) =>
      reject(new HangarError("sandbox_lost", `no terminal: ${error.message}`, { cause: error })),
    );
    socket.on("unexpected-response", (_request, response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (body += chunk));
      response.on("end", () => {
        const problem = Problem.safeParse(JSON.parse(body || "null"));
        reject(
          problem.success
            ? hangarError(problem.data.code, problem.data.detail)
            : new HangarError("internal", `no terminal: ${response.statusCode}`),
        );
      });
    });
  });
}
