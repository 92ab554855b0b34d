import { HangarError, type SessionEvent } from "@hangar/shared";
import { afterEach, expect, it } from "vitest";
import { aborted, listen, type Listening, NOW, standInSessions, TOKEN } from "./support.ts";

let up: Listening | undefined;
afterEach(() => up?.close());

const event = (n: number, text: string): SessionEvent => ({ id: `${n}-0`, at: NOW, event: { type: "notice", text } });

const ask = (
  at: Listening,
  path: string,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Response> =>
  fetch(at.url + path, { headers: { authorization: `Bearer ${TOKEN}`, ...headers }, ...(signal ? { signal } : {}) });

it("streams events with their ids, then ends with the session", async () => {
  const asked: unknown[] = [];
  const sessions = standInSessions([], {
    async *events(_, ref, from) {
      asked.push([ref, from]);
      yield event(1, "two\nlines");
      yield event(2, "b");
    },
  });
  up = await listen({ sessions });
  const answer = await ask(up, "/api/sessions/fix/events?from=0");
  expect(answer.headers.get("content-type")).toBe("text/event-stream");
  const blocks = (await answer.text()).split("\n\n").filter((block) => block.startsWith("id:"));
  expect(blocks).toEqual([
    `id: 1-0\ndata: ${JSON.stringify(event(1, "two\nlines"))}`,
    `id: 2-0\ndata: ${JSON.stringify(event(2, "b"))}`,
  ]);
  // The stream follows the session, not whatever takes its name later.
  expect(asked).toEqual([["ses-0a1b2c3d", "0"]]);
});

it.each([
  ["what comes after now", "", {}, "$"],
  ["the start", "?from=0", {}, "0"],
  ["after an event", "?from=17-3", {}, "17-3"],
  ["a time", "?from=1796101753498", {}, "1796101753497-9999999999"],
  ["after the last one that a reader saw, which wins", "?from=0", { "last-event-id": "18-1" }, "18-1"],
])("starts at %s", async (_, query, headers, from) => {
  let asked = "";
  const sessions = standInSessions([], {
    // oxlint-disable-next-line require-yield -- only where it starts is asked
    async *events(_owner, _ref, start) {
      asked = start;
    },
  });
  up = await listen({ sessions });
  await (await ask(up, `/api/sessions/fix/events${query}`, headers)).text();
  expect(asked).toBe(from);
});

it("answers at once, before there is any event, and stops following when the reader goes", async () => {
  let stopped: () => void = () => {};
  const done = new Promise<void>((resolve) => (stopped = resolve));
  const sessions = standInSessions([], {
    // oxlint-disable-next-line require-yield -- nothing happens in this session
    async *events(_owner, _ref, _from, signal) {
      await aborted(signal);
      stopped();
    },
  });
  up = await listen({ sessions });
  const reader = new AbortController();
  const answer = await ask(up, "/api/sessions/fix/events", {}, reader.signal);
  expect(answer.status).toBe(200);
  reader.abort();
  await done;
});

it("holds no more than a little for a reader that does not read", async () => {
  let made = 0;
  const big = "x".repeat(100_000);
  const sessions = standInSessions([], {
    async *events(_owner, _ref, _from, signal) {
      while (!signal.aborted && made < 2000) {
        made++;
        yield event(made, big);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  });
  up = await listen({ sessions });
  const reader = new AbortController();
  await ask(up, "/api/sessions/fix/events?from=0", {}, reader.signal);
  let before = -1;
  // Until the stream has filled what lies between: sockets' buffers, no more.
  while (made !== before) {
    before = made;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  expect(made).toBeLessThan(2000);
  reader.abort();
});

it("is a problem, not an empty stream, for a session that is not there", async () => {
  up = await listen();
  const answer = await ask(up, "/api/sessions/nope/events");
  expect(answer.status).toBe(404);
  expect(await answer.json()).toMatchObject({ code: "session_not_found" });
});

it("breaks off when its source fails, so that the reader comes back with its last id", async () => {
  const sessions = standInSessions([], {
    async *events() {
      yield event(1, "a");
      throw new HangarError("redis_unavailable");
    },
  });
  up = await listen({ sessions });
  const text = await (await ask(up, "/api/sessions/fix/events?from=0")).text();
  expect(text.trimEnd().split("\n\n").slice(1)).toEqual([
    `id: 1-0\ndata: ${JSON.stringify(event(1, "a"))}`,
    ": redis_unavailable",
  ]);
  expect(up.logged()).toContain("an event stream was broken off");
});

it("ends when the coordinator stops", async () => {
  const stop = new AbortController();
  const sessions = standInSessions([], {
    async *events(_owner, _ref, _from, signal) {
      yield event(1, "a");
      await aborted(signal);
    },
  });
  up = await listen({ sessions, stopping: stop.signal });
  const answer = await ask(up, "/api/sessions/fix/events?from=0");
  stop.abort();
  expect(await answer.text()).toContain("id: 1-0");
});

it("tells an exec whose caller went away", async () => {
  let given: () => void = () => {};
  let gone: () => void = () => {};
  const asked = new Promise<void>((resolve) => (given = resolve));
  const told = new Promise<void>((resolve) => (gone = resolve));
  const sessions = standInSessions([], {
    exec: async (_owner, _ref, _input, signal) => {
      given();
      await aborted(signal!);
      gone();
      throw new HangarError("timeout");
    },
  });
  up = await listen({ sessions });
  const caller = new AbortController();
  const answer = fetch(`${up.url}/api/sandboxes/fix/exec`, {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}` },
    body: '{"argv":["sleep","1000"]}',
    signal: caller.signal,
  });
  answer.catch(() => {});
  await asked;
  caller.abort();
  await told;
});
