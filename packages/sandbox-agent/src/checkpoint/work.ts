/** Refuses to overwrite commits that exist nowhere else. */
import { HangarError } from "@hangar/shared";
import { fixedEnv, type GitDirs, OFF, tryGit } from "./git.ts";
import { stringPath } from "./raw.ts";
import type { Workspace } from "./types.ts";

/** @throws HangarError `workspace_has_work` naming a commit that no remote-tracking ref reaches. */
export async function refuseWork(ws: Workspace, dirs: GitDirs, signal?: AbortSignal): Promise<void> {
  const env = { ...fixedEnv(ws.home), GIT_DIR: stringPath(dirs.gitDir) };
  const options = { env, cwd: dirs.worktree, signal };
  const stash = await tryGit([...OFF, "rev-parse", "-q", "--verify", "refs/stash"], options);
  const head = await tryGit([...OFF, "rev-parse", "-q", "--verify", "HEAD^{commit}"], options);
  const tips = ["--branches", ...(head.code === 0 ? ["HEAD"] : []), ...(stash.code === 0 ? ["refs/stash"] : [])];
  const lost = await tryGit([...OFF, "rev-list", "--max-count=1", ...tips, "--not", "--remotes"], options);
  const commit = lost.stdout.toString("latin1").trim();
  if (lost.code === 0 && commit === "") return;
  if (lost.code !== 0)
    throw new HangarError(
      "workspace_has_work",
      `${ws.repo} is no fresh clone (git rev-list: ${lost.stderr.trim().slice(0, 200)}): use another, or --force`,
    );
  throw new HangarError(
    "workspace_has_work",
    `${ws.repo} has commits that its remote lacks (${commit.slice(0, 12)}): push them, restore into a fresh clone, or use --force`,
  );
}
