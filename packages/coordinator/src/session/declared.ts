/** Harnesses that users declare: in the session's environment, or for the whole server. */
import { FORKING_HARNESSES } from "@hangar/shared";
import type { Environment, HarnessDefinition } from "@hangar/shared";
import type { Settings } from "./ports.ts";

/** The environment's first: its word on a name is the one that counts. */
export function declaredFor(
  environment: Pick<Environment, "harnesses">,
  settings: Pick<Settings, "harnesses">,
): HarnessDefinition[] {
  // An environment that an older version kept has none.
  const own = environment.harnesses ?? [];
  const names = new Set(own.map(({ name }) => name));
  return [...own, ...(settings.harnesses ?? []).filter(({ name }) => !names.has(name))];
}

/** Whether it can go on with a copy of a conversation. */
export const canFork = (harness: string, declared: readonly HarnessDefinition[]): boolean =>
  FORKING_HARNESSES.includes(harness) || declared.some(({ name, fork }) => name === harness && fork !== undefined);
