/** How a program of Hangar's becomes one file. */
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** The thread of whatever takes or restores checkpoints: goes into the same folder as `hangar-agent-bulk`. */
export const BULK = fileURLToPath(new URL("../packages/sandbox-agent/src/checkpoint/bulk-thread.ts", import.meta.url));

/** Have a native part: they stay dependencies. */
export const EXTERNAL = ["@lydell/node-pty"];

/** @param programs entry modules by the name that each gets, less `.mjs`, in `outdir` */
export async function bundle(programs: Readonly<Record<string, string>>, outdir: string): Promise<void> {
  await build({
    entryPoints: Object.entries(programs).map(([name, entry]) => ({ in: entry, out: name })),
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    target: "node26",
    format: "esm",
    external: EXTERNAL,
    // Some dependencies are CommonJS and call require.
    banner: {
      js: 'import { createRequire as hangarRequire } from "node:module"; const require = hangarRequire(import.meta.url);',
    },
    legalComments: "linked",
    logLevel: "warning",
  });
}
