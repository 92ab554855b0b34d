/** Secrets by name, for all sessions or those of one environment. A value goes in, sealed, and comes out only into a sandbox. */
import { HangarError, type SecretInfo, type SecretPut, VariableName } from "@hangar/shared";
import type { EnvironmentRepository, SecretKey, SecretRepository, Vault } from "../session/ports.ts";

export interface Secrets {
  list(owner: string): Promise<SecretInfo[]>;
  /** `environment_not_found` for one of an environment that is not there. */
  put(owner: string, key: SecretKey, secret: SecretPut): Promise<SecretInfo>;
  /** `secret_not_found`. */
  remove(owner: string, key: SecretKey): Promise<void>;
}

export interface SecretDeps {
  readonly repository: SecretRepository;
  readonly environments: Pick<EnvironmentRepository, "get">;
  readonly vault: Pick<Vault, "seal">;
}

export const makeSecrets = (deps: SecretDeps): Secrets => ({
  list: (owner) => deps.repository.list(owner),
  async put(owner, key, { value, file, mode }) {
    const { environment } = key;
    if (value.includes("\0") && file === undefined)
      throw new HangarError("invalid_request", "value: an environment variable cannot hold NUL; a file can, with --as");
    if (mode !== undefined && file === undefined)
      throw new HangarError("invalid_request", "mode: only a file has one; say where it is to be");
    const name = parseName(key.name);
    if (environment !== null && !(await deps.environments.get(owner, environment))) {
      throw new HangarError(
        "environment_not_found",
        `There is no environment "${environment.slice(0, 100)}": apply it first, with \`hangar env apply -f FILE\``,
      );
    }
    const sealed = await deps.vault.seal(new TextEncoder().encode(value));
    return deps.repository.put(owner, { name, environment }, { sealed, file: file ?? null, mode: mode ?? null });
  },
  remove: (owner, { name, environment }) => deps.repository.remove(owner, { name: parseName(name), environment }),
});

function parseName(name: string): string {
  const parsed = VariableName.safeParse(name);
  if (parsed.success) return parsed.data;
  throw new HangarError("invalid_request", `name: ${parsed.error.issues[0]?.message ?? "not a variable's name"}`);
}
