/** hangar: the command line. Builds what commands work with and turns failures into one line and an exit code. */
import { delimiter, join } from "node:path";
import { existsSync } from "node:fs";
import { type Client, connect } from "./client.ts";
import { readCliConfig } from "./config.ts";
import type { Context } from "./context.ts";
import { describeFailure } from "./failure.ts";
import { createProgram } from "./program.ts";
import { createUi } from "./ui.ts";

await main();

async function main(): Promise<void> {
  const config = readCliConfig(process.env);
  const ui = createUi({ stdout: process.stdout, stderr: process.stderr, env: process.env });
  ui.prefix = isInstalled(process.env["PATH"] ?? "") ? "hangar" : "npx hangar";
  const interrupts = new Set<() => void>();
  process.on("SIGINT", () => {
    if (interrupts.size === 0) process.exit(130);
    for (const callback of interrupts) callback();
  });
  // A reader that went away (`hangar … | head`) is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  let client: Client | undefined;
  const context: Context = {
    config,
    ui,
    cwd: process.cwd(),
    stdin: process.stdin,
    client: () => (client ??= connect(config)),
    onInterrupt(callback) {
      interrupts.add(callback);
      return () => interrupts.delete(callback);
    },
  };
  try {
    await createProgram(context).parseAsync(process.argv);
  } catch (error) {
    ui.done();
    const { line, exitCode } = describeFailure(error);
    if (line !== null) ui.note(`hangar: ${line}`);
    process.exitCode = exitCode;
  }
  // What still waits (a stream that is being closed, standard input) must not hold a finished command.
  await new Promise((resolve) => process.stdout.write("", resolve));
  process.exit();
}

/** Whether people can type `hangar` here: npm and npx put their own folders in front, which the user's shell has not. */
function isInstalled(path: string): boolean {
  const folders = path.split(delimiter).filter((folder) => !folder.includes("node_modules") && folder !== "");
  return folders.some((folder) => existsSync(join(folder, "hangar")));
}
