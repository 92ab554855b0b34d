/**
 * The local driver: a sandbox is a process tree on this machine, kept apart with bubblewrap where it works.
 *
 * Sandboxes outlive the coordinator; what is on disk (`run.json` and the pid's start time) is the only record of them, so
 * a restarted coordinator, or a second one on the same data folder, sees the same. With bubblewrap a sandbox has a folder by
 * its id and the same inner paths as all others; without, its folder goes by its session, since paths must stay the same.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { AGENT_ENV, AGENT_MALLOC, AGENT_NODE_FLAGS, ERRORS, HangarError } from "@hangar/shared";
import { lockWithin } from "../embedded/lock.ts";
import { gone, signal } from "../embedded/process.ts";
import { findProgram, howToInstall } from "../embedded/redis-server.ts";
import { NO_RESTARTS } from "./driver.ts";
import type { Driver, SandboxSpec, SandboxStatus, WarmSpec } from "./driver.ts";
import {
  bubblewrapArguments,
  hiddenRoots,
  INNER,
  INNER_CODE,
  INNER_SSH_AGENT,
  probeBubblewrap,
  readableForPrograms,
} from "./local-bubblewrap.ts";
import {
  CERTIFICATE_PATHS,
  type HostEnvironment,
  isSshRemote,
  localRemote,
  sandboxEnvironment,
  usersPath,
} from "./local-env.ts";
import { warmCode } from "./local-code.ts";
import { gitIdentity } from "./local-git.ts";
import { endPlain, MARK } from "./local-plain.ts";
import { localWarm } from "./local-warm.ts";
import {
  boundLog,
  isRunning,
  lastLine,
  prepareFolder,
  readRun,
  removeTree,
  toTrash,
  type Run,
  start,
  type Started,
  writeRun,
  writeWarm,
} from "./local-sandbox.ts";

export interface LocalDriverOptions {
  readonly dataDir: string;
  /** The user's own environment: PATH, language, proxies and certificates are passed on from it, and nothing else. */
  readonly env: HostEnvironment;
  /** The user's own home folder, which sandboxes do not see. */
  readonly userHome: string;
  /** More that no sandbox may see, such as a volume store outside the data folder. */
  readonly hidden?: readonly string[];
  /** `auto`: bubblewrap where it works. */
  readonly isolation?: "auto" | "plain";
  /** The program that is started as `<node> <agent> run`. */
  readonly agent?: string;
}

