/**
 * Hides secrets in what sandboxes say, before it is stored, shown or logged. Sandboxes hide what they were given; this looks
 * again, with the values that are set now, and those that were set when this process looked before: a sandbox that still
 * runs has been given them.
 */
import { redactor, secretRefs } from "@hangar/shared";
import type { Redact, Redactor } from "@hangar/shared";
import type { EnvironmentRepository, SecretRepository, Vault } from "./ports.ts";
import type { SessionRecord } from "./record.ts";
import { findSecret } from "./secret-values.ts";

/** By their shapes alone. */
export const hideCredentials: Redact = redactor([]);

export interface Redaction {
  /** For what a session's sandbox says. `fresh` is false for output, which comes often: values may be a second old. */
  for(record: Pick<SessionRecord, "owner" | "environment">, fresh?: boolean): Promise<Redactor>;
  /** A value that is no secret of the environment and was given to a session's sandbox. */
  learn(record: Pick<SessionRecord, "owner" | "environment">, value: string): void;
  /** For log lines: every value that this process has read lately, and all shapes of credentials. */
  readonly all: Redactor;
}

export interface RedactionDeps {
  readonly environments: Pick<EnvironmentRepository, "get">;
  readonly secrets: Pick<SecretRepository, "get">;
  readonly vault: Pick<Vault, "open">;
}

interface Known {
  /** By name, sealed as it was read. */
  readonly sealed: Map<string, Uint8Array>;
  readonly values: Set<string>;
  redact: Redactor;
  lookedAt: number;
}

const FRESH_MS = 1000;
/** Environments whose values are kept in memory. */
const MOST = 200;
/** Values of one environment, older ones included. */
const MOST_VALUES = 500;

export function makeRedaction(deps: RedactionDeps): Redaction {
  const known = new Map<string, Known>();
  let all: Redactor | null = null;

  const entryOf = (owner: string, name: string): Known => {
    const key = `${owner}/${name}`;
    const entry = known.get(key) ?? { sealed: new Map(), values: new Set(), redact: redactor([]), lookedAt: 0 };
    known.delete(key);
    known.set(key, entry);
    if (known.size > MOST) known.delete(known.keys().next().value ?? "");
    return entry;
  };
  const look = async (owner: string, name: string): Promise<Redactor> => {
    const entry = entryOf(owner, name);
    if (await readSecrets(deps, entry, owner, name)) {
      entry.redact = redactor(entry.values);
      all = null;
    }
    entry.lookedAt = performance.now();
    return entry.redact;
  };

  return {
    learn({ owner, environment }, value) {
      const entry = entryOf(owner, environment);
      if (entry.values.has(value)) return;
      add(entry, value);
      entry.redact = redactor(entry.values);
      all = null;
    },
    async for({ owner, environment }, fresh = true) {
      const entry = known.get(`${owner}/${environment}`);
      if (!fresh && entry && performance.now() - entry.lookedAt < FRESH_MS) return entry.redact;
      return look(owner, environment);
    },
    get all() {
      all ??= redactor(known.values().flatMap(({ values }) => values));
      return all;
    },
  };
}

/** True: there is a value that was not known before. */
async function readSecrets(deps: RedactionDeps, entry: Known, owner: string, environment: string): Promise<boolean> {
  let isNew = false;
  for (const { name: secret } of secretRefs((await deps.environments.get(owner, environment))?.secrets ?? [])) {
    const sealed = (await findSecret(deps.secrets, owner, environment, secret))?.sealed;
    const before = entry.sealed.get(secret);
    if (!sealed || (before && Buffer.compare(before, sealed) === 0)) continue;
    add(entry, new TextDecoder().decode(await deps.vault.open(sealed)));
    entry.sealed.set(secret, sealed);
    isNew = true;
  }
  return isNew;
}

function add({ values }: Known, value: string): void {
  values.add(value);
  for (const oldest of values) {
    if (values.size <= MOST_VALUES) break;
    values.delete(oldest);
  }
}
