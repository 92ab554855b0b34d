/** What a start does or waits for, in the words that people read of it everywhere (spec §5.7). */
import type { StartPhase } from "./session.ts";

/** What a sandbox waits for before its daemon says anything. */
export const START_WAITS = {
  image: "building the image",
  node: "adding a node to the cluster",
  pull: "pulling the image",
  quota: (name: string): string => `a quota is exhausted (${name})`,
} as const;

export const START_WORDS: Readonly<Record<StartPhase, string>> = {
  starting: "starting",
  cloning: "cloning",
  setup: "running setup",
  restoring: "restoring",
  ready: "ready",
};

/** `detail`: while it is `starting`, what it waits for, which says it all; of a later phase, more about it. */
export function startText(phase: StartPhase | null, detail: string | null): string {
  const words = START_WORDS[phase ?? "starting"];
  if (detail === null || detail === "" || detail === words) return words;
  return words === START_WORDS.starting ? detail : `${words} (${detail})`;
}
