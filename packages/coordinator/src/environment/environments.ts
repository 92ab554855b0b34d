/** Environments by name: what users apply, list and remove. */
import { Environment, type EnvironmentRecord, HangarError, type WarmPoolStatus } from "@hangar/shared";
import type { EnvironmentRepository } from "../session/ports.ts";

export interface Environments {
  list(owner: string): Promise<EnvironmentRecord[]>;
  /** `environment_not_found`. */
  get(owner: string, name: string): Promise<EnvironmentRecord>;
  /** Makes or replaces it. `document` is as a person wrote it; a ZodError names the field that is wrong. */
  put(owner: string, name: string, document: unknown): Promise<EnvironmentRecord>;
  /** How its warm pool is. `environment_not_found`. */
  pool(owner: string, name: string): Promise<WarmPoolStatus>;
  /** `environment_not_found`, `environment_in_use`. */
  remove(owner: string, name: string): Promise<void>;
}

export interface EnvironmentDeps {
  readonly repository: EnvironmentRepository;
  /** What an environment that does not say gets. */
  /** Its warm pool is looked at: it was changed or removed. */
  readonly changed: (owner: string, name: string) => Promise<void>;
  readonly pool: (owner: string, environment: EnvironmentRecord) => Promise<WarmPoolStatus>;
  readonly defaults: { readonly idle_minutes: number; readonly ttl_minutes: number };
}

export const makeEnvironments = (deps: EnvironmentDeps): Environments => ({
  list: (owner) => deps.repository.list(owner),
  get: (owner, name) => get(deps, owner, name),
  async put(owner, name, document) {
    const record = await deps.repository.put(owner, parse(deps, name, document));
    await deps.changed(owner, name);
    return record;
  },
  pool: async (owner, name) => deps.pool(owner, await get(deps, owner, name)),
  async remove(owner, name) {
    await deps.repository.remove(owner, name);
    await deps.changed(owner, name);
  },
});

async function get(deps: EnvironmentDeps, owner: string, name: string): Promise<EnvironmentRecord> {
  const found = await deps.repository.get(owner, name);
  if (found) return found;
  throw new HangarError("environment_not_found", `There is no environment "${name}": see \`hangar env list\``);
}

function parse(deps: EnvironmentDeps, name: string, document: unknown): Environment {
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new HangarError("invalid_request", "the body: give an environment's fields as an object");
  }
  const { idle_minutes, ttl_minutes } = deps.defaults;
  const environment = Environment.parse({ name, idle_minutes, ttl_minutes, ...document });
  if (environment.name !== name) {
    throw new HangarError("invalid_request", `name: it is "${environment.name}" in the body and "${name}" in the path`);
  }
  return environment;
}
