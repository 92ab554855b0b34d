/**
 * One local sandbox on disk and as processes: `<sandboxes>/<name>/{home,workspace,tmp,state,run.json,log}`.
 *
 * `run.json` says whose folder it is and which processes are its own; it is written before they do anything.
 */
import { spawn } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { chmod, readdir, rm } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import { basename, dirname, join } from "node:path";
import type { Readable } from "node:stream";
import { HangarError, SandboxId, SessionId, WarmId } from "@hangar/shared";
import { z } from "zod";
import { identify, isAlive, ProcessIdentity } from "../embedded/process.ts";

export const Run = z.strictObject({
  version: z.literal(1),
  id: SandboxId,
  session: SessionId,
  generation: z.number().int().positive(),
  /** `namespace`: everything of it ends with its init. */
  mode: z.enum(["namespace", "plain"]),
  /** The sandbox whose folder it took over. */
  adopted: SandboxId.nullable(),
  /** The namespace's init or, without one, the daemon. */
  main: ProcessIdentity,
  /** bubblewrap's own process outside; ends with `main`. */
  outer: ProcessIdentity.nullable(),
});
export type Run = z.infer<typeof Run>;

/** `warm.json`: of a folder that waits for a session, in place of `run.json`. */
const Warm = z.strictObject({
  version: z.literal(1),
  id: WarmId,
  main: ProcessIdentity,
  outer: ProcessIdentity.nullable(),
});
export type Warm = z.infer<typeof Warm>;

export const isRunning = (run: Pick<Run, "main">): boolean => isAlive(run.main);

/** None: the folder is no sandbox, or one that was never started. */
export function readRun(folder: string): Run | null {
  try {
    return Run.parse(JSON.parse(readFileSync(join(folder, "run.json"), "utf8")));
  } catch {
    return null;
  }
}

/** None: it does not wait, or has been claimed. */
export function readWarm(folder: string): Warm | null {
  if (existsSync(join(folder, "run.json"))) return null;
  try {
    return Warm.parse(JSON.parse(readFileSync(join(folder, "warm.json"), "utf8")));
  } catch {
    return null;
  }
}

export function writeWarm(folder: string, warm: Warm): void {
  writeFileSync(join(folder, "warm.json"), JSON.stringify(warm), { mode: 0o600 });
}

export function writeRun(folder: string, run: Run): void {
  const temporary = join(folder, "run.json.new");
  writeFileSync(temporary, JSON.stringify(run), { mode: 0o600 });
  renameSync(temporary, join(folder, "run.json"));
}

/** Makes what is not there, and an empty `tmp` and `state`. */
export async function prepareFolder(folder: string): Promise<void> {
  for (const name of ["tmp", "state"]) await discard(join(folder, name));
  for (const name of ["home", "workspace", "tmp", "state"])
    mkdirSync(join(folder, name), { recursive: true, mode: 0o700 });
}

export interface Command {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** Bubblewrap and its arguments; none: the command runs plainly. */
  readonly bubblewrap: { readonly binary: string; readonly arguments: readonly string[] } | null;
}

export interface Started {
  readonly main: ProcessIdentity;
  readonly outer: ProcessIdentity | null;
  /** The command waits for this; without it, it ends with the coordinator. */
  go(): void;
  /** Ends it before it does anything. */
  abort(): void;
  /** Settles when the processes ended, with how. */
  readonly ended: Promise<string>;
}

/**
 * Starts a command that outlives this process, in a session of its own, writing to `<folder>/log`. A shell waits for a
 * line before it becomes the command: the caller writes down who it is first, so that no process is ever unknown.
 */
export async function start(folder: string, command: Command): Promise<Started> {
  const shell = ["/bin/sh", "-c"];
  // In a namespace the shell stays: its first process collects orphans, and everything in it ends with the command.
  const [file, ...args] =
    command.bubblewrap === null
      ? [...shell, 'read -r _ && exec "$0" "$@" </dev/null', ...command.argv]
      : [
          command.bubblewrap.binary,
          "--as-pid-1",
          "--info-fd",
          "3",
          ...command.bubblewrap.arguments,
          "--",
          ...shell,
          'read -r _ || exit 0; "$0" "$@" </dev/null; exit $?',
          ...command.argv,
        ];
  const log = openSync(join(folder, "log"), "a", 0o600);
  const child = spawn(file as string, args, {
    cwd: command.cwd,
    env: command.env,
    detached: true,
    stdio: ["pipe", log, log, "pipe"],
  });
  closeSync(log);
  child.stdin?.on("error", () => undefined);
  const ended = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("exit", (code, cause) => resolve(cause ? `killed by ${cause}` : `exit ${code}`));
  });
  child.unref();
  try {
    const outer = child.pid === undefined ? null : identify(child.pid);
    const main = command.bubblewrap === null ? outer : await initOf(child.stdio[3] as Readable);
    if (!main || !outer)
      throw new HangarError("internal", `a sandbox does not start: ${await ended}: ${lastLine(folder)}`);
    return {
      main,
      outer: main === outer ? null : outer,
      ended,
      go: () => void child.stdin?.end("go\n"),
      abort: () => void child.stdin?.destroy(),
    };
  } catch (error) {
    child.stdin?.destroy();
    throw error;
  } finally {
    (child.stdio[3] as Readable).destroy();
  }
}

/** The namespace's first process, as bubblewrap reports it; none when bubblewrap failed before. */
async function initOf(info: Readable): Promise<ProcessIdentity | null> {
  let text = "";
  for await (const chunk of info) {
    text += String(chunk);
    if (text.includes("}")) break;
  }
  const pid = /"child-pid":\s*(\d+)/.exec(text)?.[1];
  return pid === undefined ? null : identify(Number(pid));
}

/** Takes a folder out of sight at once, then removes it. */
export async function discard(path: string): Promise<void> {
  if (existsSync(path)) await removeTree(toTrash(path));
}

/** A rename: a crash never leaves half a folder under a name that counts. The new name. */
export function toTrash(path: string): string {
  const trash = join(dirname(path), `.trash-${basename(path)}-${randomBytes(4).toString("hex")}`);
  renameSync(path, trash);
  return trash;
}

/** Also where it holds folders that may not be written. */
export async function removeTree(path: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await rm(path, { recursive: true, force: true });
    } catch (error) {
      if (attempt === 5) throw error;
      await makeWritable(path);
    }
  }
}

/** A failed removal goes on for a moment after it was reported, so what is there may vanish meanwhile. */
async function makeWritable(folder: string): Promise<void> {
  await chmod(folder, 0o700).catch(() => undefined);
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    if (entry.isDirectory()) await makeWritable(join(folder, entry.name));
  }
}

/** Keeps a sandbox's log bounded: over 8 MiB, all but what came last moves to `log.1`. The daemon appends, so it goes on. */
export function boundLog(folder: string): void {
  const path = join(folder, "log");
  try {
    if (!existsSync(path) || statSync(path).size <= LOG_BYTES) return;
    writeFileSync(`${path}.1`, readFileSync(path).subarray(-LOG_BYTES / 8), { mode: 0o600 });
  } catch {
    // A disk that is full: the log goes all the same.
  }
  if (existsSync(path)) truncateSync(path);
}
const LOG_BYTES = 8 * 1024 * 1024;

export function lastLine(folder: string): string {
  try {
    return readFileSync(join(folder, "log"), "utf8").trimEnd().split("\n").pop()?.slice(0, 500) ?? "";
  } catch {
    return "";
  }
}
