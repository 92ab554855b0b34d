/**
 * A start, from the boot answer to a workspace that is ready: adopted, or cloned, set up and restored.
 *
 * How far it came is on disk (`boot.json`): a daemon restarted in place after `ready` goes on with the workspace as it is;
 * one restarted before begins again from nothing, since what is there is a part of its own making.
 */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { HangarError, SandboxId } from "@hangar/shared";
import type { AgentEvent, BootSpec, Redactor, StartPhase } from "@hangar/shared";
import { z } from "zod";
import { fetchCandidate, missingFrom, restoreFetched } from "./candidates.ts";
import type { Bad, Fetched, RestoreDeps } from "./candidates.ts";
import type { ParentState } from "./checkpoint/engine.ts";
import { cloneWorkspace } from "./clone.ts";
import { isCode, readJson, replaceFile } from "./durable.ts";
import { run } from "./process.ts";
import type { Environment } from "./sandbox-env.ts";
import { runSetup } from "./setup.ts";
import { hasWarmWorkspace, madeOf, takeWarmWorkspace } from "./warm/workspace.ts";

export interface BootDeps extends RestoreDeps {
  readonly boot: BootSpec;
  readonly env: Environment;
  readonly redact: Redactor;
  /** Puts the secrets that are files into the workspace. */
  readonly linkSecrets: () => void;
  readonly onPhase: (phase: StartPhase, detail: string | null) => void;
}

export type RestoredEvent = Extract<AgentEvent, { type: "restored" }>;

export interface Booted {
  /** How the workspace came about; none: the daemon was restarted in place, and it was ready before. */
  readonly restored: RestoredEvent | null;
  /** For the next checkpoint; `keep`: what is on disk goes on holding. */
  readonly parent: ParentState | null | "keep";
}

const Progress = z.strictObject({
  sandbox: SandboxId,
  /** `cloning`: what lies in the workspace is of this start's making and may be removed. */
  stage: z.enum(["cloning", "ready"]),
  missing: z.array(z.string()),
});
type Progress = z.infer<typeof Progress>;

/** Rejects with HangarError for what ends the start, or with the signal's reason. */
export async function prepareWorkspace(deps: BootDeps): Promise<Booted> {
  const { boot } = deps;
  const progress = readProgress(deps);
  if (progress?.stage === "ready") return { restored: null, parent: "keep" };
  const begun = performance.now();
  if (progress === null && boot.adopt && (await isSound(deps))) {
    return { restored: restoredEvent({ source: "adopted", verified: true, begun }), parent: null };
  }
  // What lies there is either of this start's own making, or somebody's work, which is never removed.
  const isWarm = progress === null && hasWarmWorkspace(deps.state, boot);
  const missing = progress?.missing ?? (isWarm ? [] : setAside(deps));
  saveProgress(deps, { sandbox: boot.sandbox, stage: "cloning", missing });
  replaceFile(startingMark(boot), boot.sandbox);
  return await cloneAndRestore(deps, missing, begun, isWarm);
}

/** From here on a restarted daemon takes the workspace as it is. */
export function markReady(deps: Pick<BootDeps, "state" | "boot">): void {
  rmSync(startingMark(deps.boot), { force: true });
  saveProgress(deps, { sandbox: deps.boot.sandbox, stage: "ready", missing: [] });
}

