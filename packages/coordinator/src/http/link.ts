/**
 * `GET /agent/link`: the one WebSocket of a sandbox's daemon. First its `hello`, answered by `welcome`; then commands go
 * down, and events, heartbeats and results come up, taken one after the other. An event is acknowledged once it is stored.
 * A frame that does not parse ends the link with 1008; a coordinator that cannot do its part ends it with 1011 or 1013, and
 * the daemon dials again and sends what was not acknowledged.
 */
import { FromAgent, HangarError, MAX_FRAME, PROTOCOL_VERSION, type ToAgent } from "@hangar/shared";
import type { RawData, WebSocket } from "ws";
import type { AgentIdentity, AgentSide } from "../session/sessions.ts";
import type { Log } from "../telemetry.ts";
import { bearer } from "./auth.ts";
import { describeZod } from "./problem.ts";
import { textOf } from "./relay.ts";
import type { UpgradeRoute } from "./upgrades.ts";

export interface LinkDeps {
  readonly agents: AgentSide;
  readonly replica: string;
  readonly log: Log;
  /** How long a daemon may take for its `hello`. */
  readonly helloMs: number;
}

export function linkRoute(deps: LinkDeps): UpgradeRoute {
  /** The newest link of each sandbox that this replica holds, and when it has ended. */
  const links = new Map<string, { ws: WebSocket; ended: Promise<void> }>();
  return {
    pattern: /^\/agent\/link$/,
    async accept({ authorization }) {
      const agent = await deps.agents.authenticate(bearer(authorization));
      return (ws) => {
        const before = links.get(agent.sandbox);
        const newest = (): boolean => links.get(agent.sandbox)?.ws === ws;
        const ended = serve(deps, agent, ws, before?.ended, newest).finally(() => {
          if (newest()) links.delete(agent.sandbox);
        });
        links.set(agent.sandbox, { ws, ended });
        before?.ws.close(1001, "another link of this sandbox took over");
      };
    },
  };
}

/** Frames waiting at which the daemon is no longer read, and at which it is read again. */
const HIGH = 64;
const LOW = 16;

async function serve(
  deps: LinkDeps,
  agent: AgentIdentity,
  ws: WebSocket,
  before: Promise<void> | undefined,
  newest: () => boolean,
): Promise<void> {
  const log = deps.log.child({ sandbox: agent.sandbox, session: agent.session });
  const gone = new AbortController();
  const frames = new FrameQueue(ws);
  ws.on("close", () => gone.abort());
  const hello = setTimeout(() => ws.close(1008, "no hello in time"), deps.helloMs);
  let commands: Promise<void> | undefined;

  try {
    for (;;) {
      const text = await frames.next();
      if (text === null) break;
      const frame = parseFrame(text);
      if (commands === undefined) {
        clearTimeout(hello);
        await before;
        send(ws, await welcome(deps, agent, frame));
        log.info({ generation: agent.generation }, "a daemon is connected");
        commands = sendCommands(deps, agent, ws, gone.signal).catch((error: unknown) => endLink(ws, agent, error, log));
      } else {
        await take(deps.agents, agent, frame, (seq) => send(ws, { type: "ack", seq }));
      }
    }
  } catch (error) {
    endLink(ws, agent, error, log);
  } finally {
    clearTimeout(hello);
    await frames.closed;
    gone.abort();
    await commands;
    // A link that was replaced says nothing about its sandbox any more.
    if (commands && newest()) {
      log.info({}, "a daemon is disconnected");
      await deps.agents
        .disconnected(agent, deps.replica)
        .catch((error: unknown) => log.warn({ error }, "a disconnect was not recorded"));
    }
  }
}

async function welcome(deps: LinkDeps, agent: AgentIdentity, frame: FromAgent): Promise<ToAgent> {
  if (frame.type !== "hello") throw new BadFrame("the first frame must be hello");
  if (frame.protocol !== PROTOCOL_VERSION) {
    throw new BadFrame(`protocol ${frame.protocol} is not spoken here; this is ${PROTOCOL_VERSION}`);
  }
  if (frame.sandbox !== agent.sandbox) throw new BadFrame("the token is of another sandbox");
  const { type: _, ...hello } = frame;
  return deps.agents.connected(agent, hello, deps.replica);
}