export async function createLocalDriver(given: LocalDriverOptions): Promise<Driver> {
  const agent = given.agent ?? defaultAgent();
  const env: HostEnvironment = { ...given.env, PATH: usersPath(given.env["PATH"] ?? "", installation(agent)) };
  const options = { ...given, env };
  const sandboxes = join(options.dataDir, "sandboxes");
  mkdirSync(sandboxes, { recursive: true, mode: 0o700 });
  const { binary, isolation } = await chooseIsolation(options);
  const identity = await gitIdentity(options.env);
  const callbacks: ((id: string) => void)[] = [];
  /** Sandboxes that this process started, and how they ended. */
  const own = new Map<string, string | null>();
  const removals = new Set<Promise<void>>();
  let poll: NodeJS.Timeout | undefined;
  let known = new Set<string>();
  const code = warmCode(agent, join(options.dataDir, "code"), options.env);
  clearTrash();
  watchAdopted();

  const warm =
    binary === null
      ? null
      : localWarm({ sandboxes, withSession, start: startWarm, remove, adopt: (run) => void own.set(run.id, null) });

  return {
    name: "local",
    isolation,
    keepsFolders: true,
    workspace: (session) => (binary === null ? join(sandboxes, session, "workspace") : INNER.workspace),
    canAdopt: async (id) => {
      const found = find(id);
      return found !== null && canTakeOver(found);
    },
    create: (spec) => withSession(spec.session, () => create(spec)),
    list: async () => all().map(({ run, folder }) => (boundLog(folder), statusOf(run))),
    status: async (id) => {
      const found = find(id);
      return found && statusOf(found.run);
    },
    destroy: (id) =>
      withSession(sessionOf(id), async () => {
        const found = find(id);
        if (!found) return;
        await end(found);
        remove(found.folder);
      }),
    stop: (id) =>
      withSession(sessionOf(id), async () => {
        const found = find(id);
        if (found) await end(found);
      }),
    onChange: (callback) => void callbacks.push(callback),
    madeOf: () => "",
    snapshots: null,
    warm,
    close: async () => {
      clearInterval(poll);
      code.stop();
      // Nobody takes them while there is no Hangar; the next one makes others.
      for (const { id } of (await warm?.list()) ?? []) await warm?.destroy(id);
      await Promise.allSettled(removals);
    },
  };

  async function create(spec: SandboxSpec): Promise<{ adopted: boolean }> {
    const existing = find(spec.id);
    if (existing && isRunning(existing.run)) return { adopted: existing.run.adopted !== null };
    const folder = join(sandboxes, binary === null ? spec.session : spec.id);
    const adopted = takeOver(spec, existing, folder);
    await clear(spec, folder, adopted);
    await prepareFolder(folder);
    const gitConfig = join(folder, "home/.gitconfig");
    if (identity !== null && !existsSync(gitConfig)) writeFileSync(gitConfig, identity, { mode: 0o600 });
    const started = await start(folder, command(spec, folder));
    goOn(spec.id, folder, started, () =>
      writeRun(folder, {
        version: 1,
        id: spec.id,
        session: spec.session,
        generation: spec.generation,
        mode: mode(),
        adopted,
        main: started.main,
        outer: started.outer,
      }),
    );
    return { adopted: adopted !== null };
  }

  /** In a folder by its own id, whose paths inside are those of every sandbox. */
  async function startWarm(spec: WarmSpec, folder: string): Promise<void> {
    await prepareFolder(folder);
    if (identity !== null) writeFileSync(join(folder, "home/.gitconfig"), identity, { mode: 0o600 });
    const started = await start(folder, command(spec, folder));
    goOn(spec.id, folder, started, () =>
      writeWarm(folder, { version: 1, id: spec.id, main: started.main, outer: started.outer }),
    );
  }

  /** What waits to run does so once it is on record. */
  function goOn(id: string, folder: string, started: Started, record: () => void): void {
    try {
      record();
    } catch (error) {
      started.abort();
      throw error;
    }
    own.set(id, null);
    void tellExit(id, folder, started);
    started.go();
  }

  async function tellExit(made: string, folder: string, { main, ended }: Started): Promise<void> {
    const how = await ended;
    // bubblewrap reports its command's end a moment before the namespace is gone.
    await gone(main, 10_000);
    // One that waited is a session's by now.
    const id = readRun(folder)?.id ?? made;
    if (!own.has(id)) return;
    own.set(id, how === "exit 0" ? how : `${how}: ${lastLine(folder)}`);
    for (const callback of callbacks) callback(id);
  }

  /** Moves the leftover that is to be adopted into place, in one step. The sandbox it was of; none: a fresh start. */
  function takeOver(spec: SandboxSpec, existing: Found | null, folder: string): string | null {
    // Begun before, by a coordinator that was killed: it is in place already.
    if (existing?.run.adopted) return existing.run.adopted;
    if (spec.adopt === null) return null;
    const leftover = find(spec.adopt);
    if (!leftover || leftover.run.session !== spec.session || !canTakeOver(leftover)) return null;
    if (leftover.folder !== folder) {
      park(folder);
      renameSync(leftover.folder, folder);
    }
    return spec.adopt;
  }

  /** What lies in a fresh sandbox's way: an earlier try of this start goes, an older sandbox's leftover moves aside. */
  async function clear(spec: SandboxSpec, folder: string, adopted: string | null): Promise<void> {
    const run = readRun(folder);
    if (run) await end({ folder, run });
    if (adopted !== null) return;
    if (run && run.id !== spec.id) park(folder);
    else if (existsSync(folder)) remove(folder);
  }

  /** A leftover that is in the way keeps its folder under its own id. */
  function park(folder: string): void {
    const run = readRun(folder);
    if (run) renameSync(folder, join(sandboxes, `${run.id}.left`));
    else if (existsSync(folder)) remove(folder);
  }

  function command(spec: Pick<SandboxSpec, "id" | "remote" | "env">, folder: string): Parameters<typeof start>[1] {
    const argv = [process.execPath, ...AGENT_NODE_FLAGS, agent, "run"];
    const offered = isSshRemote(spec.remote) ? (options.env["SSH_AUTH_SOCK"] ?? null) : null;
    const sshAgent = offered !== null && existsSync(offered) ? offered : null;
    if (binary === null) {
      const paths = {
        home: join(folder, "home"),
        workspace: join(folder, "workspace"),
        tmp: join(folder, "tmp"),
        state: join(folder, "state"),
      };
      const env = {
        ...sandboxEnvironment(options.env, paths, spec.env, sshAgent),
        ...AGENT_MALLOC,
        [AGENT_ENV.code]: code.folder,
        [MARK]: folder,
      };
      return { argv, env, cwd: paths.workspace, bubblewrap: null };
    }
    const roots = hiddenRoots(options.userHome);
    const view = {
      folder,
      hostname: spec.id,
      userHome: options.userHome,
      hidden: [options.dataDir, ...(options.hidden ?? [])],
      readable: [
        installation(agent),
        process.execPath,
        ...readableForPrograms(options.env["PATH"] ?? "", roots),
        ...CERTIFICATE_PATHS.flatMap((name) => options.env[name] ?? []),
      ],
      remote: localRemote(spec.remote),
      sshAgent,
      code: code.folder,
    };
    return {
      argv,
      env: {
        ...sandboxEnvironment(options.env, INNER, spec.env, sshAgent === null ? null : INNER_SSH_AGENT),
        ...AGENT_MALLOC,
        [AGENT_ENV.code]: INNER_CODE,
        [MARK]: folder,
      },
      cwd: folder,
      bubblewrap: { binary, arguments: bubblewrapArguments(view) },
    };
  }

  /** Every process of it, verified gone. */
  async function end({ folder, run }: Found): Promise<void> {
    own.delete(run.id);
    known.delete(run.id);
    if (run.mode === "plain") {
      if (await endPlain(folder, run.main)) return;
    } else {
      signal(run.main, "SIGKILL");
      if ((await gone(run.main, 20_000)) && (run.outer === null || (await gone(run.outer, 20_000)))) return;
    }
    throw new HangarError("internal", `the processes of ${run.id} (pid ${run.main.pid}) do not end`);
  }

  function remove(folder: string): void {
    background(toTrash(folder));
  }

  function background(trash: string): void {
    const removal = removeTree(trash)
      .catch(() => undefined)
      .finally(() => removals.delete(removal));
    removals.add(removal);
  }

  /** Other replicas and other calls for the same session wait their turn. */
  async function withSession<T>(session: string, work: () => Promise<T>): Promise<T> {
    const lock = await lockWithin(join(sandboxes, `.lock-${session.slice(-2)}`), 60_000);
    try {
      return await work();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOSPC")
        throw new HangarError("disk_full", `the disk of ${options.dataDir} is full: free some space`, { cause: error });
      throw error;
    } finally {
      lock.release();
    }
  }

  function canTakeOver({ run, folder }: Found): boolean {
    return run.mode === mode() && !isRunning(run) && existsSync(join(folder, "workspace"));
  }

  function mode(): Run["mode"] {
    return binary === null ? "plain" : "namespace";
  }

  function find(id: string): Found | null {
    const direct = join(sandboxes, id);
    const run = readRun(direct);
    if (run?.id === id) return { folder: direct, run };
    return all().find((one) => one.run.id === id) ?? null;
  }

  function all(): Found[] {
    return readdirSync(sandboxes).flatMap((name) => {
      if (name.startsWith(".")) return [];
      const folder = join(sandboxes, name);
      const run = readRun(folder);
      return run ? [{ folder, run }] : [];
    });
  }

  function statusOf(run: Run): SandboxStatus {
    const state = isRunning(run) ? "running" : "left";
    const { id, session, generation } = run;
    return { id, session, generation, state, detail: own.get(id) ?? null, start: null, restarts: NO_RESTARTS };
  }

  /** Sandboxes of an earlier coordinator are nobody's children here: looked at now and then, only while there are any. */
  function watchAdopted(): void {
    known = new Set(all().flatMap(({ run }) => (isRunning(run) ? [run.id] : [])));
    if (known.size === 0) return;
    poll = setInterval(() => {
      for (const id of known) {
        const found = find(id);
        if (found && isRunning(found.run)) continue;
        known.delete(id);
        for (const callback of callbacks) callback(id);
      }
      if (known.size === 0) clearInterval(poll);
    }, 5000);
    poll.unref();
  }

  /** What an earlier coordinator was removing when it ended. */
  function clearTrash(): void {
    for (const name of readdirSync(sandboxes)) {
      if (name.startsWith(".trash-")) background(join(sandboxes, name));
    }
  }
}

