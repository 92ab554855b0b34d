/** The environment of a local sandbox, built from scratch: nothing of the coordinator's own but a short list. */
import { delimiter, join } from "node:path";
import { AGENT_ENV } from "@hangar/shared";

/** Where a sandbox's folders are, as its own processes see them. */
export interface InnerPaths {
  readonly home: string;
  readonly workspace: string;
  readonly tmp: string;
  readonly state: string;
}

/** What a sandbox needs to know of the machine: programs, language, time zone, and the way out to the network. */
const PASSED_ON = [
  "PATH",
  "LANG",
  "LANGUAGE",
  "LC_ALL",
  "TZ",
  "SSL_CERT_FILE",
  "SSL_CERT_DIR",
  "NODE_EXTRA_CA_CERTS",
  "CURL_CA_BUNDLE",
  "GIT_SSL_CAINFO",
  "REQUESTS_CA_BUNDLE",
  "HTTP_PROXY",
  "HTTPS_PROXY",
  "ALL_PROXY",
  "NO_PROXY",
  "http_proxy",
  "https_proxy",
  "all_proxy",
  "no_proxy",
] as const;
/** Of those, the ones that name a file or folder which has to be readable. */
export const CERTIFICATE_PATHS = [
  "SSL_CERT_FILE",
  "SSL_CERT_DIR",
  "NODE_EXTRA_CA_CERTS",
  "CURL_CA_BUNDLE",
  "GIT_SSL_CAINFO",
  "REQUESTS_CA_BUNDLE",
] as const;

export type HostEnvironment = Readonly<Record<string, string | undefined>>;

export function sandboxEnvironment(
  host: HostEnvironment,
  paths: InnerPaths,
  given: Readonly<Record<string, string>>,
  sshAgent: string | null,
): Record<string, string> {
  const env: Record<string, string> = {
    PATH: "/usr/local/bin:/usr/bin:/bin",
    LANG: "C.UTF-8",
    TERM: "xterm-256color",
    SHELL: "/bin/bash",
    USER: "hangar",
    LOGNAME: "hangar",
  };
  for (const name of PASSED_ON) if (host[name]) env[name] = host[name];
  return {
    ...env,
    ...homeVariables(paths),
    ...(sshAgent === null ? {} : { SSH_AUTH_SOCK: sshAgent }),
    ...given,
    [AGENT_ENV.workspace]: paths.workspace,
    [AGENT_ENV.state]: paths.state,
  };
}

/** Everything that programs keep for themselves is in the sandbox. */
export const homeVariables = (paths: Pick<InnerPaths, "home" | "tmp">): Record<string, string> => ({
  HOME: paths.home,
  TMPDIR: paths.tmp,
  XDG_CONFIG_HOME: `${paths.home}/.config`,
  XDG_CACHE_HOME: `${paths.home}/.cache`,
  XDG_DATA_HOME: `${paths.home}/.local/share`,
  XDG_STATE_HOME: `${paths.home}/.local/state`,
  CLAUDE_CONFIG_DIR: `${paths.home}/.claude`,
  CODEX_HOME: `${paths.home}/.codex`,
  CLAUDE_CODE_TMPDIR: paths.tmp,
});

/** Without what npm put in front to run Hangar itself: its Node and its tools would stand before the user's own. */
export const usersPath = (path: string, installation: string): string =>
  path
    .split(delimiter)
    .filter((folder) => folder !== join(installation, "node_modules/.bin") && !folder.includes("/@npmcli/run-script/"))
    .join(delimiter);

/** `ssh://…` or `git@host:path`. */
export const isSshRemote = (remote: string | null): boolean =>
  remote !== null && (remote.startsWith("ssh://") || /^[\w.-]+@[\w.-]+:/.test(remote));

/** The folder on this machine that a remote is; none when it is elsewhere. */
export function localRemote(remote: string | null): string | null {
  if (remote?.startsWith("/")) return remote;
  if (!remote?.startsWith("file://")) return null;
  try {
    const url = new URL(remote);
    return url.host === "" || url.host === "localhost" ? decodeURIComponent(url.pathname) : null;
  } catch {
    return null;
  }
}
