/** Environments and secrets, per owner: one hash each. */
import { HangarError } from "@hangar/shared";
import type { EnvironmentRecord, SecretInfo } from "@hangar/shared";
import type { Clock, EnvironmentRepository, SecretKey, SecretRepository } from "../session/ports.ts";
import type { RedisClient } from "./client.ts";
import { environmentSessionsKey, environmentsKey, secretsKey } from "./keys.ts";

const NO_WARM_POOL = { warm_pool: 0, warm_pool_hours: null };
type Stored = Omit<EnvironmentRecord, "sessions">;

export function makeEnvironmentRepository(client: RedisClient, clock: Clock): EnvironmentRepository {
  const counted = async (owner: string, text: string): Promise<EnvironmentRecord> => {
    const stored = JSON.parse(text) as Stored;
    const sessions = await client.call((redis) => redis.scard(environmentSessionsKey(owner, stored.name)));
    // One that was stored before there were warm pools has none.
    return { ...NO_WARM_POOL, ...stored, sessions };
  };
  const get = async (owner: string, name: string): Promise<EnvironmentRecord | null> => {
    const text = await client.call((redis) => redis.hget(environmentsKey(owner), name));
    return text === null ? null : counted(owner, text);
  };

  return {
    get,
    async list(owner) {
      const texts = await client.call((redis) => redis.hvals(environmentsKey(owner)));
      const records = await Promise.all(texts.map((text) => counted(owner, text)));
      return records.sort((a, b) => (a.name < b.name ? -1 : 1));
    },
    async put(owner, environment, how) {
      const now = new Date(clock()).toISOString();
      const before = await get(owner, environment.name);
      const stored: Stored = { ...environment, created_at: before?.created_at ?? now, updated_at: now };
      const key = environmentsKey(owner);
      const text = JSON.stringify(stored);
      const made =
        how === "absent"
          ? (await client.call((redis) => redis.hsetnx(key, environment.name, text))) === 1
          : (await client.call((redis) => redis.hset(key, environment.name, text))) >= 0;
      if (!made) throw new HangarError("name_taken", `An environment named "${environment.name}" exists`);
      return counted(owner, text);
    },
    async remove(owner, name) {
      const users = Number(
        await client.script(
          "removeEnvironment",
          [environmentsKey(owner), environmentSessionsKey(owner, name), secretsKey(owner)],
          [name],
        ),
      );
      if (users < 0) throw new HangarError("environment_not_found", `There is no environment named "${name}"`);
      if (users === 0) return;
      const whose = users === 1 ? "1 session uses" : `${users} sessions use`;
      throw new HangarError("environment_in_use", `${whose} the environment "${name}": archive or remove them first`);
    },
  };
}

export function makeSecretRepository(client: RedisClient, clock: Clock): SecretRepository {
  return {
    async put(owner, key, { sealed, file, mode }) {
      const kept: KeptSecret = {
        updated_at: new Date(clock()).toISOString(),
        sealed: Buffer.from(sealed).toString("base64"),
        ...(file !== null && { file }),
        ...(mode !== null && { mode }),
      };
      await client.call((redis) => redis.hset(secretsKey(owner), fieldOf(key), JSON.stringify(kept)));
      return infoOf(fieldOf(key), kept);
    },
    async get(owner, key) {
      const text = await client.call((redis) => redis.hget(secretsKey(owner), fieldOf(key)));
      if (text === null) return null;
      const { sealed, file, mode } = JSON.parse(text) as KeptSecret;
      return { sealed: new Uint8Array(Buffer.from(sealed, "base64")), file: file ?? null, mode: mode ?? null };
    },
    async list(owner) {
      const all = await client.call((redis) => redis.hgetall(secretsKey(owner)));
      return Object.entries(all)
        .map(([field, text]) => infoOf(field, JSON.parse(text) as KeptSecret))
        .sort((a, b) => (fieldOf(a) < fieldOf(b) ? -1 : 1));
    },
    async remove(owner, key) {
      const removed = await client.call((redis) => redis.hdel(secretsKey(owner), fieldOf(key)));
      if (removed > 0) return;
      const where = key.environment === null ? "" : ` of the environment "${key.environment}"`;
      throw new HangarError("secret_not_found", `There is no secret named ${key.name}${where}`);
    },
  };
}

interface KeptSecret {
  readonly updated_at: string;
  /** Base64. */
  readonly sealed: string;
  readonly file?: string;
  readonly mode?: string;
}

/** `NAME`, or `environment/NAME`; neither holds a slash. */
const fieldOf = ({ name, environment }: SecretKey): string => (environment === null ? name : `${environment}/${name}`);

function infoOf(field: string, { file, mode, updated_at }: KeptSecret): SecretInfo {
  const slash = field.indexOf("/");
  const environment = slash === -1 ? null : field.slice(0, slash);
  return { name: field.slice(slash + 1), environment, file: file ?? null, mode: mode ?? null, updated_at };
}
