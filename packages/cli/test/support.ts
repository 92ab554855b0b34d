/** The command line as its own process, in a home of its own, against the Hangar that it starts itself. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CLI, makeRemote, type Ran, run } from "../../../test/support/hangar.ts";

export interface Cli {
  readonly dir: string;
  readonly dataDir: string;
  readonly env: Record<string, string>;
  hangar(args: readonly string[], more?: { input?: string; cwd?: string; env?: Record<string, string> }): Promise<Ran>;
  /** Its result; fails with what it said when it does not end well. */
  ok(...args: string[]): Promise<string>;
  json<T>(...args: string[]): Promise<T>;
  remote(): Promise<string>;
  /** Types into it on a terminal of its own: each piece of input once its pattern was seen. */
  onTerminal(args: readonly string[], typed: readonly [RegExp, string][]): Promise<{ code: number; seen: string }>;
  close(): Promise<void>;
}

export function makeCli(): Cli {
  const dir = mkdtempSync(join(tmpdir(), "hangar-cli-"));
  const dataDir = join(dir, "data");
  const home = join(dir, "home");
  mkdirSync(home);
  const env: Record<string, string> = {
    PATH: process.env["PATH"] ?? "",
    HOME: home,
    LANG: "C.UTF-8",
    HANGAR_DATA_DIR: dataDir,
    HANGAR_PORT: "0",
  };
  const cli: Cli = {
    dir,
    dataDir,
    env,
    hangar: (args, more = {}) =>
      run(process.execPath, [CLI, ...args], {
        cwd: more.cwd ?? dir,
        env: { ...env, ...more.env },
        input: more.input ?? "",
      }),
    async ok(...args) {
      const ran = await cli.hangar(args);
      if (ran.code !== 0)
        throw new Error(`hangar ${args.join(" ")}: exit ${ran.code}\n${ran.stdout}${ran.stderr}${logOf(dataDir)}`);
      return ran.stdout;
    },
    json: async <T>(...args: string[]) => JSON.parse(await cli.ok(...args, "--json")) as T,
    remote: () => makeRemote(dir),
    onTerminal: (args, typed) =>
      onTerminal([process.execPath, CLI, ...args], { ...env, TERM: "xterm-256color" }, dir, typed),
    async close() {
      await cli.hangar(["session", "list"]);
      const { stdout } = await cli.hangar(["session", "list", "--all", "--json"]);
      for (const { name } of stdout === "" ? [] : (JSON.parse(stdout) as { name: string }[]))
        await cli.hangar(["session", "rm", name, "--force"]);
      await cli.hangar(["down"]);
      await rm(dir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return cli;
}

const logOf = (dataDir: string): string => {
  const path = join(dataDir, "coordinator.log");
  return existsSync(path) ? `\n${readFileSync(path, "utf8").slice(-4000)}` : "";
};

/** util-linux's `script` gives it a terminal. */
function onTerminal(
  argv: readonly string[],
  env: Record<string, string>,
  cwd: string,
  typed: readonly [RegExp, string][],
): Promise<{ code: number; seen: string }> {
  return new Promise((resolve, reject) => {
    const command = argv.map((word) => `'${word.replaceAll("'", String.raw`'\''`)}'`).join(" ");
    const child = spawn("script", ["--quiet", "--return", "--command", command, "/dev/null"], {
      env,
      cwd,
      stdio: ["pipe", "pipe", "inherit"],
    });
    let seen = "";
    let from = 0;
    const waiting = [...typed];
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      seen += text;
      const [next] = waiting;
      const found = next && next[0].exec(seen.slice(from));
      if (!next || !found) return;
      from += found.index + found[0].length;
      waiting.shift();
      child.stdin.write(next[1]);
    });
    child.stdin.on("error", () => undefined);
    child.on("error", reject);
    child.on("exit", (code) => resolve({ code: code ?? -1, seen }));
  });
}
