/** The adapters against a real redis-server: what their scripts promise. */
import type { AgentCommand } from "@hangar/shared";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { connectRedis } from "../../src/redis/connect.ts";
import type { RedisAdapters } from "../../src/redis/connect.ts";
import { EMPTY_RECORD } from "../../src/session/record.ts";
import type { SessionRecord } from "../../src/session/record.ts";
import { startRedis } from "./server.ts";
import type { TestRedis } from "./server.ts";

let server: TestRedis;
let one: RedisAdapters;
let two: RedisAdapters;
let now: number;
let count = 0;
beforeAll(async () => {
  server = await startRedis();
  const clock = () => now;
  [one, two] = await Promise.all([
    connectRedis({ url: server.url, clock, keepEvents: 100 }),
    connectRedis({ url: server.url, clock, keepEvents: 100 }),
  ]);
});
beforeEach(() => {
  now = Date.parse("2026-12-01T10:00:00Z");
  count++;
});
afterAll(async () => {
  await Promise.all([one.close(), two.close()]);
  await server.stop();
});

const sessionId = () => `ses-${count.toString(16).padStart(8, "0")}`;
const sandboxId = () => `sbx-${count.toString(16).padStart(8, "0")}-g1`;

const make = (): Promise<SessionRecord> =>
  one.sessions.create(
    {
      ...EMPTY_RECORD,
      id: sessionId(),
      name: `fix-${count}`,
      owner: "admin",
      environment: "env",
      state: "IDLE",
      generation: 1,
      nonce: "a".repeat(32),
    } as unknown as SessionRecord,
    {},
  );

it("a record that an older version wrote has empty fields for what it did not know", async () => {
  const { id, name } = await make();
  const redis = new Redis(server.url);
  await redis.hdel(`hangar:session:${id}`, "forks_waiting", "forked_from");
  redis.disconnect();
  expect(await two.sessions.get(id)).toMatchObject({ name, forks_waiting: [], forked_from: null });
});

describe("a change", () => {
  it("is refused, whole, by each of its guards", async () => {
    const { id } = await make();
    const change = { set: { title: "changed" }, events: [{ type: "kept", idle_minutes: 1 }] } as const;
    const refused = await Promise.all([
      one.sessions.change("ses-ffffffff", {}, change),
      one.sessions.change(id, { from: ["ACTIVE", "STARTING"] }, change),
      one.sessions.change(id, { generation: 2 }, change),
      one.sessions.change(id, { nonce: "b".repeat(32) }, change),
      one.sessions.change(id, { rev: 77 }, change),
    ]);
    const reasons = refused.map((result) => (result.ok ? "ok" : result.why));
    expect(reasons).toEqual(["missing", "state", "generation", "nonce", "rev"]);
    expect((await one.sessions.get(id))?.title).toBeUndefined();
    expect(await one.events.read(id, "0", 10)).toEqual([]);
  });

  it("of one revision is made once, by however many", async () => {
    const record = await make();
    const results = await Promise.all(
      [one, two, one, two, one, two].map(({ sessions }, i) =>
        sessions.change(record.id, { rev: record.rev }, { set: { title: String(i) }, enqueue: [`trn-${i}`] }),
      ),
    );
    expect(results.filter(({ ok }) => ok)).toHaveLength(1);
    expect(await one.sessions.queue(record.id)).toHaveLength(1);
  });

  it("keeps texts as they are: no value is touched on the way", async () => {
    const record = await make();
    const title = 'é\u0000"\\ 😀 [] {} null 1e400 \ud800';
    const notes: string[] = [];
    const kept_objects = ["[]", "{}"];
    await one.sessions.change(record.id, {}, { set: { title, notes, kept_objects, used_at: 1764579600123 } });
    const after = await one.sessions.get(record.id);
    expect(after).toMatchObject({ notes, kept_objects, used_at: 1764579600123 });
    expect(after?.title).toBe(title);
  });
});

