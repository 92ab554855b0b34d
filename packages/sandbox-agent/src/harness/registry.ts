/** The harnesses that a sandbox knows, by name: those with an adapter of their own, and those that are declared. */
import { HangarError } from "@hangar/shared";
import type { HarnessDefinition } from "@hangar/shared";
import { antigravity } from "./antigravity.ts";
import { claude } from "./claude.ts";
import { codex } from "./codex.ts";
import { declaredHarness } from "./declared.ts";
import type { Harness } from "./harness.ts";
import { pi } from "./pi.ts";
import { script } from "./script.ts";

const BUILT_IN: readonly Harness[] = [claude, codex, pi, antigravity, script];

/** Throws `invalid_request` for a name that nothing has. */
export type Harnesses = (name: string) => Harness;

export function makeHarnesses(definitions: readonly HarnessDefinition[]): Harnesses {
  const known = [...BUILT_IN, ...definitions.map(declaredHarness)];
  return (name) => {
    const harness = known.find((each) => each.name === name);
    if (harness) return harness;
    throw new HangarError(
      "invalid_request",
      `There is no harness "${name}": use one of ${known.map((each) => each.name).join(", ")}, or declare it in the environment's harnesses (docs/harnesses.md)`,
    );
  };
}
