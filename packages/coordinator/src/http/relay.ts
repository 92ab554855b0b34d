/** Joins two WebSockets: what one says the other hears, in order, as fast as the slower reads; they end together. */
import type { RawData, WebSocket } from "ws";

/** Bytes waiting for the slower end at which the faster one is no longer read, and at which it is read again. */
const HIGH = 1024 * 1024;
const LOW = 256 * 1024;

export interface RelayOptions {
  /** Checks a text frame from either end; false ends both with 1008. Binary frames are the terminal's own bytes. */
  allowText(from: "user" | "agent", text: string): boolean;
  /** Called for every frame of the user's. */
  onUserInput(): void;
}

/** Both are open. Resolves when both have ended. */
export function relay(user: WebSocket, agent: WebSocket, options: RelayOptions): Promise<void> {
  forward(user, agent, "user", options);
  forward(agent, user, "agent", options);
  user.resume();
  agent.resume();
  return Promise.all([closed(user), closed(agent)]).then(() => undefined);
}

function forward(from: WebSocket, to: WebSocket, end: "user" | "agent", options: RelayOptions): void {
  from.on("message", (data: RawData, isBinary: boolean) => {
    if (end === "user") options.onUserInput();
    if (!isBinary && !options.allowText(end, textOf(data))) {
      for (const ws of [from, to]) ws.close(1008, "not a terminal's frame");
      return;
    }
    to.send(data, { binary: isBinary }, () => {
      if (from.isPaused && to.bufferedAmount <= LOW) from.resume();
    });
    if (to.bufferedAmount > HIGH && to.readyState === to.OPEN) from.pause();
  });
  from.on("close", (code, reason) => {
    // A paused socket would not read the other's answer to its close.
    to.resume();
    to.close(...passedOn(code, reason));
  });
}

/** 1005 and 1006 say that no code came; they may not be sent. */
function passedOn(code: number, reason: Buffer): [number, Buffer | string] {
  const sendable = code === 1000 || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
  return sendable ? [code, reason] : [code === 1005 ? 1000 : 1001, "the other end went away"];
}

const closed = (ws: WebSocket): Promise<void> =>
  new Promise((resolve) => {
    if (ws.readyState === ws.CLOSED) resolve();
    else ws.once("close", () => resolve());
  });

export function textOf(data: RawData): string {
  if (Array.isArray(data)) return Buffer.concat(data).toString("utf8");
  return (Buffer.isBuffer(data) ? data : Buffer.from(data)).toString("utf8");
}
