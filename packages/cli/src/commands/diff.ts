/**
 * `hangar session diff`: what two sessions' workspaces differ in. Both are put back from their checkpoints here, with the
 * user's own git, in a folder that goes: the coordinator never opens a checkpoint, and no sandbox has to run.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { Context } from "../context.ts";
import { safe } from "../ui.ts";
import { fetchExport, PLAIN } from "./transfer.ts";
import { program } from "./up.ts";

const SAFE = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"];

export async function diffSessions(
  context: Context,
  names: readonly [string, string],
  options: { stat?: boolean; nameOnly?: boolean },
): Promise<void> {
  const { ui } = context;
  const dir = await mkdtemp(join(tmpdir(), "hangar-diff-"));
  try {
    const [a, b] = [await putBack(context, names[0], join(dir, "a")), await putBack(context, names[1], join(dir, "b"))];
    ui.done();
    const how = [...(options.stat ? ["--stat"] : []), ...(options.nameOnly ? ["--name-only"] : [])];
    const color = `--color=${ui.isTerminal ? "always" : "never"}`;
    const env = { GIT_DIR: a.git, GIT_ALTERNATE_OBJECT_DIRECTORIES: join(b.git, "objects") };
    const args = ["--no-pager", ...SAFE, "diff", "--no-ext-diff", color, "-M", ...how, a.tree, b.tree];
    await run("git", args, { env, output: "inherit" });
  } finally {
    ui.done();
    await rm(dir, { recursive: true, force: true });
  }
}

interface Workspace {
  readonly git: string;
  /** Everything that a checkpoint keeps, untracked files too. */
  readonly tree: string;
}

async function putBack(context: Context, name: string, folder: string): Promise<Workspace> {
  const { ui } = context;
  const from = join(folder, "export");
  const { exported } = await fetchExport(context, name, from);
  const repo = join(folder, "repo");
  await mkdir(join(folder, "home"), { recursive: true });
  const url = exported.session.repo;
  if (url !== null) {
    ui.progress(`${name}: cloning ${safe(url)}`);
    await run("git", ["clone", "--quiet", "--no-checkout", "--", url, repo]).catch((error: Error) => {
      throw new HangarError("clone_failed", `${safe(url)} could not be cloned here: ${safe(error.message)}`);
    });
  }
  ui.progress(`${name}: putting it back from ${exported.checkpoint.id}`);
  const agent = [program("hangar-agent"), "restore", "--from", from, "--repo", repo, "--home", join(folder, "home")];
  const declared = (exported.environment?.harnesses ?? []).flatMap(({ conversation }) => conversation?.roots ?? []);
  agent.push(...declared.flatMap((root) => ["--conversations", root]));
  await run(process.execPath, [...agent, "--identity", join(from, PLAIN), "--force"]).catch((error: Error) => {
    throw new HangarError("checkpoint_invalid", `${name} could not be put back: ${safe(error.message)}`);
  });
  const git = join(repo, ".git");
  const index = join(folder, "index");
  // Of a repository in which nothing was ever added, there is none.
  await copyFile(join(git, "index"), index).catch(() => undefined);
  const env = { GIT_DIR: git, GIT_WORK_TREE: repo, GIT_INDEX_FILE: index };
  await run("git", [...SAFE, "-c", "advice.addEmbeddedRepo=false", "add", "--all", "."], { env, cwd: repo });
  return { git, tree: (await run("git", [...SAFE, "write-tree"], { env, cwd: repo })).trim() };
}

/** Its standard output; rejects with what it complained of. */
async function run(
  command: string,
  args: readonly string[],
  { env, cwd, output }: { env?: Record<string, string>; cwd?: string; output?: "inherit" } = {},
): Promise<string> {
  const child: ChildProcess = spawn(command, args, {
    stdio: ["ignore", output ?? "pipe", "pipe"],
    env: { ...process.env, ...env },
    ...(cwd !== undefined && { cwd }),
  });
  let [said, complained] = ["", ""];
  child.stdout?.on("data", (bytes: Buffer) => (said += bytes.toString("utf8")));
  child.stderr?.on("data", (bytes: Buffer) => (complained = (complained + bytes.toString("utf8")).slice(-4000)));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  if (code === 0) return said;
  throw new Error(complained.trim().split("\n").pop() || `${command} ended with ${code ?? "a signal"}`);
}
