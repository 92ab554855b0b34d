import { once } from "node:events";
import { HangarError, MAX_FRAME, type ToAgent } from "@hangar/shared";
import { afterEach, describe, expect, it } from "vitest";
import type { WebSocket } from "ws";
import {
  AGENT,
  aborted,
  AGENT_TOKEN,
  type Calls,
  listen,
  type Listening,
  NOW,
  standInAgents,
  TOKEN,
} from "./support.ts";

let up: Listening | undefined;
afterEach(() => up?.close());

const HELLO = { type: "hello", protocol: 1, sandbox: AGENT.sandbox, last_command: null };
const notice = (seq: number, text = "hi"): object => ({ type: "event", seq, event: { type: "notice", text } });

/** A daemon's end of the link: what it hears, and how it ended. */
class Daemon {
  readonly heard: ToAgent[] = [];
  readonly ended: Promise<{ code: number; reason: string }>;
  private wake: () => void = () => {};
  readonly ws: WebSocket;
  constructor(ws: WebSocket) {
    this.ws = ws;
    ws.on("message", (data: Buffer) => {
      this.heard.push(JSON.parse(data.toString("utf8")) as ToAgent);
      this.wake();
    });
    this.ended = once(ws, "close").then(([code, reason]) => ({ code: code as number, reason: String(reason) }));
  }
  async say(...frames: unknown[]): Promise<void> {
    if (this.ws.readyState === this.ws.CONNECTING) await once(this.ws, "open");
    for (const frame of frames) this.ws.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }
  async until(is: (frame: ToAgent) => boolean): Promise<ToAgent> {
    for (;;) {
      const found = this.heard.find(is);
      if (found) return found;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}
const dial = (at: Listening): Daemon => new Daemon(at.connect("/agent/link"));
const acked = (seq: number) => (frame: ToAgent) => frame.type === "ack" && frame.seq === seq;

/** Refused before the upgrade: the problem that came instead. */
async function refused(ws: WebSocket): Promise<{ status: number; code: string }> {
  ws.on("error", () => {});
  const [, response] = (await once(ws, "unexpected-response")) as [
    unknown,
    AsyncIterable<Buffer> & { statusCode: number },
  ];
  let text = "";
  for await (const chunk of response) text += chunk.toString("utf8");
  ws.terminate();
  return { status: response.statusCode, code: (JSON.parse(text) as { code: string }).code };
}

describe("the upgrade", () => {
  it.each([
    ["no token that Hangar made", "/agent/link", "nope-token-0123456789", {}, 401, "unauthorized"],
    ["the administrator's token", "/agent/link", TOKEN, {}, 401, "unauthorized"],
    ["a path that is not there", "/agent/nope", AGENT_TOKEN, {}, 404, "not_found"],
    ["a page of another origin", "/agent/link", AGENT_TOKEN, { origin: "http://evil.example" }, 403, "forbidden"],
    ["a rebound name", "/agent/link", AGENT_TOKEN, { host: "evil.example" }, 403, "forbidden"],
  ])("is refused with a problem: %s", async (_, path, token, headers, status, code) => {
    up = await listen();
    expect(await refused(up.connect(path, token, headers))).toEqual({ status, code });
  });

  it("tells a stale sandbox so", async () => {
    const stale = (): Promise<never> => Promise.reject(new HangarError("stale_generation"));
    up = await listen({ agents: standInAgents([], { authenticate: stale }) });
    expect(await refused(up.connect("/agent/link"))).toEqual({ status: 409, code: "stale_generation" });
  });
});

it("welcomes, takes frames in order, and acknowledges an event once it is stored", async () => {
  const calls: Calls = [];
  let store: () => void = () => {};
  const stored = new Promise<void>((resolve) => (store = resolve));
  const agents = standInAgents(calls, {
    event: async (_, seq) => {
      if (seq === 1) await stored;
      calls.push(["event", seq]);
    },
  });
  up = await listen({ agents });
  const daemon = dial(up);
  const activity = { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: null };
  await daemon.say(
    HELLO,
    notice(1),
    { type: "heartbeat", at: NOW, phase: "ready", frozen: false, activity },
    notice(2),
    { type: "result", command: "cmd-a", ok: true, value: { outcome: "x" } },
    { type: "failure", command: "cmd-b", code: "timeout", error: "late" },
  );
  await daemon.until((frame) => frame.type === "welcome");
  expect(daemon.heard).toEqual([{ type: "welcome", heartbeat_seconds: 10, lease_seconds: 60, acked: 0 }]);
  store();
  await daemon.until(acked(2));
  daemon.ws.close();
  await daemon.ended;
  await up.close();
  expect(daemon.heard.slice(1)).toEqual([
    { type: "ack", seq: 1 },
    { type: "ack", seq: 2 },
  ]);
  expect(calls.map(([name, first]) => [name, name === "event" ? first : null])).toEqual([
    ["connected", null],
    ["event", 1],
    ["heartbeat", null],
    ["event", 2],
    ["result", null],
    ["failure", null],
    ["disconnected", null],
  ]);
});

describe("what breaks the protocol ends the link with 1008 and why", () => {
  it.each([
    ["not JSON", "{nope", "a frame is not JSON"],
    ["no hello first", notice(1), "the first frame must be hello"],
    ["another protocol", { ...HELLO, protocol: 99 }, "protocol 99 is not spoken here; this is 1"],
    ["another sandbox", { ...HELLO, sandbox: "sbx-ffffffff-g1" }, "the token is of another sandbox"],
    ["an unknown frame", { type: "exploit" }, /^a frame is not valid: type/],
  ])("%s", async (_, frame, reason) => {
    up = await listen();
    const daemon = dial(up);
    await daemon.say(frame);
    const end = await daemon.ended;
    expect(end.code).toBe(1008);
    expect(end.reason).toMatch(reason);
  });

  it.each([
    ["a second hello", HELLO, "hello comes once"],
    ["an event that is none", { type: "event", seq: 0, event: { type: "notice", text: "x" } }, /seq/],
    ["an event of no known type", { type: "event", seq: 1, event: { type: "rm -rf" } }, /^a frame is not valid/],
  ])("after the welcome: %s", async (_, frame, reason) => {
    const calls: Calls = [];
    up = await listen({ agents: standInAgents(calls) });
    const daemon = dial(up);
    await daemon.say(HELLO, frame, notice(1));
    const end = await daemon.ended;
    expect(end.code).toBe(1008);
    expect(end.reason).toMatch(reason);
    await up.close();
    expect(calls.map(([name]) => name)).toEqual(["connected", "disconnected"]);
  });

  it("a binary frame", async () => {
    up = await listen();
    const daemon = dial(up);
    await once(daemon.ws, "open");
    daemon.ws.send(Buffer.from("{}"));
    expect(await daemon.ended).toEqual({ code: 1008, reason: "frames are text" });
  });

  it("a frame over the limit (1009)", async () => {
    up = await listen();
    const daemon = dial(up);
    daemon.ws.on("error", () => {});
    await daemon.say(HELLO, "x".repeat(MAX_FRAME + 1));
    expect((await daemon.ended).code).toBe(1009);
  });
});

describe("commands", () => {
  it("go down as they come; one that is too long for a frame fails instead of coming again for ever", async () => {
    const calls: Calls = [];
    const turn = (message: string) => ({
      kind: "turn" as const,
      turn: "trn-0123456789ab",
      harness: "script",
      model: null,
      message,
      preamble: null,
      handoff: false,
      harness_session: null,
      fork: false,
      timeout_seconds: null,
    });
    const agents = standInAgents(calls, {
      async *commands(_, signal) {
        yield { id: "cmd-1", command: turn("hello") };
        yield { id: "cmd-2", command: turn("\u0001".repeat(1_000_000)) };
        yield { id: "cmd-3", command: { kind: "thaw" as const } };
        await aborted(signal);
      },
    });
    up = await listen({ agents });
    const daemon = dial(up);
    await daemon.say(HELLO);
    await daemon.until((frame) => frame.type === "command" && frame.id === "cmd-3");
    expect(daemon.heard.map((frame) => (frame.type === "command" ? frame.id : frame.type))).toEqual([
      "welcome",
      "cmd-1",
      "cmd-3",
    ]);
    expect(calls).toContainEqual(["failure", "cmd-2", "body_too_large", expect.any(String)]);
  });

  it("stop with `superseded` when a newer sandbox owns the session", async () => {
    const agents = standInAgents([], {
      // oxlint-disable-next-line require-yield -- it ends before there is one
      async *commands() {
        throw new HangarError("stale_generation");
      },
    });
    up = await listen({ agents });
    const daemon = dial(up);
    await daemon.say(HELLO);
    await daemon.until((frame) => frame.type === "superseded");
    expect(await daemon.ended).toEqual({ code: 1008, reason: "stale_generation" });
  });
});

it("says `superseded` when an event comes from a sandbox that owns its session no more", async () => {
  const agents = standInAgents([], { event: () => Promise.reject(new HangarError("stale_generation")) });
  up = await listen({ agents });
  const daemon = dial(up);
  await daemon.say(HELLO, notice(1));
  expect((await daemon.ended).code).toBe(1008);
  expect(daemon.heard.at(-1)).toEqual({ type: "superseded", generation: 2 });
});

it("ends the link to be tried again when Redis is away: nothing is acknowledged that is not stored", async () => {
  const agents = standInAgents([], { event: () => Promise.reject(new HangarError("redis_unavailable")) });
  up = await listen({ agents });
  const daemon = dial(up);
  await daemon.say(HELLO, notice(1));
  expect(await daemon.ended).toEqual({ code: 1013, reason: "redis_unavailable" });
  expect(daemon.heard.some((frame) => frame.type === "ack")).toBe(false);
});

it("lets a new link of a sandbox take over from the old one, whose end then says nothing of the sandbox", async () => {
  const calls: Calls = [];
  up = await listen({ agents: standInAgents(calls) });
  const first = dial(up);
  await first.say(HELLO);
  await first.until((frame) => frame.type === "welcome");
  const second = dial(up);
  await second.say(HELLO, notice(1));
  expect((await first.ended).code).toBe(1001);
  await second.until(acked(1));
  expect(calls.map(([name]) => name)).toEqual(["connected", "connected", "event"]);
  second.ws.close();
  await second.ended;
  await up.close();
  expect(calls.at(-1)).toEqual(["disconnected"]);
});

it("takes thousands of events from a daemon that does not wait, all in order", async () => {
  const seen: number[] = [];
  up = await listen({
    agents: standInAgents([], {
      event: async (_, seq) => {
        await new Promise((resolve) => setImmediate(resolve));
        seen.push(seq);
      },
    }),
  });
  const daemon = dial(up);
  const many = Array.from({ length: 3000 }, (_, i) => i + 1);
  await daemon.say(HELLO, ...many.map((seq) => notice(seq, "x".repeat(500))));
  await daemon.until(acked(3000));
  expect(seen).toEqual(many);
});

it("ends a link whose daemon is silent", async () => {
  const calls: Calls = [];
  up = await listen({ agents: standInAgents(calls) }, 50);
  const daemon = new Daemon(up.connect("/agent/link"));
  daemon.ws.pong = () => {};
  (daemon.ws as unknown as { _autoPong: boolean })._autoPong = false;
  await daemon.say(HELLO);
  expect((await daemon.ended).code).toBe(1006);
});

it("keeps a link whose daemon answers pings", async () => {
  up = await listen({}, 30);
  const daemon = dial(up);
  await daemon.say(HELLO);
  for (let pings = 0; pings < 5; pings++) await once(daemon.ws, "ping");
  await daemon.say(notice(1));
  await daemon.until(acked(1));
});

it("says that it goes away when it stops", async () => {
  up = await listen();
  const daemon = dial(up);
  await daemon.say(HELLO);
  await daemon.until((frame) => frame.type === "welcome");
  await up.close();
  expect(await daemon.ended).toEqual({ code: 1001, reason: "the coordinator is stopping" });
});
