/** The harnesses that Hangar knows, by name. */
import { HangarError } from "@hangar/shared";
import { antigravity } from "./antigravity.ts";
import { claude } from "./claude.ts";
import { codex } from "./codex.ts";
import type { Harness } from "./harness.ts";
import { pi } from "./pi.ts";
import { script } from "./script.ts";

const known: readonly Harness[] = [claude, codex, pi, antigravity, script];

/** Throws `invalid_request` for a name that no adapter has. */
export function harnessFor(name: string): Harness {
  const harness = known.find((each) => each.name === name);
  if (harness) return harness;
  throw new HangarError(
    "invalid_request",
    `There is no harness "${name}": use one of ${known.map((each) => each.name).join(", ")}`,
  );
}