async function cloneAndRestore(
  deps: BootDeps,
  missing: readonly string[],
  begun: number,
  isWarm: boolean,
): Promise<Booted> {
  const { candidates } = deps.boot;
  const seconds: Record<string, number> = {};
  const bad: Bad[] = [];
  // What needs no repository of the restore is done while that is cloned and set up.
  let next = candidates.length === 0 ? null : fetch(deps, candidates[0]!);
  let cloned = clone(deps, seconds, isWarm);
  cloned.catch(() => undefined);
  if (!next) {
    const warnings = await cloned;
    return {
      restored: restoredEvent({ source: "fresh", verified: true, begun, missing: [...missing], warnings, seconds }),
      parent: null,
    };
  }
  for (let at = 0; at < candidates.length; at++) {
    const candidate = candidates[at]!;
    const after = afterClone(deps, cloned, at === 0 ? null : `an older checkpoint: ${candidate.checkpoint}`);
    after.catch(() => undefined);
    try {
      next ??= fetch(deps, candidate);
      const restored = await restoreFetched(deps, (await next)(), after);
      seconds["restoring"] = (performance.now() - (await after)) / 1000;
      for (const [name, value] of Object.entries(restored.report.seconds)) seconds[`restore.${name}`] = value;
      return {
        restored: restoredEvent({
          source: "checkpoint",
          checkpoint: candidate.checkpoint,
          verified: restored.report.verified,
          begun,
          missing: [...missing, ...missingFrom(restored, bad)],
          bad,
          warnings: [...(await cloned), ...restored.report.warnings].slice(0, 200),
          seconds,
        }),
        // Where it was not the newest, its successor must be whole all the same: it is the parent's parts that count.
        parent: restored.next,
      };
    } catch (error) {
      // What is wrong with the clone ends the start; it is no candidate's fault.
      await cloned;
      deps.signal.throwIfAborted();
      if (isDiskFull(error)) throw diskFull(error);
      const why = deps.redact(error instanceof Error ? error.message : String(error)).slice(0, 2000);
      deps.log.warn(`checkpoint ${candidate.checkpoint} cannot be restored: ${why}`);
      bad.push({ checkpoint: candidate.checkpoint, why });
      next = at + 1 < candidates.length ? fetch(deps, candidates[at + 1]!) : null;
      // What the bad one left must not mix with the older one.
      if (next) {
        cloned = freshClone(deps, seconds);
        cloned.catch(() => undefined);
      }
    }
  }
  const tried = bad.map(({ checkpoint, why }) => `${checkpoint}: ${why}`).join("; ");
  throw new HangarError("checkpoint_invalid", `None of the checkpoints can be restored: ${tried}`.slice(0, 4000));
}

/** The one that was made ahead, or a fresh one; warnings for people. */
async function clone(deps: BootDeps, seconds: Record<string, number>, isWarm: boolean): Promise<string[]> {
  return isWarm && (await warmClone(deps, seconds)) ? [] : await freshClone(deps, seconds);
}

/** When the clone was there, ms of this process; says then what comes next. */
async function afterClone(deps: BootDeps, cloned: Promise<unknown>, detail: string | null): Promise<number> {
  await cloned;
  deps.onPhase("restoring", detail);
  return performance.now();
}

/** Begins at once; what goes wrong is for whoever asks. */
function fetch(deps: BootDeps, candidate: BootSpec["candidates"][number]): Promise<() => Fetched> {
  return fetchCandidate(deps, candidate).then(
    (fetched) => () => fetched,
    (error: unknown) => () => {
      throw error;
    },
  );
}

