/**
 * What a local sandbox sees of the machine, as arguments of bubblewrap: its own home, workspace, /tmp and process table;
 * the system read-only; nothing of the user's home, of /run, of other sandboxes or of Hangar's data, but the programs that
 * lie there and that it needs. The network is the machine's own.
 */
import { execFile } from "node:child_process";
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { basename, delimiter, dirname, isAbsolute, join, resolve } from "node:path";
import { promisify } from "node:util";
import type { InnerPaths } from "./local-env.ts";

export const INNER: InnerPaths = {
  home: "/home/hangar",
  workspace: "/workspace",
  tmp: "/tmp",
  state: "/hangar/state",
};
export const INNER_SSH_AGENT = "/hangar/ssh-agent.sock";
export const INNER_CODE = "/hangar/code";

export interface View {
  /** The sandbox's own folder on this machine: `home`, `workspace`, `tmp` and `state` are in it. */
  readonly folder: string;
  readonly hostname: string;
  /** The user's real home: hidden. */
  readonly userHome: string;
  /** More to hide: Hangar's data folder, a volume store elsewhere. */
  readonly hidden: readonly string[];
  /** Files and folders that must be readable although they lie in what is hidden. */
  readonly readable: readonly string[];
  /** A remote on this machine. */
  readonly remote: string | null;
  /** The SSH agent's socket, where it is offered. */
  readonly sshAgent: string | null;
  /** The folder of the daemon's compiled code. */
  readonly code: string;
}

/** Null: bubblewrap works here. Else why it does not, in one line. */
export async function probeBubblewrap(binary: string): Promise<string | null> {
  const args = [
    "--ro-bind",
    "/",
    "/",
    ...NAMESPACES,
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--",
    "/bin/sh",
    "-c",
    ":",
  ];
  try {
    await promisify(execFile)(binary, args, { timeout: 20_000 });
    return null;
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string };
    return (stderr?.trim() || message).split("\n")[0] ?? message;
  }
}

const NAMESPACES = ["--unshare-pid", "--unshare-ipc", "--unshare-uts"];

/** Arguments in front of `-- command`. The order counts: later mounts lie over earlier ones. */
export function bubblewrapArguments(view: View): string[] {
  const roots = hiddenRoots(view.userHome);
  const args = [...NAMESPACES, "--hostname", view.hostname, "--new-session", ...system()];
  for (const path of outermost(roots.filter((path) => existsSync(path) && !isLink(path) && !OWN.has(path)))) {
    args.push("--tmpfs", path);
  }
  for (const name of ["tmp", "home", "workspace", "state"] as const)
    args.push("--bind", join(view.folder, name), INNER[name]);
  for (const path of ["/run/nscd", dirname(real("/etc/resolv.conf"))]) {
    if (isUnder(path, roots)) args.push("--ro-bind-try", path, path);
  }
  const shown = outermost(view.readable.flatMap(withTarget).filter((path) => isUnder(path, roots)));
  for (const path of shown) args.push("--ro-bind", path, path);
  // Over what was just shown: a data folder may lie inside a checkout.
  for (const path of outermost(view.hidden.map(real))) {
    if (existsSync(path) && (!isUnder(path, roots) || isUnder(path, shown))) args.push("--tmpfs", path);
  }
  args.push("--ro-bind-try", view.code, INNER_CODE);
  if (view.remote !== null) args.push(...remoteArguments(view.remote, roots));
  if (view.sshAgent !== null) {
    args.push("--bind", view.sshAgent, INNER_SSH_AGENT);
    // ssh looks these up by the user's entry in the password file, not by HOME.
    for (const name of ["known_hosts", "config"]) {
      const path = join(view.userHome, ".ssh", name);
      args.push("--ro-bind-try", path, path);
    }
  }
  return [...args, "--remount-ro", "/", "--chdir", INNER.workspace];
}

/** Folders of the machine of which a sandbox sees nothing by itself. */
export const hiddenRoots = (userHome: string): string[] =>
  [...new Set(["/home", "/tmp", "/var/tmp", "/run", "/root", ...OWN, real(userHome)])].filter((path) => path !== "/");

/** A sandbox has its own at these paths. */
const OWN = new Set(["/workspace", "/hangar"]);

