/** A fork's own branch in the place of its parent's. */
import { run } from "./process.ts";
import type { Environment } from "./sandbox-env.ts";

/** None: done, or there was nothing to rename. Else why not, in one line. Never rejects. Runs none of the repo's hooks. */
export async function renameBranch(cwd: string, from: string, to: string, env: Environment): Promise<string | null> {
  const git = async (...args: string[]): Promise<{ code: number | null; said: string }> => {
    const argv = ["git", "-c", "core.hooksPath=/dev/null", ...args];
    const ran = await run(argv, { cwd, env: { ...env, LC_ALL: "C" }, keep: "tail" });
    return { code: ran.code, said: ran.stderr.toString("utf8").trim().split("\n").pop() ?? "" };
  };
  try {
    const current = await run(["git", "symbolic-ref", "-q", "HEAD"], { cwd, env });
    if (from === to || current.stdout.toString("utf8").trim() !== `refs/heads/${from}`) return null;
    // On a branch without a commit there is nothing to move.
    if ((await git("rev-parse", "-q", "--verify", "HEAD")).code !== 0) {
      const moved = await git("symbolic-ref", "HEAD", `refs/heads/${to}`);
      return moved.code === 0 ? null : moved.said;
    }
    const renamed = await git("branch", "-m", from, to);
    if (renamed.code !== 0) return renamed.said;
    // A push would go to the parent's branch.
    await git("config", "--unset-all", `branch.${to}.merge`, `^refs/heads/${from.replace(/[^\w/-]/g, "\\$&")}$`);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
