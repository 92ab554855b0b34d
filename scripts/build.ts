/**
 * Bundles Hangar into `dist/`, an npm package of its own: `npm install -g ./dist/hangar-<version>.tgz` gives `hangar`.
 * Another folder than `dist/` may be given. The three programs are one file each, and so is the daemon's thread for bulk work; what cannot be bundled (a native module, the pinned Node) stays a dependency.
 */
import { execFileSync } from "node:child_process";
import { chmod, copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { BULK, bundle, EXTERNAL } from "./bundle.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = resolve(process.argv[2] ?? `${root}dist`);

const PROGRAMS = { hangar: "cli", "hangar-coordinator": "coordinator", "hangar-agent": "sandbox-agent" } as const;
/** Beside the bundles, where their modules look for them. */
const LUA = `${root}packages/coordinator/src/redis`;

await rm(dist, { recursive: true, force: true });
await mkdir(`${dist}/bin`, { recursive: true });
await bundle(
  {
    "hangar-agent-bulk": BULK,
    ...Object.fromEntries(
      Object.entries(PROGRAMS).map(([name, folder]) => [name, `${root}packages/${folder}/src/main.ts`]),
    ),
  },
  dist,
);
for (const name of await readdir(LUA)) if (name.endsWith(".lua")) await copyFile(`${LUA}/${name}`, `${dist}/${name}`);
await writeStarters();
await writeFile(`${dist}/package.json`, `${JSON.stringify(await manifest(), null, 2)}\n`);
await copyFile(`${root}README.md`, `${dist}/README.md`);
await copyFile(`${root}LICENSE`, `${dist}/LICENSE`);
execFileSync("npm", ["pack", "--silent"], { cwd: dist, stdio: "inherit" });

/** What npm links: plain JavaScript that an older Node reads, to start the bundle with Node 26. */
async function writeStarters(): Promise<void> {
  await copyFile(`${root}packages/shared/launch.mjs`, `${dist}/bin/launch.mjs`);
  for (const name of Object.keys(PROGRAMS)) {
    const file = `${dist}/bin/${name}.mjs`;
    const lines = [
      "#!/usr/bin/env node",
      'import { launch } from "./launch.mjs";',
      "",
      // A sandbox's home is its user's: the agent keeps compiled code only where the driver says.
      `await launch(new URL("../${name}.mjs", import.meta.url)${name === "hangar-agent" ? ", process.env.HANGAR_AGENT_CODE || null" : ""});`,
    ];
    await writeFile(file, `${lines.join("\n")}\n`);
    await chmod(file, 0o755);
  }
}

async function manifest(): Promise<object> {
  const read = async (path: string) => JSON.parse(await readFile(`${root}${path}`, "utf8")) as Record<string, never>;
  const workspace = await read("package.json");
  const agent: { dependencies?: Record<string, string> } = await read("packages/sandbox-agent/package.json");
  const { version, description, license, engines, optionalDependencies } = workspace;
  return {
    name: "hangar",
    version,
    description,
    license,
    type: "module",
    bin: Object.fromEntries(Object.keys(PROGRAMS).map((name) => [name, `bin/${name}.mjs`])),
    files: ["bin", "*.mjs", "*.lua", "*.txt"],
    engines,
    dependencies: Object.fromEntries(EXTERNAL.map((name) => [name, agent.dependencies?.[name]])),
    optionalDependencies,
  };
}