describe("commands", () => {
  const thaw: AgentCommand = { kind: "thaw" };
  const follow = async (redis: RedisAdapters, most: number): Promise<string[]> => {
    const ids: string[] = [];
    const done = new AbortController();
    for await (const { id } of redis.commands.follow(sandboxId(), done.signal)) {
      ids.push(id);
      if (ids.length === most) done.abort();
    }
    return ids;
  };

  it("wait until they have a result, are given again until then, and once per id", async () => {
    await one.commands.push(sandboxId(), "cmd-a", thaw);
    await two.commands.push(sandboxId(), "cmd-a", thaw);
    await one.commands.push(sandboxId(), "cmd-b", thaw);
    expect(await follow(one, 2)).toEqual(["cmd-a", "cmd-b"]);
    expect(await follow(two, 2)).toEqual(["cmd-a", "cmd-b"]);
    await two.commands.settle(sandboxId(), "cmd-a", { ok: true, value: 1 });
    await one.commands.push(sandboxId(), "cmd-a", thaw);
    expect(await follow(one, 1)).toEqual(["cmd-b"]);
  });

  it("keep their first result; what was never given has none", async () => {
    await one.commands.push(sandboxId(), "cmd-a", thaw);
    const waiting = two.commands.wait(sandboxId(), "cmd-a", new AbortController().signal);
    await one.commands.settle(sandboxId(), "cmd-a", { ok: true, value: "first" });
    await one.commands.settle(sandboxId(), "cmd-a", { ok: true, value: "second" });
    expect(await waiting).toEqual({ ok: true, value: "first" });
    expect(await two.commands.result(sandboxId(), "cmd-a")).toEqual({ ok: true, value: "first" });
    await one.commands.settle(sandboxId(), "cmd-stray", { ok: true, value: "x" });
    expect(await one.commands.result(sandboxId(), "cmd-stray")).toBeNull();
  });

  it("that were taken back reach nobody", async () => {
    await one.commands.push(sandboxId(), "cmd-a", thaw);
    await one.commands.withdraw(sandboxId(), "cmd-a");
    await one.commands.push(sandboxId(), "cmd-b", thaw);
    expect(await follow(two, 1)).toEqual(["cmd-b"]);
    expect(await one.commands.result(sandboxId(), "cmd-a")).toBeNull();
  });

  it("stop being waited for when the signal fires", async () => {
    const done = new AbortController();
    const waiting = one.commands.wait(sandboxId(), "cmd-a", done.signal);
    done.abort(new Error("nobody waits"));
    await expect(waiting).rejects.toThrow("nobody waits");
  });
});

describe("due work", () => {
  it("is claimed by one, and again when the claim ends", async () => {
    await one.due.nudge(sessionId(), now);
    const claims = await Promise.all([one, two, one].map(({ due }) => due.claim(now, now + 1000, 10)));
    expect(claims.flat()).toEqual([sessionId()]);
    expect(await two.due.claim(now + 1000, now + 2000, 10)).toEqual([sessionId()]);
    await two.due.settle(sessionId(), now + 2000, null);
    expect(await one.due.next()).toBeNull();
  });

  it("is not settled over a nudge that came meanwhile", async () => {
    await one.due.nudge(sessionId(), now);
    await one.due.claim(now, now + 1000, 10);
    await two.due.nudge(sessionId(), now);
    await one.due.settle(sessionId(), now + 1000, now + 60_000);
    expect(await two.due.claim(now, now + 1000, 10)).toEqual([sessionId()]);
    await two.due.settle(sessionId(), now + 1000, null);
  });

  it("is never put off by a nudge", async () => {
    await one.due.nudge(sessionId(), now);
    await one.due.nudge(sessionId(), now + 60_000);
    expect(await one.due.next()).toBe(now);
    await one.due.claim(now, now + 1, 10);
    await one.due.settle(sessionId(), now + 1, null);
  });
});

describe("events", () => {
  it("are capped, and a reader from before the cap goes on with what is there", async () => {
    const { id } = await make();
    const kept = (n: number) => ({ type: "kept", idle_minutes: n }) as const;
    await one.sessions.change(id, {}, { events: [kept(0)] });
    const [first] = await one.events.read(id, "0", 1);
    for (let i = 1; i <= 1000; i++) await one.sessions.change(id, {}, { events: [kept(i)], quiet: true });
    const rest = await two.events.read(id, first!.id, 10_000);
    expect(rest.length).toBeGreaterThanOrEqual(100);
    expect(rest.length).toBeLessThan(500);
    expect(rest.at(-1)!.event).toEqual(kept(1000));
  });

  it("are read from a place that is one", async () => {
    const { id } = await make();
    await expect(one.events.read(id, "x y", 1)).rejects.toMatchObject({ code: "invalid_request" });
  });
});
