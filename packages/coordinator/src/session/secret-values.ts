/** The secrets of an environment: which are asked for, and what they are now. */
import { HangarError, secretRefs } from "@hangar/shared";
import type { BootSpec, EnvironmentRecord } from "@hangar/shared";
import type { SecretRepository, StoredSecret, Vault } from "./ports.ts";

interface SecretDeps {
  readonly secrets: Pick<SecretRepository, "get">;
  readonly vault: Pick<Vault, "open">;
}

/** What the kernel takes for one variable, its name and end included, bytes. */
const LARGEST_VARIABLE = 131_072;

/** The environment's own goes before the one for all. */
export async function findSecret(
  secrets: Pick<SecretRepository, "get">,
  owner: string,
  environment: string,
  name: string,
): Promise<StoredSecret | null> {
  return (await secrets.get(owner, { name, environment })) ?? (await secrets.get(owner, { name, environment: null }));
}

/**
 * Read and unsealed at every start; their values are kept nowhere else. `missing_secret` names the one that is not set and
 * how to set it, `invalid_request` one that cannot be what it is to be.
 */
export async function secretsOf(
  deps: SecretDeps,
  owner: string,
  environment: EnvironmentRecord,
): Promise<Pick<BootSpec, "secrets" | "secret_files">> {
  const variables: Record<string, string> = {};
  const files = new Map<string, BootSpec["secret_files"][number]>();
  for (const { name, ...ref } of secretRefs(environment.secrets)) {
    const stored = await findSecret(deps.secrets, owner, environment.name, name);
    if (!stored) throw missing(name, environment.name);
    const value = new TextDecoder("utf-8", { ignoreBOM: true }).decode(await deps.vault.open(stored.sealed));
    const path = ref.file ?? stored.file;
    if (path === null) {
      checkVariable(name, value);
      variables[name] = value;
      continue;
    }
    const other = files.get(path);
    if (other) throw invalid(`The secrets ${other.name} and ${name} are both to be the file ${path}: give one another`);
    files.set(path, { name, path, mode: ref.mode ?? stored.mode ?? "0600", value });
  }
  return { secrets: variables, secret_files: [...files.values()] };
}

function checkVariable(name: string, value: string): void {
  const size = new TextEncoder().encode(value).length;
  if (value.includes("\0")) throw invalid(`The secret ${name} holds NUL, which no variable can: ${asFile(name)}`);
  if (size + name.length + 2 <= LARGEST_VARIABLE) return;
  throw invalid(`The secret ${name} has ${size} bytes, more than a variable can hold: ${asFile(name)}`);
}

const asFile = (name: string): string => `make it a file with \`hangar secret set ${name} --file FILE --as ~/PATH\``;
const invalid = (line: string): HangarError => new HangarError("invalid_request", line);
const missing = (name: string, environment: string): HangarError =>
  new HangarError(
    "missing_secret",
    `The secret ${name}, which the environment "${environment}" names, is not set: \`hangar secret set ${name}\``,
  );
