/** Pushes the session's branch to its remote, for `suspend --push`. */
import type { Redact } from "@hangar/shared";
import { run } from "./process.ts";
import type { Environment } from "./sandbox-env.ts";

const MOST_MS = 120_000;

/** None: pushed. Else why not, in one line. Never rejects. Nothing is forced, and the repo's hooks do not run. */
export async function pushBranch(
  cwd: string,
  branch: string,
  env: Environment,
  redact: Redact,
): Promise<string | null> {
  try {
    const refspec = `HEAD:refs/heads/${branch}`;
    const argv = ["git", "-c", "core.hooksPath=/dev/null", "push", "--quiet", "--no-verify", "origin", refspec];
    const ran = await run(argv, { cwd, env: { ...env, LC_ALL: "C" }, timeoutMs: MOST_MS, keep: "tail" });
    if (ran.code === 0) return null;
    if (ran.timedOut) return "the remote took too long";
    const lines = ran.stderr.toString("utf8").split("\n").filter(Boolean);
    return redact(
      lines.find((line) => /rejected|fatal|error/i.test(line))?.trim() ?? lines.pop() ?? "git said nothing",
    );
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
