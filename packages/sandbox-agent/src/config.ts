/** What a driver starts the daemon with, and the only place that reads the daemon's environment. */
import { basename, isAbsolute } from "node:path";
import { AGENT_ENV, AGENT_MALLOC, HangarError, SandboxId, WarmId } from "@hangar/shared";

export interface Config {
  /** Base URLs of coordinator replicas, `http://host:port`, without a slash at the end. At least one. */
  readonly urls: readonly string[];
  readonly token: string;
  /** Of a sandbox that waits for a session: its warm id, until it is claimed. */
  readonly sandbox: string;
  /** What marks its processes: for one that waited its warm id, since they run on. */
  readonly mark: string;
  /** The folder that holds the repo's folder. */
  readonly workspace: string;
  /** The daemon's own folder. */
  readonly state: string;
  readonly home: string;
  /** How long a last checkpoint may take after SIGTERM, ms: the time to end without what ending itself takes. */
  readonly lastMs: number;
  /** What every process of the sandbox inherits: the daemon's environment without what is the daemon's alone. */
  readonly base: Readonly<Record<string, string>>;
  readonly shell: string;
}

/** Marks every process that the daemon starts, so that a freeze finds those that left their process group. */
export const SANDBOX_MARK = "HANGAR_SANDBOX";

/** Throws `invalid_request` with one line that names the variable. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const urls = required(env, AGENT_ENV.url).trim().split(/\s+/).map(httpUrl);
  const sandbox = required(env, AGENT_ENV.sandbox);
  if (!SandboxId.or(WarmId).safeParse(sandbox).success)
    throw invalid(`${AGENT_ENV.sandbox} is no sandbox id: ${sandbox}`);
  const home = absolute(env, "HOME");
  return {
    urls,
    token: required(env, AGENT_ENV.token),
    sandbox,
    mark: sandbox,
    workspace: absolute(env, AGENT_ENV.workspace),
    state: absolute(env, AGENT_ENV.state),
    home,
    lastMs: lastMs(env[AGENT_ENV.grace]),
    base: inherited(env, sandbox),
    shell: env["SHELL"] ?? "/bin/sh",
  };
}

/** Whether it waits for a session. */
export const isWaiting = ({ sandbox }: Config): boolean => WarmId.safeParse(sandbox).success;

/** A third of the time to end, and at most 10 s of it, are for stopping what runs and for ending. */
function lastMs(given: string | undefined): number {
  const seconds = Number(given || 30);
  if (!(seconds > 0 && seconds <= 86_400)) throw invalid(`${AGENT_ENV.grace} is no number of seconds: ${given}`);
  return (seconds - Math.min(10, seconds / 3)) * 1000;
}

/** The daemon's own folder; throws `invalid_request` where there is no daemon. */
export const stateFolder = (env: NodeJS.ProcessEnv): string => absolute(env, AGENT_ENV.state);

function inherited(env: NodeJS.ProcessEnv, sandbox: string): Record<string, string> {
  const own = new Set<string>([
    ...Object.values(AGENT_ENV),
    ...Object.keys(AGENT_MALLOC),
    "NODE_OPTIONS",
    "TMUX",
    "TMUX_PANE",
    "OLDPWD",
    "PWD",
  ]);
  const base: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined && !own.has(name)) base[name] = value;
  base["PATH"] ??= "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  base[SANDBOX_MARK] = sandbox;
  return base;
}

function httpUrl(text: string): string {
  const url = URL.parse(text);
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw invalid(`${AGENT_ENV.url} must hold http:// or https:// URLs; "${basename(text)}" is none`);
  }
  return text.replace(/\/+$/, "");
}

function absolute(env: NodeJS.ProcessEnv, name: string): string {
  const path = required(env, name);
  if (!isAbsolute(path)) throw invalid(`${name} must be an absolute path: ${path}`);
  return path.replace(/(?<=.)\/+$/, "");
}

function required(env: NodeJS.ProcessEnv, name: string): string {
  const value = env[name];
  if (value) return value;
  throw invalid(`${name} is not set: \`hangar-agent run\` is started by the coordinator's driver`);
}

const invalid = (message: string): HangarError => new HangarError("invalid_request", message);