interface Found {
  readonly folder: string;
  readonly run: Run;
}

async function chooseIsolation(options: LocalDriverOptions): Promise<{ binary: string | null; isolation: string }> {
  const plain = (why: string) => ({
    binary: null,
    isolation: `none: sandboxes are plain folders and can reach all of your files (${why})`,
  });
  if (options.isolation === "plain") return plain("as asked for");
  if (process.platform !== "linux") return plain("bubblewrap needs Linux");
  const binary = findProgram("bwrap", options.env["PATH"] ?? "");
  if (!binary) return plain(`bubblewrap is not installed: ${howToInstall("bubblewrap", "bubblewrap")}`);
  // Tried again: a machine that is short of something for a moment would otherwise run sandboxes in the open.
  const problem = (await probeBubblewrap(binary)) && (await probeBubblewrap(binary));
  if (problem !== null) return plain(`bubblewrap does not work here: ${problem}`);
  return {
    binary,
    isolation: "bubblewrap: own home, /workspace, /tmp and processes; the system read-only; your home hidden",
  };
}

/** `sbx-<8 hex>-g1` is of `ses-<8 hex>`. */
const sessionOf = (sandbox: string): string => `ses-${sandbox.slice(4, 12)}`;

/** Beside the bundle, or in the workspaces of a checkout. */
function defaultAgent(): string {
  const here = fileURLToPath(import.meta.url);
  const candidates = [
    join(dirname(here), "bin/hangar-agent.mjs"),
    join(dirname(here), "../../../sandbox-agent/bin/hangar-agent.mjs"),
  ];
  const found = candidates.find((path) => existsSync(path));
  if (!found) throw new HangarError("missing_cli", `${ERRORS.missing_cli.title}: hangar-agent; install Hangar again`);
  return found;
}

/** What the agent needs of itself: the folder that its packages are installed in, or the checkout with its workspaces. */
function installation(agent: string): string {
  const modules = agent.indexOf("/node_modules/");
  if (modules !== -1) return agent.slice(0, modules + "/node_modules".length);
  const packages = agent.lastIndexOf("/packages/sandbox-agent/");
  if (packages !== -1) return agent.slice(0, packages);
  // An unpacked bundle has its starters one folder down.
  const above = dirname(dirname(agent));
  return existsSync(join(above, "hangar-agent.mjs")) ? above : dirname(agent);
}
