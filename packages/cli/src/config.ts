/** What the CLI takes from the environment, and the only place of it that reads it. */
import { homedir, tmpdir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";

export interface CliConfig {
  /** The data folder of the Hangar on this machine. The same rule as the coordinator's `data_dir`. */
  readonly dataDir: string;
  /** A Hangar elsewhere, by HANGAR_URL; none: the one on this machine. */
  readonly url: string | null;
  /** HANGAR_TOKEN, instead of the one that `hangar up` left in the data folder. */
  readonly token: string | null;
  /** All of it, for the coordinator that `hangar up` starts. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly tmp: string;
}

export function readCliConfig(env: Readonly<Record<string, string | undefined>>): CliConfig {
  const given = env["HANGAR_DATA_DIR"] ?? "";
  const xdg = env["XDG_DATA_HOME"] ?? "";
  const fallback = isAbsolute(xdg) ? join(xdg, "hangar") : join(env["HOME"] || homedir(), ".local", "share", "hangar");
  return {
    dataDir: given === "" ? fallback : resolve(given),
    url: env["HANGAR_URL"]?.replace(/\/+$/, "") || null,
    token: env["HANGAR_TOKEN"] || null,
    env,
    tmp: tmpdir(),
  };
}