async function take(
  agents: AgentSide,
  agent: AgentIdentity,
  frame: FromAgent,
  ack: (seq: number) => void,
): Promise<void> {
  switch (frame.type) {
    case "event":
      await agents.event(agent, frame.seq, frame.event);
      return ack(frame.seq);
    case "heartbeat": {
      const { type: _, ...heartbeat } = frame;
      return agents.heartbeat(agent, heartbeat);
    }
    case "result":
      return agents.result(agent, frame.command, frame.value);
    case "failure":
      return agents.failure(agent, frame.command, frame.code, frame.error);
    case "hello":
      throw new BadFrame("hello comes once");
  }
}

async function sendCommands(deps: LinkDeps, agent: AgentIdentity, ws: WebSocket, signal: AbortSignal): Promise<void> {
  try {
    for await (const { id, command } of deps.agents.commands(agent, signal)) {
      const text = JSON.stringify({ type: "command", id, command } satisfies ToAgent);
      if (Buffer.byteLength(text) > MAX_FRAME) {
        // It would be refused by the daemon each time it is sent again.
        await deps.agents.failure(agent, id, "body_too_large", "The message is too long to be sent to the sandbox");
        continue;
      }
      await new Promise<void>((resolve) => ws.send(text, () => resolve()));
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Says why, in the protocol's terms, and closes. */
function endLink(ws: WebSocket, agent: AgentIdentity, error: unknown, log: Log): void {
  if (ws.readyState !== ws.OPEN) return;
  if (error instanceof BadFrame) {
    log.warn({ reason: error.message }, "a daemon broke the protocol");
    ws.close(1008, reason(error.message));
  } else if (error instanceof HangarError && error.code === "stale_generation") {
    send(ws, { type: "superseded", generation: agent.generation + 1 });
    ws.close(1008, error.code);
  } else if (error instanceof HangarError && error.retryable) {
    log.warn({ error }, "a link was ended to be tried again");
    ws.close(1013, error.code);
  } else {
    log.error({ error }, "a link failed");
    ws.close(1011, error instanceof HangarError ? error.code : "internal");
  }
}

class BadFrame extends Error {}

function parseFrame(text: string): FromAgent {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new BadFrame("a frame is not JSON");
  }
  const parsed = FromAgent.safeParse(json);
  if (parsed.success) return parsed.data;
  throw new BadFrame(`a frame is not valid: ${describeZod(parsed.error)}`);
}

const send = (ws: WebSocket, frame: ToAgent): void => ws.send(JSON.stringify(frame), () => {});

/** A close frame holds 123 bytes. */
const reason = (text: string): string =>
  Buffer.from(text)
    .subarray(0, 120)
    .toString("utf8")
    .replace(/\uFFFD$/, "");

/** Text frames in order; reading the socket pauses while too many wait. `next` gives `null` once the link is closing. */
class FrameQueue {
  readonly closed: Promise<void>;
  private readonly ws: WebSocket;
  private readonly waiting: string[] = [];
  private wake: () => void = () => {};
  private broken: BadFrame | null = null;

  constructor(ws: WebSocket) {
    this.ws = ws;
    ws.on("message", (data: RawData, isBinary: boolean) => {
      if (isBinary) this.broken ??= new BadFrame("frames are text");
      else this.waiting.push(textOf(data));
      if (this.waiting.length >= HIGH) ws.pause();
      this.wake();
    });
    this.closed = new Promise((resolve) =>
      ws.on("close", () => {
        this.wake();
        resolve();
      }),
    );
  }

  async next(): Promise<string | null> {
    while (this.waiting.length === 0) {
      if (this.broken) throw this.broken;
      if (this.ws.readyState !== this.ws.OPEN) return null;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (this.waiting.length <= LOW && this.ws.isPaused) this.ws.resume();
    return this.waiting.shift() ?? null;
  }
}
