/** `hangar-agent <command>`: which command does what; each is loaded only when it is asked for. */
import { HangarError } from "@hangar/shared";

type Main = (argv: readonly string[]) => Promise<number>;

const COMMANDS: Record<string, () => Promise<Main>> = {
  run: async () => (await import("./run.ts")).run,
  snapshot: async () => (await import("./offline.ts")).snapshot,
  restore: async () => (await import("./offline.ts")).restore,
  "git-credential": async () => (await import("./git-credential.ts")).gitCredential,
  end: async () => (await import("./end.ts")).end,
  warm: async () => warm,
};

process.exit(await main(process.argv.slice(2)));

async function main([name = "", ...argv]: readonly string[]): Promise<number> {
  const load = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!load) {
    console.error(`hangar-agent: use one of ${Object.keys(COMMANDS).join(", ")}`);
    return 2;
  }
  try {
    return await (
      await load()
    )(argv);
  } catch (error) {
    if (!(error instanceof HangarError)) throw error;
    console.error(`hangar-agent: ${error.message}`);
    return 1;
  }
}

/** Loads what a start loads and ends: with HANGAR_AGENT_CODE set, Node then leaves the compiled code there. */
async function warm(): Promise<number> {
  await Promise.all([import("./run.ts"), import("./git-credential.ts")]);
  return 0;
}