/** The clone that was made ahead; false: it cannot be used, and another is made in its place. */
async function warmClone(deps: BootDeps, seconds: Record<string, number>): Promise<boolean> {
  const { boot, env, redact, signal, state } = deps;
  const since = performance.now();
  deps.onPhase("cloning", "a warm clone, brought up to date");
  try {
    const setup = (): void => {
      deps.linkSecrets();
      deps.onPhase("setup", "again, since the base branch has moved");
    };
    await takeWarmWorkspace({ made: madeOf(boot), branch: boot.branch, env, redact, signal, state }, setup);
  } catch (error) {
    signal.throwIfAborted();
    deps.log.warn(`the warm clone is not used: ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
  deps.linkSecrets();
  seconds["warm"] = (performance.now() - since) / 1000;
  return true;
}

async function freshClone(deps: BootDeps, seconds: Record<string, number>): Promise<string[]> {
  const { boot, env, redact, signal } = deps;
  const since = performance.now();
  deps.onPhase("cloning", boot.repo === null ? null : redact(boot.repo));
  await rm(boot.cwd, { recursive: true, force: true });
  const warnings = await cloneWorkspace({
    repo: boot.repo,
    baseBranch: boot.base_branch,
    // A checkpoint says what is checked out; until then, only set-up would ask.
    branch: boot.candidates.length > 0 && !hasSetup(boot) ? null : boot.branch,
    cwd: boot.cwd,
    env,
    redact,
    signal,
    baseMayBeGone: boot.candidates.length > 0,
  });
  seconds["cloning"] = (performance.now() - since) / 1000;
  deps.linkSecrets();
  if (hasSetup(boot)) {
    const since = performance.now();
    deps.onPhase("setup", null);
    await runSetup({ script: boot.setup ?? "", cwd: boot.cwd, env, state: deps.state, redact, signal });
    seconds["setup"] = (performance.now() - since) / 1000;
  }
  return warnings;
}

const hasSetup = ({ setup }: BootSpec): boolean => setup !== null && setup.trim() !== "";

/**
 * Lies beside the repo from before the clone until it is ready. A sandbox that takes the folder over has another state folder,
 * so this is what tells it that the start before did not come far enough for the repo to be the session's.
 */
const startingMark = ({ cwd }: BootSpec): string => join(dirname(cwd), `.${basename(cwd)}.starting`);

async function isSound({ boot, env, log }: BootDeps): Promise<boolean> {
  if (!existsSync(join(boot.cwd, ".git")) || existsSync(startingMark(boot))) return false;
  const git = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
  for (const args of [
    ["rev-parse", "--show-toplevel"],
    ["status", "--porcelain"],
  ]) {
    const ran = await run([...git, ...args], { cwd: boot.cwd, env: { ...env, GIT_OPTIONAL_LOCKS: "0" } });
    if (ran.code === 0) continue;
    log.warn(`the leftover folder is not sound: ${ran.stderr.toString("utf8").trim().split("\n").pop() ?? ""}`);
    return false;
  }
  return true;
}

/** Moves what lies where the repo goes out of the way; says where it is, also when that was done before a restart. */
function setAside({ boot, state, log }: BootDeps): string[] {
  // A start that did not get ready has made it, and nobody has worked in it.
  if (existsSync(startingMark(boot))) rmSync(boot.cwd, { recursive: true, force: true });
  const name = `${basename(boot.cwd)}.aside-${boot.sandbox}`;
  const places = [join(state, "aside", name), join(dirname(boot.cwd), name)];
  if (existsSync(boot.cwd)) {
    mkdirSync(dirname(places[0]!), { recursive: true, mode: 0o700 });
    moveTo(boot.cwd, places);
  }
  const aside = places.find((place) => existsSync(place));
  if (aside === undefined) return [];
  log.warn(`what lay at ${boot.cwd} is set aside at ${aside}`);
  if (!boot.adopt) return [];
  return [
    `The folder of the sandbox before was damaged; what it held after the last checkpoint is set aside at ${aside}`,
  ];
}

function moveTo(path: string, places: readonly string[]): void {
  for (const place of places) {
    try {
      return renameSync(path, place);
    } catch (error) {
      if (!isCode(error, "EXDEV")) throw error;
    }
  }
}

function restoredEvent(
  event: Partial<RestoredEvent> & Pick<RestoredEvent, "source" | "verified"> & { begun: number },
): RestoredEvent {
  const { begun, seconds, ...rest } = event;
  const total = (performance.now() - begun) / 1000;
  return {
    type: "restored",
    checkpoint: null,
    missing: [],
    bad: [],
    warnings: [],
    ...rest,
    seconds: { ...seconds, total },
  };
}

function readProgress({ state, boot }: BootDeps): Progress | null {
  const progress = readJson(join(state, "boot.json"), Progress);
  return progress?.sandbox === boot.sandbox ? progress : null;
}

function saveProgress({ state }: Pick<BootDeps, "state">, progress: Progress): void {
  replaceFile(join(state, "boot.json"), JSON.stringify(progress));
}

const isDiskFull = (error: unknown): boolean =>
  isCode(error, "ENOSPC") || (error instanceof HangarError && error.code === "disk_full");
const diskFull = (cause: unknown): HangarError =>
  new HangarError("disk_full", "The disk of the sandbox is full: the session does not fit", { cause });