/** Every top-level entry read-only, but those that a sandbox has of its own. */
function system(): string[] {
  const own = new Set(["/proc", "/dev", "/tmp", "/lost+found", ...OWN]);
  const args: string[] = [];
  for (const entry of readdirSync("/", { withFileTypes: true })) {
    const path = `/${entry.name}`;
    if (own.has(path)) continue;
    if (entry.isSymbolicLink()) args.push("--symlink", readlinkSync(path), path);
    else if (entry.isDirectory()) args.push("--ro-bind-try", path, path);
  }
  return [...args, "--proc", "/proc", "--dev", "/dev"];
}

/**
 * A remote that is a repository here. A bare one can be pushed to, but for its configuration and hooks, which its owner's
 * own git would run. Of a checkout only the repository is shown, read-only: its files are the user's.
 */
function remoteArguments(remote: string, roots: readonly string[]): string[] {
  const path = real(remote);
  const dotGit = join(path, ".git");
  const isBare = !existsSync(dotGit);
  if (isBare && !(existsSync(join(path, "HEAD")) && existsSync(join(path, "objects")))) return [];
  const args: string[] = [];
  // Also under the name it is known by, where a symlink on the way is among what is hidden.
  for (const name of new Set([path, ...(isUnder(remote, roots) ? [resolve(remote)] : [])])) {
    if (isBare) {
      args.push("--bind", path, name, "--ro-bind", join(path, "config"), join(name, "config"));
      if (existsSync(join(path, "hooks"))) args.push("--ro-bind", join(path, "hooks"), join(name, "hooks"));
      else args.push("--tmpfs", join(name, "hooks"));
    } else args.push("--ro-bind", dotGit, join(name, ".git"));
  }
  const repository = commonFolder(isBare ? path : dotGit);
  if (repository !== path && repository !== dotGit) args.push("--ro-bind", repository, repository);
  for (const store of alternates(repository)) args.push("--ro-bind-try", store, store);
  return args;
}

/** A linked worktree's `.git` is a file that names `<repository>/worktrees/<name>`. */
function commonFolder(repository: string): string {
  try {
    if (!statSync(repository).isFile()) return repository;
    const target = /^gitdir: (.+)$/m.exec(readFileSync(repository, "utf8"))?.[1];
    return target ? dirname(dirname(resolve(dirname(repository), target))) : repository;
  } catch {
    return repository;
  }
}

function alternates(repository: string): string[] {
  try {
    const lines = readFileSync(join(repository, "objects/info/alternates"), "utf8").split("\n");
    return lines.filter(Boolean).map((line) => resolve(repository, "objects", line));
  } catch {
    return [];
  }
}

/**
 * Programs in PATH folders that lie in what is hidden, and what they need: a symlinked program needs its package, and a
 * package installed by npm needs its neighbours.
 */
export function readableForPrograms(path: string, roots: readonly string[]): string[] {
  const found = new Set<string>();
  for (const folder of path.split(delimiter)) {
    if (!isAbsolute(folder) || roots.includes(real(folder)) || !existsSync(folder)) continue;
    if (!isUnder(folder, roots) && !isUnder(real(folder), roots)) continue;
    found.add(folder);
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (!entry.isSymbolicLink()) continue;
      const target = real(join(folder, entry.name));
      if (isUnder(target, roots) && existsSync(target)) found.add(packageOf(target));
    }
  }
  return [...found];
}

function packageOf(program: string): string {
  const modules = program.indexOf("/node_modules/");
  if (modules !== -1) return program.slice(0, modules + "/node_modules".length);
  for (let folder = dirname(program), up = 0; up < 4 && folder !== "/"; folder = dirname(folder), up++)
    if (existsSync(join(folder, "package.json"))) return folder;
  return basename(dirname(program)) === "bin" ? dirname(program) : program;
}

/** A path and, where it is a symlink, what it leads to. */
const withTarget = (path: string): string[] => (existsSync(path) ? [real(path), path] : []);

/** Without those that lie in another one of them, in an order in which none hides an earlier one. */
const outermost = (paths: readonly string[]): string[] => {
  const sorted = [...new Set(paths)].sort((a, b) => a.length - b.length);
  return sorted.filter((path, i) => !isUnder(path, sorted.slice(0, i)));
};

export const isUnder = (path: string, folders: readonly string[]): boolean =>
  folders.some((folder) => path === folder || path.startsWith(`${folder.replace(/\/$/, "")}/`));

export function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return resolve(path);
  }
}

const isLink = (path: string): boolean => lstatSync(path).isSymbolicLink();
