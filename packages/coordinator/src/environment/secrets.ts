/** Secrets by name. A value goes in, sealed by the vault, and comes out only into a sandbox that starts. */
import { HangarError, type SecretInfo, VariableName } from "@hangar/shared";
import type { SecretRepository, Vault } from "../session/ports.ts";

export interface Secrets {
  list(owner: string): Promise<SecretInfo[]>;
  put(owner: string, name: string, value: string): Promise<SecretInfo>;
  /** `secret_not_found`. */
  remove(owner: string, name: string): Promise<void>;
}

export interface SecretDeps {
  readonly repository: SecretRepository;
  readonly vault: Pick<Vault, "seal">;
}

export const makeSecrets = (deps: SecretDeps): Secrets => ({
  list: (owner) => deps.repository.list(owner),
  async put(owner, name, value) {
    if (value.includes("\0"))
      throw new HangarError("invalid_request", "value: an environment variable cannot hold NUL");
    return deps.repository.put(owner, parseName(name), await deps.vault.seal(new TextEncoder().encode(value)));
  },
  remove: (owner, name) => deps.repository.remove(owner, parseName(name)),
});

function parseName(name: string): string {
  const parsed = VariableName.safeParse(name);
  if (parsed.success) return parsed.data;
  throw new HangarError("invalid_request", `name: ${parsed.error.issues[0]?.message ?? "not a variable's name"}`);
}
