/** A terminal of a session's sandbox in this one: `hangar sb attach` and `hangar session attach`. */
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError, Problem, Session, TerminalControl } from "@hangar/shared";
import { WebSocket } from "ws";
import type { Context } from "../context.ts";
import { hangarError } from "../failure.ts";
import { getSession, waitUntilReady } from "../follow.ts";

/** Ctrl-]: what telnet uses, and hardly anything else. Ctrl-C goes to what runs. */
const DETACH = 0x1d;
/** How long a link that was lost is tried again. */
const PATIENCE_MS = 120_000;

export interface AttachOptions {
  readonly what: "shell" | "harness";
  /** What to say to a script that calls it. */
  readonly instead: string;
  /** After the link is lost, attach again: what runs in tmux has gone on. */
  readonly again: boolean;
}

/** Detaching leaves what runs in it running. */
export async function attach(context: Context, name: string, options: AttachOptions): Promise<void> {
  const { stdin, ui } = context;
  if (!stdin.isTTY || !process.stdout.isTTY)
    throw new HangarError("invalid_request", `attach needs a terminal; ${options.instead}`);
  await openFirst(context, name);
  ui.progress(`attaching to ${name}`);
  let socket = await dial(context, name, options.what).finally(() => ui.done());
  ui.note(ui.color.dim(`attached to ${name}; detach with Ctrl-] (what runs in it goes on)`));
  for (;;) {
    const ending = await serve(context, socket);
    if (!options.again || !ending.isLost) return ui.note(ui.color.dim(`${name}: ${ending.line}`));
    ui.note(ui.color.dim(`${name}: the connection was lost; attaching again (Ctrl-C gives up)`));
    socket = await dialAgain(context, name, options.what);
    ui.note(ui.color.dim(`attached to ${name} again`));
  }
}

interface Ending {
  readonly line: string;
  /** Neither end has ended it. */
  readonly isLost: boolean;
}

/** Keyboard and screen, until either end ends it. */
async function serve({ stdin }: Context, socket: WebSocket): Promise<Ending> {
  const { stdout } = process;
  let ending: Ending | null = null;
  const onData = (data: Buffer) => {
    const at = data.indexOf(DETACH);
    if (at !== 0 && socket.readyState === WebSocket.OPEN) socket.send(at === -1 ? data : data.subarray(0, at));
    if (at === -1) return;
    ending = { line: "detached", isLost: false };
    socket.close(1000);
    // An end that is gone does not answer.
    setTimeout(() => socket.terminate(), 1000).unref();
  };
  const onResize = () => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "resize", ...size() }));
  };
  socket.on("message", (data: Buffer, isBinary: boolean) => {
    if (isBinary) {
      stdout.write(data);
      return;
    }
    const control = TerminalControl.safeParse(JSON.parse(data.toString()));
    if (!control.success || control.data.type !== "exit") return;
    const { code } = control.data;
    ending = { line: code === 0 ? "ended" : `ended with code ${code}`, isLost: false };
  });
  const closed = new Promise<number>((resolve) => socket.once("close", resolve));
  socket.on("error", () => undefined);
  // It may have closed, or this terminal may have changed, while it was dialled.
  onResize();
  stdin.setRawMode?.(true);
  stdin.on("data", onData);
  stdin.resume();
  stdout.on("resize", onResize);
  try {
    const code = socket.readyState === WebSocket.CLOSED ? 1006 : await closed;
    return ending ?? { line: "the connection ended", isLost: code !== 1000 };
  } finally {
    stdout.off("resize", onResize);
    stdin.off("data", onData);
    stdin.setRawMode?.(false);
    stdin.pause();
    // Whatever mode the program left the terminal in: the main screen, a visible cursor, no mouse reports, no colours.
    stdout.write("\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n");
  }
}

/** Until Hangar is back, for as long as the session is up. */
async function dialAgain(context: Context, name: string, what: AttachOptions["what"]): Promise<WebSocket> {
  const until = performance.now() + PATIENCE_MS;
  for (let wait = 250; ; wait = Math.min(wait * 2, 3000)) {
    await sleep(wait);
    try {
      await refuseDown(context, name);
      return await dial(context, name, what);
    } catch (error) {
      const mayPass =
        error instanceof HangarError && (error.retryable || error.code === "not_running" || error.code === "internal");
      if (!mayPass || performance.now() > until) throw error;
    }
  }
}

/** Nobody asked for it to be opened again. */
async function refuseDown(context: Context, name: string): Promise<void> {
  if (name.startsWith("sbx-")) return;
  const { state } = await getSession(context, name);
  if (state === "IDLE" || state === "ACTIVE" || state === "STARTING") return;
  throw new HangarError(
    "wrong_state",
    `${name} is ${state.toLowerCase()} now: ${context.ui.prefix} session attach ${name} opens it again`,
  );
}

/** As `send` does. A sandbox that is named by its own id is taken as it is. */
async function openFirst(context: Context, name: string): Promise<void> {
  if (name.startsWith("sbx-")) return;
  const session = await getSession(context, name);
  if (session.state !== "SUSPENDED" && session.state !== "STARTING" && session.state !== "FAILED") return;
  const path = `/api/sessions/${encodeURIComponent(name)}/open`;
  await waitUntilReady(context, await context.client().call("POST", path, Session, {}));
}

function size(): { cols: number; rows: number } {
  const { columns, rows } = process.stdout;
  return { cols: Math.min(columns || 80, 1000), rows: Math.min(rows || 24, 1000) };
}

/** Refused upgrades carry a problem, as every other answer does. */
function dial(context: Context, name: string, what: AttachOptions["what"]): Promise<WebSocket> {
  const { url, token } = context.client();
  const { cols, rows } = size();
  const query = new URLSearchParams({ what, cols: String(cols), rows: String(rows) }).toString();
  const terminal = `${url.replace(/^http/, "ws")}/api/sandboxes/${encodeURIComponent(name)}/terminal?${query}`;
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}` };
    const socket = new WebSocket(terminal, { headers, perMessageDeflate: false, handshakeTimeout: 60_000 });
    socket.on("open", () => {
      // Nothing is missed between the opening and the first listener.
      socket.pause();
      setImmediate(() => socket.resume());
      resolve(socket);
    });
    socket.on("error", (error) =>
      reject(new HangarError("sandbox_lost", `no terminal: ${error.message}`, { cause: error })),
    );
    socket.on("unexpected-response", (_request, response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (body += chunk));
      response.on("end", () => reject(refusal(body, response.statusCode)));
    });
  });
}

function refusal(body: string, status: number | undefined): HangarError {
  try {
    const problem = Problem.parse(JSON.parse(body));
    return hangarError(problem.code, problem.detail);
  } catch {
    return new HangarError("internal", `no terminal: ${status}`);
  }
}
