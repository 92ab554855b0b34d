/**
 * The one place that runs git. Output is bytes. Configuration, hooks, filters and helpers of the user never take part,
 * except for network access, which needs their credentials and proxies.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { diskFull, failedForSpace } from "./disk-full.ts";
import { bytesOf, fsPath, rawFrom, type Raw, stringPath } from "./raw.ts";

export interface GitOptions {
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: Raw;
  readonly input?: Buffer | string;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds after which it is killed. */
  readonly timeout?: number;
}

export interface GitResult {
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Its output; throws `checkpoint_failed` with git's own words when it exits otherwise than with 0. */
export async function git(args: readonly string[], options: GitOptions): Promise<Buffer> {
  const result = await tryGit(args, options);
  if (result.code !== 0) throw gitFailed(args, result, options.cwd);
  return result.stdout;
}

export function gitFailed(args: readonly string[], result: GitResult, cwd: Raw = "/"): HangarError {
  if (failedForSpace(result.stderr, stringPath(cwd))) return diskFull(stringPath(cwd));
  const verb = args.find((arg, i) => !arg.startsWith("-") && args[i - 1] !== "-c") ?? "";
  const words = result.stderr.trim().split("\n").slice(-3).join("; ") || `exit ${result.code}`;
  return new HangarError("checkpoint_failed", `git ${verb} failed: ${words.slice(0, 500)}`);
}

/** Never throws for an exit code; only when git cannot be started or was aborted. */
export function tryGit(args: readonly string[], options: GitOptions): Promise<GitResult> {
  return new Promise((resolve, reject) => {
    const child = spawn("git", args, {
      env: options.env,
      ...(options.cwd !== undefined && { cwd: stringPath(options.cwd) }),
      ...(options.signal && { signal: options.signal }),
      ...(options.timeout !== undefined && { timeout: options.timeout }),
      stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    });
    const out: Buffer[] = [];
    let err = "";
    child.stdout?.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr?.on("data", (chunk: Buffer) => {
      if (err.length < 8192) err += chunk.toString("utf8");
    });
    child.on("error", (cause) => {
      const missing = (cause as NodeJS.ErrnoException).code === "ENOENT";
      reject(
        missing ? new HangarError("missing_cli", "git does not start: install it (package git)", { cause }) : cause,
      );
    });
    child.on("close", (code, signal) => {
      resolve({ code: code ?? (signal === null ? 1 : 128), stdout: Buffer.concat(out), stderr: err });
    });
    if (options.input !== undefined && child.stdin) {
      // Git may end before it has read all (a refused ref, say): its exit code tells, not the pipe.
      child.stdin.on("error", () => {});
      child.stdin.end(options.input);
    }
  });
}

// The program search path is the machine's; nothing else of this process's environment reaches git.
const PATH = process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin";

const NULL = "/dev/null";

/** Nothing of the user's or the system's configuration. HOME is there for `~/.config/git/ignore`. */
export const fixedEnv = (home: string): Record<string, string> => ({
  PATH,
  HOME: home,
  LC_ALL: "C",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: NULL,
  GIT_ATTR_NOSYSTEM: "1",
  GIT_OPTIONAL_LOCKS: "0",
  GIT_TERMINAL_PROMPT: "0",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_NO_LAZY_FETCH: "1",
});

/** For the user's own repository, where its refs or configuration are read: what could run a program is off. */
export const OFF = [
  "-c",
  "core.fsmonitor=false",
  "-c",
  "core.hooksPath=/dev/null",
  "-c",
  "core.untrackedCache=false",
  "-c",
  "gc.auto=0",
  "-c",
  "maintenance.auto=false",
] as const;

/** For the network and for checkouts through the user's filters: their configuration, but no hook and no prompt. */
export const userEnv = (home: string, extra: Readonly<Record<string, string>> = {}): Record<string, string> => ({
  PATH,
  HOME: home,
  LC_ALL: "C",
  GIT_TERMINAL_PROMPT: "0",
  GIT_SSH_COMMAND: "ssh -o BatchMode=yes",
  GIT_NO_REPLACE_OBJECTS: "1",
  ...extra,
});

/**
 * A bare git folder of Hangar's own that borrows a repository's objects: no configuration, hook, filter, attribute or ref of
 * the user takes part in what runs in it, and nothing that runs in it changes their repository.
 */
export interface Scratch {
  readonly dir: Raw;
  /** GIT_DIR is the scratch folder. */
  readonly env: Record<string, string>;
}

// Unspecified, not unset: git takes an unset working-tree-encoding for a mistake and stops.
const RAW_ATTRIBUTES = "* -text -eol -crlf -ident -filter !working-tree-encoding\n";

export interface ScratchOf {
  /** Where to make it; replaced when it is there. */
  readonly dir: Raw;
  readonly home: string;
  readonly objectFormat: "sha1" | "sha256";
  /** Object folders to borrow from. */
  readonly objects: readonly Raw[];
  readonly excludeFile?: Raw;
  readonly shallow?: Buffer | null;
  readonly ignoreCase?: boolean;
}

export function makeScratch(of: ScratchOf): Scratch {
  const { dir } = of;
  rmSync(fsPath(dir), { recursive: true, force: true });
  for (const folder of ["", "/objects/info", "/objects/pack", "/refs", "/info"])
    mkdirSync(fsPath(dir + folder), { recursive: true, mode: 0o700 });
  const version = of.objectFormat === "sha256" ? 1 : 0;
  writeFileSync(
    fsPath(`${dir}/config`),
    `[core]\n\trepositoryformatversion = ${version}\n\tbare = false\n\tfsmonitor = false\n\tuntrackedCache = false\n` +
      `\thooksPath = ${NULL}\n\tquotePath = false\n\tlogAllRefUpdates = false\n\tautocrlf = false\n\tignoreCase = ${of.ignoreCase ?? false}\n` +
      `[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[index]\n\tthreads = true\n[core]\n\tpreloadIndex = true\n` +
      `[pack]\n\twriteReverseIndex = false\n[diff]\n\trenames = false\n` +
      (of.objectFormat === "sha256" ? "[extensions]\n\tobjectFormat = sha256\n" : ""),
  );
  writeFileSync(fsPath(`${dir}/HEAD`), "ref: refs/heads/none\n");
  writeFileSync(fsPath(`${dir}/info/attributes`), RAW_ATTRIBUTES);
  writeFileSync(
    fsPath(`${dir}/objects/info/alternates`),
    bytesOf(of.objects.map((path) => `${quoteLine(path)}\n`).join("")),
  );
  if (of.excludeFile !== undefined) symlinkSync(fsPath(of.excludeFile), fsPath(`${dir}/info/exclude`));
  if (of.shallow) writeFileSync(fsPath(`${dir}/shallow`), of.shallow);
  return { dir, env: { ...fixedEnv(of.home), GIT_DIR: stringPath(dir) } };
}

/** A line of `objects/info/alternates`: quoted as C does where it could be taken for something else. */
export function quoteLine(path: Raw): Raw {
  if (!/^["#]|\n/.test(path)) return path;
  return `"${path.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n")}"`;
}

export interface GitDirs {
  /** The working tree's folder. */
  readonly worktree: Raw;
  /** Where HEAD, index and operations are. */
  readonly gitDir: Raw;
  /** Where objects, refs and configuration are: another one for a linked worktree. */
  readonly commonDir: Raw;
  /** `.git` is a file that names the folder. */
  readonly gitFile: boolean;
}

/** The git folders of a working tree, by what lies there; none when it is not one. */
export function findGitDirs(worktree: Raw): GitDirs | null {
  const dotGit = `${worktree}/.git`;
  let gitDir = dotGit;
  let gitFile = false;
  try {
    const line = readFileSync(fsPath(dotGit), "latin1");
    if (!line.startsWith("gitdir: ")) return null;
    gitDir = resolveRaw(worktree, line.slice(8).replace(/[\r\n]+$/, ""));
    gitFile = true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EISDIR") return null;
  }
  if (!existsSync(fsPath(`${gitDir}/HEAD`))) return null;
  let commonDir = gitDir;
  try {
    commonDir = resolveRaw(gitDir, readFileSync(fsPath(`${gitDir}/commondir`), "latin1").replace(/[\r\n]+$/, ""));
  } catch {
    // not a linked worktree
  }
  return { worktree, gitDir, commonDir, gitFile };
}

/** `path` as seen from `from`, with `.` and `..` taken out. */
export function resolveRaw(from: Raw, path: Raw): Raw {
  const whole = path.startsWith("/") ? path : `${from}/${path}`;
  const pieces: Raw[] = [];
  for (const piece of whole.split("/")) {
    if (piece === "" || piece === ".") continue;
    if (piece === "..") pieces.pop();
    else pieces.push(piece);
  }
  return `/${pieces.join("/")}`;
}

export const absolute = (path: string): Raw => resolveRaw(rawFrom(process.cwd()), rawFrom(path));
