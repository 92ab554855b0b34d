/** Loads the Lua scripts beside this file. A bundle has them beside itself: see scripts/build.ts. */
import { readFileSync } from "node:fs";

const load = (name: string): string => readFileSync(new URL(`./${name}.lua`, import.meta.url), "utf8");

export const SCRIPTS = {
  change: { lua: load("change"), numberOfKeys: 13 },
  removeSession: { lua: load("remove"), numberOfKeys: 13 },
  claim: { lua: load("claim"), numberOfKeys: 1 },
  settleClaim: { lua: load("settle-claim"), numberOfKeys: 1 },
  pushCommand: { lua: load("push-command"), numberOfKeys: 2 },
  settleCommand: { lua: load("settle-command"), numberOfKeys: 3 },
  claimWarm: { lua: load("claim-warm"), numberOfKeys: 2 },
  changeWarm: { lua: load("change-warm"), numberOfKeys: 2 },
  removeEnvironment: { lua: load("remove-environment"), numberOfKeys: 3 },
} as const;
