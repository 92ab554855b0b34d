import { once } from "node:events";
import { HangarError } from "@hangar/shared";
import { afterEach, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import type { Sessions } from "../../src/session/sessions.ts";
import {
  AGENT,
  AGENT_TOKEN,
  type Calls,
  listen,
  type Listening,
  standInAgents,
  standInSessions,
  TOKEN,
} from "./support.ts";

let up: Listening | undefined;
afterEach(() => up?.close());

type Dial = (url: string) => Promise<unknown>;

/** Sessions whose sandbox's daemon dials as `dial` does. */
function withDaemon(dial: Dial, calls: Calls = []): Sessions {
  return standInSessions(calls, {
    openTerminal: async (_, ref, input) => {
      const { url, ...rest } = input;
      calls.push(["openTerminal", ref, rest]);
      await dial(url);
    },
  });
}

const daemonDials = (token = AGENT_TOKEN): { dial: Dial; ends: WebSocket[] } => {
  const ends: WebSocket[] = [];
  const dial: Dial = async (url) => {
    const ws = new WebSocket(url, { headers: { authorization: `Bearer ${token}` } });
    ends.push(ws);
    await once(ws, "open");
  };
  return { dial, ends };
};

async function heard(ws: WebSocket, length: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  return new Promise((resolve) => {
    ws.on("message", (data: Buffer) => {
      chunks.push(data);
      size += data.length;
      if (size >= length) resolve(Buffer.concat(chunks));
    });
  });
}

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

const closed = async (ws: WebSocket): Promise<[number, string]> => {
  const [code, reason] = (await once(ws, "close")) as [number, Buffer];
  return [code, reason.toString()];
};

it("joins the user's end and the daemon's: bytes both ways, resizes and exits as they are", async () => {
  const calls: Calls = [];
  const { dial, ends } = daemonDials();
  up = await listen({ sessions: withDaemon(dial, calls) });
  const user = up.connect("/api/sandboxes/fix/terminal?what=harness&cols=120&rows=40", TOKEN);
  await once(user, "open");
  const agent = ends[0]!;
  expect(calls).toContainEqual(["openTerminal", "fix", { what: "harness", cols: 120, rows: 40 }]);

  const typed = heard(agent, 3);
  user.send(Buffer.from([0x6c, 0x73, 0x0a]));
  expect(await typed).toEqual(Buffer.from("ls\n"));

  const shown = heard(user, 4);
  agent.send(Buffer.from([0xff, 0x00, 0x1b, 0x5b]));
  expect(await shown).toEqual(Buffer.from([0xff, 0x00, 0x1b, 0x5b]));

  const resize = JSON.stringify({ type: "resize", cols: 100, rows: 30 });
  const resized = once(agent, "message");
  user.send(resize);
  const [data, isBinary] = (await resized) as [Buffer, boolean];
  expect([data.toString(), isBinary]).toEqual([resize, false]);

  const end = closed(user);
  const exited = once(user, "message");
  agent.send(JSON.stringify({ type: "exit", code: 0 }));
  agent.close(1000, "exited");
  expect(String((await exited)[0])).toBe('{"type":"exit","code":0}');
  expect(await end).toEqual([1000, "exited"]);
});

it("ends the daemon's end with the user's", async () => {
  const { dial, ends } = daemonDials();
  up = await listen({ sessions: withDaemon(dial) });
  const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
  await once(user, "open");
  const end = closed(ends[0]!);
  user.close();
  expect((await end)[0]).toBe(1000);
});

it("ends the daemon's end when the user is cut off", async () => {
  const { dial, ends } = daemonDials();
  up = await listen({ sessions: withDaemon(dial) });
  const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
  await once(user, "open");
  const end = closed(ends[0]!);
  user.terminate();
  expect(await end).toEqual([1001, "the other end went away"]);
});

it("keeps what the daemon says before the user's end is there", async () => {
  const dial: Dial = async (url) => {
    const ws = new WebSocket(url, { headers: { authorization: `Bearer ${AGENT_TOKEN}` } });
    await once(ws, "open");
    for (let i = 0; i < 100; i++) ws.send(Buffer.from(`line ${i}\n`));
    await new Promise((resolve) => setTimeout(resolve, 100));
  };
  up = await listen({ sessions: withDaemon(dial) });
  const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
  const expected = Array.from({ length: 100 }, (_, i) => `line ${i}\n`).join("");
  expect((await heard(user, expected.length)).toString()).toBe(expected);
});

it("does not read a fast end faster than the slow one reads", async () => {
  const { dial, ends } = daemonDials();
  up = await listen({ sessions: withDaemon(dial) });
  const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
  await once(user, "open");
  const agent = ends[0]!;
  user.pause();
  const chunk = Buffer.alloc(256 * 1024, 7);
  const total = 400;
  let left = 0;
  for (let i = 0; i < total; i++) agent.send(chunk, () => left++);
  let before = -1;
  while (left !== before) {
    before = left;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  // 100 MB were offered: what has left the daemon fits into sockets' buffers and the relay's own megabyte.
  expect(left).toBeLessThan(total);
  const all = heard(user, chunk.length * total);
  user.resume();
  expect((await all).equals(Buffer.alloc(chunk.length * total, 7))).toBe(true);
});

describe("refuses", () => {
  it("a text frame that the protocol does not know, from either end", async () => {
    for (const from of ["user", "agent"] as const) {
      const { dial, ends } = daemonDials();
      up = await listen({ sessions: withDaemon(dial) });
      const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
      await once(user, "open");
      const both = Promise.all([closed(user), closed(ends[0]!)]);
      (from === "user" ? user : ends[0]!).send('{"type":"exploit"}');
      expect((await both).map(([code]) => code)).toEqual([1008, 1008]);
      await up.close();
    }
  });

  it("a user without the administrator's token, before any daemon is asked", async () => {
    const calls: Calls = [];
    up = await listen({ sessions: withDaemon(async () => {}, calls) });
    expect(await refused(up.connect("/api/sandboxes/fix/terminal", AGENT_TOKEN))).toEqual({
      status: 401,
      code: "unauthorized",
    });
    expect(calls).toEqual([]);
  });

  it.each([
    ["?cols=0", 400, "invalid_request"],
    ["?what=root", 400, "invalid_request"],
  ])("a query that makes no sense: %s", async (query, status, code) => {
    up = await listen();
    expect(await refused(up.connect(`/api/sandboxes/fix/terminal${query}`, TOKEN))).toEqual({ status, code });
  });

  it("a session that is not there, and passes on why no terminal opened", async () => {
    const sessions = withDaemon(() => Promise.reject(new HangarError("wrong_state", "it is suspended")));
    up = await listen({ sessions });
    expect((await refused(up.connect("/api/sandboxes/nope/terminal", TOKEN))).code).toBe("session_not_found");
    expect(await refused(up.connect("/api/sandboxes/fix/terminal", TOKEN))).toEqual({
      status: 409,
      code: "wrong_state",
    });
  });

  it("a daemon that nobody called, one of another session, and a second use of an id", async () => {
    let url = "";
    const other = { ...AGENT, session: "ses-ffffffff", sandbox: "sbx-ffffffff-g1" };
    const agents = standInAgents([], { authenticate: async (token) => (token === AGENT_TOKEN ? AGENT : other) });
    const answers: unknown[] = [];
    const dialAs = (token: string, to: string): WebSocket =>
      new WebSocket(to, { headers: { authorization: `Bearer ${token}` } });
    const sessions = withDaemon(async (asked) => {
      url = asked;
      answers.push(await refused(dialAs("another-token", asked)));
      await once(dialAs(AGENT_TOKEN, asked), "open");
      answers.push(await refused(dialAs(AGENT_TOKEN, asked)));
    });
    up = await listen({ sessions, agents });
    const user = up.connect(`/api/sandboxes/${AGENT.sandbox}/terminal`, TOKEN);
    await once(user, "open");
    expect(url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/agent\/terminals\/[0-9a-f]{64}$/);
    answers.push(
      await refused(
        dialAs(
          AGENT_TOKEN,
          url.replace(/.$/, (c) => (c === "0" ? "1" : "0")),
        ),
      ),
    );
    expect(answers).toEqual(Array.from({ length: 3 }, () => ({ status: 404, code: "not_found" })));
  });
});

it("counts keystrokes as use, not every one of them", async () => {
  const calls: Calls = [];
  const { dial, ends } = daemonDials();
  up = await listen({ sessions: withDaemon(dial, calls) });
  const user = up.connect("/api/sandboxes/fix/terminal", TOKEN);
  await once(user, "open");
  const all = heard(ends[0]!, 50);
  for (let i = 0; i < 50; i++) user.send(Buffer.from("x"));
  await all;
  expect(calls.filter(([name]) => name === "touch")).toEqual([["touch", "fix"]]);
});
