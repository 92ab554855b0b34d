/** Sessions in Redis: one hash for the record, lists and hashes beside it for what grows; `change.lua` moves it all. */
import { HangarError } from "@hangar/shared";
import { EMPTY_RECORD } from "../session/record.ts";
import type { Change, ChangeResult, Clock, Guard, SessionRepository } from "../session/ports.ts";
import type { BeginRecord, CheckpointRecord, SessionRecord, TurnRecord } from "../session/record.ts";
import type { RedisClient } from "./client.ts";
import { allSessionsKey, dueKey, environmentSessionsKey, filledKey, namesKey, sessionKeys } from "./keys.ts";

export function makeSessionRepository(client: RedisClient, clock: Clock, keepEvents: number): SessionRepository {
  const get = async (id: string): Promise<SessionRecord | null> => {
    const hash = await client.call((redis) => redis.hgetall(sessionKeys(id).record));
    return Object.keys(hash).length === 0 ? null : decode(hash);
  };

  const run = async (record: Owned, guard: Guard & { create?: boolean }, change: Change): Promise<ChangeResult> => {
    const now = clock();
    const answer = (await client.script("change", scriptKeys(record), [
      JSON.stringify({
        ...(guard.create && { create: true, name: record.name }),
        ...(guard.from && { from: guard.from.map((state) => JSON.stringify(state)) }),
        ...(guard.generation !== undefined && { generation: JSON.stringify(guard.generation) }),
        ...(guard.nonce !== undefined && { nonce: JSON.stringify(guard.nonce) }),
        ...(guard.seq !== undefined && { seq: String(guard.seq) }),
        ...(guard.rev !== undefined && { rev: JSON.stringify(guard.rev) }),
        ...(change.idempotency && { key: change.idempotency.key }),
      }),
      JSON.stringify(encodeChange(change, now)),
      record.id,
      new Date(now).toISOString(),
      now,
      keepEvents,
    ])) as string[];
    return readAnswer(answer);
  };

  return {
    async create(record, change) {
      const result = await run(record, { create: true }, { ...change, set: { ...record, ...change.set } });
      if (result.ok) return result.record;
      throw new HangarError("name_taken", `A session named "${record.name}" exists: choose another name`);
    },
    get,
    async find(owner, ref) {
      const id = /^ses-[0-9a-f]{8}$/.test(ref) ? ref : await client.call((redis) => redis.hget(namesKey(owner), ref));
      const record = id === null ? null : await get(id);
      return record?.owner === owner ? record : null;
    },
    async list(owner) {
      const ids = await client.call((redis) => redis.hvals(namesKey(owner)));
      const records = await Promise.all(ids.map(get));
      return records
        .filter((record) => record !== null)
        .sort((a, b) => (a.last_active_at < b.last_active_at ? 1 : a.last_active_at > b.last_active_at ? -1 : 0));
    },
    ids: () => client.call((redis) => redis.smembers(allSessionsKey)),
    async change(id, guard, change) {
      const keys = await ownedKeys(client, id);
      return keys === null ? { ok: false, why: "missing" } : run(keys, guard, change);
    },
    async turns(id, newest) {
      const { turns, turnOrder } = sessionKeys(id);
      return ordered<TurnRecord>(client, turns, turnOrder, newest);
    },
    async turn(id, turn) {
      return parse(await client.call((redis) => redis.hget(sessionKeys(id).turns, turn))) as TurnRecord | null;
    },
    queue: (id) => client.call((redis) => redis.lrange(sessionKeys(id).queue, 0, -1)),
    async checkpoints(id) {
      const { checkpoints, checkpointOrder } = sessionKeys(id);
      return ordered<CheckpointRecord>(client, checkpoints, checkpointOrder);
    },
    async counts(id) {
      const keys = sessionKeys(id);
      const [turns, queued, checkpoints] = await client.call((redis) =>
        Promise.all([redis.hlen(keys.turns), redis.llen(keys.queue), redis.hlen(keys.checkpoints)]),
      );
      return { turns, queued, checkpoints };
    },
    async begin(id, checkpoint) {
      const text = await client.call((redis) => redis.hget(sessionKeys(id).begins, checkpoint));
      return parse(text) as BeginRecord | null;
    },
    async begins(id) {
      const values = await client.call((redis) => redis.hvals(sessionKeys(id).begins));
      return values.map((text) => JSON.parse(text) as BeginRecord);
    },
    async remove(id) {
      const record = await get(id);
      if (record) await client.script("removeSession", scriptKeys(record), [id, record.name]);
    },
    async isFilled() {
      return (await client.call((redis) => redis.exists(filledKey))) === 1;
    },
    async setFilled() {
      await client.call((redis) => redis.set(filledKey, "1"));
    },
  };
}

