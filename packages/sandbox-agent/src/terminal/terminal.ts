/** One terminal: a pseudo-terminal here, a person's keyboard and screen at the other end of a WebSocket. */
import { TerminalControl } from "@hangar/shared";
import type { IPty } from "@lydell/node-pty";
import { WebSocket } from "ws";
import type { RawData } from "ws";

export interface TerminalOptions {
  readonly url: string;
  readonly token: string;
  readonly argv: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly cols: number;
  readonly rows: number;
  /** Shown before anything else. */
  readonly notice: string | null;
  readonly onOpened: (pid: number) => void;
  readonly onKey: () => void;
  readonly onClosed: (pid: number) => void;
}

export interface Terminal {
  readonly pid: number;
  /** Detaches: the program gets a hang-up, which a tmux client takes as leaving. */
  close(): void;
  readonly closed: Promise<void>;
}

/** Bytes on their way above which the program is made to wait, and below which it goes on. */
const HIGH = 512 * 1024;
const LOW = 128 * 1024;

/** Resolves when connected and running. Rejects when the URL cannot be dialled or the program not started. */
export async function openTerminal(options: TerminalOptions): Promise<Terminal> {
  const early: Array<{ data: Buffer; binary: boolean }> = [];
  const socket = await dial(options, early);
  let program: IPty;
  try {
    program = await start(options);
  } catch (error) {
    socket.close(1011, "the terminal could not be started");
    throw error;
  }
  return join(socket, program, options, early);
}

function dial({ url, token }: TerminalOptions, early: Array<{ data: Buffer; binary: boolean }>): Promise<WebSocket> {
  const socket = new WebSocket(url, {
    headers: { authorization: `Bearer ${token}` },
    handshakeTimeout: 10_000,
    maxPayload: 1024 * 1024,
    perMessageDeflate: false,
  });
  // What comes before the program runs must not be missed.
  socket.on("message", (data: RawData, binary) => early.push({ data: bytesOf(data), binary }));
  return new Promise((resolve, reject) => {
    socket.once("open", () => resolve(socket));
    socket.on("error", reject);
  });
}

async function start({ argv, env, cwd, cols, rows }: TerminalOptions): Promise<IPty> {
  // Its native part is loaded with the first terminal: most sandboxes start without one.
  const { default: pty } = await import("@lydell/node-pty");
  return pty.spawn(argv[0], argv.slice(1), {
    name: "xterm-256color",
    cols,
    rows,
    cwd,
    env: { ...env },
    encoding: null,
  });
}

function join(
  socket: WebSocket,
  program: IPty,
  options: TerminalOptions,
  early: ReadonlyArray<{ data: Buffer; binary: boolean }>,
): Terminal {
  const { pid } = program;
  let paused = false;
  let ended = false;
  const relieve = (): void => {
    if (!paused || socket.bufferedAmount > LOW) return;
    paused = false;
    program.resume();
  };
  const toScreen = (bytes: Buffer): void => {
    if (socket.readyState !== WebSocket.OPEN) return;
    socket.send(bytes, { binary: true }, relieve);
    if (!paused && socket.bufferedAmount > HIGH) {
      paused = true;
      program.pause();
    }
  };
  const fromUser = (data: Buffer, binary: boolean): void => {
    if (ended) return;
    if (binary) {
      options.onKey();
      // The types know strings only; bytes are taken as they are.
      program.write(data as unknown as string);
    } else resize(program, data);
  };
  const hangUp = (): void => {
    if (ended) return;
    try {
      program.kill("SIGHUP");
    } catch {
      // it has just ended
    }
    // A paused pseudo-terminal is not read, and so its end would not be seen.
    program.resume();
  };
  // A connection that is only half there would keep the session awake for ever.
  let alive = true;
  const probe = setInterval(() => {
    if (!alive) socket.terminate();
    alive = false;
    socket.ping();
  }, 20_000);
  socket.on("pong", () => (alive = true));

  options.onOpened(pid);
  if (options.notice !== null) toScreen(Buffer.from(`${options.notice}\r\n`));
  program.onData((data) => toScreen(data as unknown as Buffer));
  socket.removeAllListeners("message");
  for (const { data, binary } of early) fromUser(data, binary);
  socket.on("message", (data: RawData, binary) => fromUser(bytesOf(data), binary));
  socket.on("close", hangUp);
  if (socket.readyState !== WebSocket.OPEN) hangUp();
  const closed = new Promise<void>((resolve) => {
    program.onExit(({ exitCode }) => {
      ended = true;
      clearInterval(probe);
      options.onClosed(pid);
      if (socket.readyState === WebSocket.OPEN) {
        socket.send(JSON.stringify({ type: "exit", code: exitCode } satisfies TerminalControl));
        socket.close(1000);
      }
      resolve();
    });
  });
  return { pid, close: hangUp, closed };
}

function resize(program: IPty, data: Buffer): void {
  try {
    const control = TerminalControl.parse(JSON.parse(data.toString("utf8")));
    if (control.type === "resize") program.resize(control.cols, control.rows);
  } catch {
    // makes no sense, or the program has just ended
  }
}

function bytesOf(data: RawData): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data);
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}