type Owned = Pick<SessionRecord, "id" | "owner" | "environment" | "name">;

/** What names the session's keys never changes once it is made, but must be read first. */
async function ownedKeys(client: RedisClient, id: string): Promise<Owned | null> {
  const [owner, environment, name] = await client.call((redis) =>
    redis.hmget(sessionKeys(id).record, "owner", "environment", "name"),
  );
  if (!owner || !environment || !name) return null;
  return { id, owner: JSON.parse(owner), environment: JSON.parse(environment), name: JSON.parse(name) };
}

const scriptKeys = ({ id, owner, environment }: Owned): string[] => {
  const keys = sessionKeys(id);
  return [
    keys.record,
    keys.turns,
    keys.turnOrder,
    keys.queue,
    keys.checkpoints,
    keys.checkpointOrder,
    keys.begins,
    keys.idempotency,
    keys.events,
    dueKey,
    namesKey(owner),
    allSessionsKey,
    environmentSessionsKey(owner, environment),
  ];
};

function encodeChange(change: Change, now: number): object {
  const set = change.quiet ? change.set : { ...change.set, updated_at: new Date(now).toISOString() };
  const { rev: _, ...fields } = { ...set } as Partial<SessionRecord>;
  return {
    set: Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, JSON.stringify(value)])),
    turns: (change.turns ?? []).map((turn) => [turn.id, JSON.stringify(turn)]),
    enqueue: change.enqueue ?? [],
    dequeue: change.dequeue ?? [],
    checkpoints: (change.checkpoints ?? []).map((checkpoint) => [checkpoint.id, JSON.stringify(checkpoint)]),
    drop: change.dropCheckpoints ?? [],
    events: (change.events ?? []).map((event) => JSON.stringify(event)),
    quiet: change.quiet ?? false,
    ...(change.begin && { begin: [change.begin.checkpoint, JSON.stringify(change.begin)] }),
    ...(change.endBegin && { end_begin: change.endBegin }),
    ...(change.idempotency && { key: [change.idempotency.key, change.idempotency.turn] }),
    ...(change.due !== undefined && { due: change.due === null ? "never" : String(change.due) }),
    ...(change.dueBy !== undefined && { due_by: String(change.dueBy) }),
  };
}

function readAnswer([why, ...rest]: string[]): ChangeResult {
  if (why === "ok") {
    const hash: Record<string, string> = {};
    for (let i = 0; i + 1 < rest.length; i += 2) hash[rest[i]!] = rest[i + 1]!;
    return { ok: true, record: decode(hash) };
  }
  const turn = rest[0];
  return { ok: false, why: why as Extract<ChangeResult, { ok: false }>["why"], ...(turn !== undefined && { turn }) };
}

/** `rev` is counted by Redis itself; everything else is the text that was written. What an older version did not know is empty. */
const decode = (hash: Record<string, string>): SessionRecord =>
  ({
    ...EMPTY_RECORD,
    ...Object.fromEntries(Object.entries(hash).map(([name, text]) => [name, JSON.parse(text) as unknown])),
  }) as unknown as SessionRecord;

async function ordered<T>(client: RedisClient, hash: string, order: string, newest?: number): Promise<T[]> {
  const ids = await client.call((redis) => redis.lrange(order, newest === undefined ? 0 : -newest, -1));
  if (ids.length === 0) return [];
  const values = await client.call((redis) => redis.hmget(hash, ...ids));
  return values.filter((text) => text !== null).map((text) => JSON.parse(text) as T);
}

const parse = (text: string | null): unknown => (text === null ? null : JSON.parse(text));
