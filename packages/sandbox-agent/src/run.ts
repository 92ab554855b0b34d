/**
 * `hangar-agent run`: the daemon of a sandbox. It dials the coordinator, prepares the workspace, and then does what it is
 * told until the sandbox ends. Everything it has promised is in its state folder, so that it can be killed at any time.
 */
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HangarError, redactor } from "@hangar/shared";
import type { AgentEvent, BootSpec, Redactor, StartPhase, Successor } from "@hangar/shared";
import { ActivityWatch } from "./activity.ts";
import { pause } from "./backoff.ts";
import { markReady, prepareWorkspace } from "./boot.ts";
import { PATIENCE_MS } from "./checkpointer.ts";
import { Commands } from "./commands.ts";
import type { Sandbox } from "./commands.ts";
import { isWaiting, readConfig } from "./config.ts";
import type { Config } from "./config.ts";
import { rootsWith } from "./conversation-roots.ts";
import { Conversation } from "./conversation-state.ts";
import { coordinatorHttp } from "./coordinator-http.ts";
import type { Coordinator } from "./coordinator-http.ts";
import { CoordinatorLink } from "./coordinator-link.ts";
import { isCode } from "./durable.ts";
import { makeHarnesses } from "./harness/registry.ts";
import { Journal } from "./journal.ts";
import { newLog } from "./log.ts";
import type { Log } from "./log.ts";
import { writePid } from "./end.ts";
import { endLeftovers } from "./processes.ts";
import { renameBranch } from "./rename-branch.ts";
import { makeSandbox } from "./sandbox.ts";
import { prepareEnvironment } from "./sandbox-env.ts";
import { linkSecretFiles, writeSecretFiles } from "./secret-files.ts";
import { Spool } from "./spool.ts";
import { tmuxFolder } from "./terminal/tmux.ts";
import { waitForSession } from "./warm/wait.ts";

/** Resolves with the exit code once the sandbox has ended. The caller exits with it. */
export async function run(_argv: readonly string[]): Promise<number> {
  const config = readConfig(process.env);
  // Where these are fresh volumes, their mount points belong to root.
  for (const folder of [config.state, config.home]) mkdirSync(folder, { recursive: true, mode: 0o700 });
  writePid(config.state);
  const stop = new AbortController();
  let log = newLog(config.sandbox, redactor([config.token]));
  let told = false;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      // Somebody at a keyboard may be out of patience. An orchestrator repeats SIGTERM, and has SIGKILL for that.
      if (told && signal === "SIGINT") process.exit(1);
      if (told) return;
      told = true;
      log.info(`${signal}: ending`);
      stop.abort();
    });
  }
  process.on("SIGHUP", () => undefined);
  process.on("unhandledRejection", (error) => log.error(`a promise was left alone: ${String(error)}`));
  const own = isWaiting(config) ? await waitForSession(config, stop.signal) : config;
  if (own === null) return 0;
  for (let present = own; ;) {
    const daemon = new Daemon(present);
    ({ log } = daemon);
    const terminate = (): void => daemon.terminate();
    if (stop.signal.aborted) terminate();
    stop.signal.addEventListener("abort", terminate);
    const outcome = await daemon.run();
    stop.signal.removeEventListener("abort", terminate);
    if (typeof outcome === "number") return outcome;
    present = { ...present, ...outcome };
  }
}

class Daemon {
  readonly #config: Config;
  readonly log: Log;
  readonly #coordinator: Coordinator;
  readonly #spool: Spool;
  readonly #journal: Journal;
  readonly #conversation: Conversation;
  readonly #activity: ActivityWatch;
  readonly #link: CoordinatorLink;
  readonly #tmuxFolder: string;
  readonly #ready = Promise.withResolvers<Sandbox>();
  readonly #exit = Promise.withResolvers<number | Successor>();
  readonly #stop = new AbortController();
  readonly #waiting = new Set<() => void>();
  /** Before the boot answer has brought the secrets, it knows the sandbox's own token. */
  #redact: Redactor;
  #sandbox: Sandbox | null = null;
  #phase: StartPhase = "starting";
  #ending = false;

  constructor(config: Config) {
    this.#redact = redactor([config.token]);
    const log = newLog(config.sandbox, (text) => this.#redact(text));
    const warn = (message: string): void => log.warn(message);
    this.#config = config;
    this.log = log;
    this.#coordinator = coordinatorHttp(config.urls, config.token, 3);
    this.#spool = new Spool(config.state, warn, () => this.#redact);
    this.#journal = new Journal(config.state, warn);
    this.#conversation = new Conversation(config.home);
    this.#tmuxFolder = tmuxFolder(config.state, config.mark);
    this.#activity = new ActivityWatch({
      tmuxFolder: this.#tmuxFolder,
      env: () => config.base,
      turnRunning: () => this.#sandbox?.turns.active ?? false,
    });
    const commands = new Commands({
      journal: this.#journal,
      activity: this.#activity,
      log,
      redact: (text) => this.#redact(text),
      sandbox: this.#ready.promise,
      answer: (id, reply) => this.#link.answer(id, reply),
    });
    this.#ready.promise.catch(() => undefined);
    this.#link = new CoordinatorLink({
      urls: config.urls,
      token: config.token,
      sandbox: config.sandbox,
      spool: this.#spool,
      journal: this.#journal,
      log,
      heartbeat: async () => ({
        phase: this.#phase,
        frozen: this.#sandbox?.freezer.frozen ?? false,
        activity: await this.#activity.now(),
      }),
      onCommand: (id, command) => commands.take(id, command),
      onSuperseded: (generation) => void this.#superseded(generation),
      onLeaseLost: () => this.#leaseLost(),
      onWelcome: () => this.#linked(),
    });
  }

  /** The exit code, or as what to go on. */
  async run(): Promise<number | Successor> {
    this.#link.start();
    this.#start().catch((error: unknown) => void this.#startFailed(error));
    const code = await this.#exit.promise;
    this.#stop.abort();
    await this.#link.close();
    this.#spool.close();
    this.#journal.close();
    return code;
  }

  /** SIGTERM: a last checkpoint when there is something to take one of. */
  terminate(): void {
    void this.#terminate();
  }

  async #start(): Promise<void> {
    const config = this.#config;
    const signal = this.#stop.signal;
    const boot = await this.#coordinator.boot(signal);
    checkBoot(boot, config);
    const harnesses = makeHarnesses(boot.harnesses);
    const harness = harnesses(boot.harness);
    const redact = redactor(secretsOf(boot, config));
    this.#redact = redact;
    const agent = [process.execPath, process.argv[1] ?? ""];
    const env = await prepareEnvironment({ config, boot, harness, agent, tmuxFolder: this.#tmuxFolder });
    const roots = rootsWith(boot.harnesses);
    const files = { home: config.home, cwd: boot.cwd, files: boot.secret_files, roots };
    writeSecretFiles(files);
    if (this.#conversation.current?.harness !== boot.harness) {
      this.#conversation.set({ harness: boot.harness, session: boot.harness_session });
    }
    const sandbox = makeSandbox({
      config,
      boot,
      harnesses,
      env,
      redact,
      coordinator: this.#coordinator,
      log: this.log,
      spool: this.#spool,
      conversation: this.#conversation,
      activity: this.#activity,
      linked: () => this.#link.connected,
      nextLink: (signal) => this.#nextLink(signal),
      onSuperseded: () => void this.#superseded(null),
      onChange: () => this.#link.beat(),
    });
    const booted = await prepareWorkspace({
      coordinator: this.#coordinator,
      workspace: sandbox.workspace,
      identity: boot.identity,
      state: config.state,
      log: this.log,
      signal,
      boot,
      env,
      redact,
      linkSecrets: () => linkSecretFiles(files),
      onPhase: (phase, detail) => this.#say(phase, detail),
    });
    signal.throwIfAborted();
    linkSecretFiles(files);
    if (boot.renamed_branch !== null && booted.restored?.source === "checkpoint") {
      const why = await renameBranch(boot.cwd, boot.renamed_branch, boot.branch, env);
      if (why !== null) this.log.warn(`the branch ${boot.renamed_branch} keeps its name: ${why}`);
    }
    if (booted.parent !== "keep") sandbox.checkpointer.restoredFrom(boot.baseline ? null : booted.parent);
    if (booted.restored) this.#spool.add(booted.restored);
    this.#say("ready", null);
    markReady({ state: config.state, boot });
    rmSync(join(config.state, "restore"), { recursive: true, force: true });
    this.#sandbox = sandbox;
    await sandbox.turns.recover();
    this.#ready.resolve(sandbox);
    this.#housekeeping(sandbox, boot, booted.restored?.source ?? null);
  }

  /** Checkpoints that nobody asked for. */
  #housekeeping({ checkpointer, freezer }: Sandbox, boot: BootSpec, source: string | null): void {
    if (source === "fresh") void checkpointer.untouched();
    else if (source !== "checkpoint" || boot.baseline) void checkpointer.interval();
    const minutes = boot.settings.checkpoint_minutes;
    if (minutes === 0) return;
    const timer = setInterval(() => {
      if (!freezer.frozen) void checkpointer.interval();
    }, minutes * 60_000);
    this.#stop.signal.addEventListener("abort", () => clearInterval(timer));
  }

  /** Says so, and stays until the coordinator has heard it. */
  async #startFailed(error: unknown): Promise<void> {
    if (this.#stop.signal.aborted || this.#ending) return;
    const failure = startFailure(error);
    this.log.error(`the start failed: ${failure.message}`);
    this.#ready.reject(failure);
    if (failure.code === "stale_generation") return await this.#superseded(null);
    const event: AgentEvent = { type: "start_failed", code: failure.code, error: failure.message };
    const seq = this.#spool.add(event);
    const until = failure.code === "unauthorized" ? performance.now() + 30_000 : Infinity;
    while (this.#spool.acked < seq && performance.now() < until && !this.#stop.signal.aborted) {
      await pause(100, this.#stop.signal);
    }
    this.#exit.resolve(1);
  }

  #say(phase: StartPhase, detail: string | null): void {
    this.#phase = phase;
    this.#spool.add({ type: "phase", phase, detail });
    this.#link.beat();
  }

  #linked(): void {
    for (const wake of this.#waiting) wake();
    void this.#sandbox?.checkpointer.flush();
  }

  #nextLink(signal: AbortSignal): Promise<void> {
    if (this.#link.connected) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const wake = (): void => {
        this.#waiting.delete(wake);
        signal.removeEventListener("abort", stop);
        resolve();
      };
      const stop = (): void => {
        this.#waiting.delete(wake);
        reject(signal.reason as Error);
      };
      if (signal.aborted) return stop();
      this.#waiting.add(wake);
      signal.addEventListener("abort", stop, { once: true });
    });
  }

  /** Another sandbox may own the session by now: what is here is kept, and nothing goes on. */
  #leaseLost(): void {
    const sandbox = this.#sandbox;
    if (!sandbox || sandbox.freezer.frozen) return;
    this.log.warn("cut off for longer than the lease: the turn is stopped and a checkpoint is kept here");
    // A turn takes its checkpoint by itself.
    if (sandbox.turns.unsettled !== null) void sandbox.turns.interrupt();
    else {
      const task = {
        reason: "interval",
        ifChanged: true,
        turn: null,
        patienceMs: PATIENCE_MS,
        waitForLink: true,
      } as const;
      void sandbox.checkpointer.take(task);
    }
  }

  async #superseded(generation: number | null): Promise<void> {
    if (this.#ending) return;
    this.#ending = true;
    const successor = await this.#successor();
    if (successor) {
      this.log.info(`woken in a restored snapshot: going on as ${successor.sandbox}`);
      this.#stop.abort();
      this.#sandbox?.freezer.thaw();
      return this.#exit.resolve(successor);
    }
    this.log.warn(`superseded${generation === null ? "" : ` by generation ${generation}`}: ending everything`);
    this.#stop.abort();
    this.#sandbox?.checkpointer.interrupt();
    void this.#sandbox?.turns.interrupt();
    await this.#sandbox?.terminals.closeAll();
    await endLeftovers(this.#config.mark);
    this.#exit.resolve(0);
  }

  /** Only a sandbox that was suspended can have been restored: its processes are where the snapshot caught them. */
  async #successor(): Promise<Successor | null> {
    if (!this.#sandbox?.freezer.frozen) return null;
    try {
      return await this.#coordinator.successor(AbortSignal.timeout(30_000));
    } catch {
      return null;
    }
  }

  async #terminate(): Promise<void> {
    if (this.#ending) return;
    this.#ending = true;
    await this.#sandbox?.freezer.last(this.#config.lastMs);
    this.#stop.abort();
    const last = this.#spool.next - 1;
    for (let wait = 0; wait < 40 && this.#spool.acked < last && this.#link.connected; wait++) await pause(50);
    this.#exit.resolve(0);
  }
}

/** What must not be seen outside of this sandbox. */
const secretsOf = (boot: BootSpec, config: Config): string[] => [
  ...Object.values(boot.secrets),
  ...boot.secret_files.map(({ value }) => value),
  config.token,
  ...(boot.identity === null ? [] : [boot.identity]),
];

function startFailure(error: unknown): HangarError {
  if (error instanceof HangarError) return error;
  const full = isCode(error, "ENOSPC") || isCode(error, "EDQUOT");
  if (full)
    return new HangarError("disk_full", "The disk of the sandbox is full: make room and open the session again");
  return new HangarError("internal", oneLine(error), { cause: error });
}

/** The repo's folder is removed and renamed by its path, so it must lie where the driver says. */
function checkBoot(boot: BootSpec, config: Config): void {
  if (boot.sandbox !== config.sandbox) {
    throw new HangarError("unauthorized", `The token belongs to ${boot.sandbox}, and this is ${config.sandbox}`);
  }
  if (!boot.cwd.startsWith(`${config.workspace}/`) || boot.cwd.split("/").includes("..")) {
    throw new HangarError("internal", `The repo's folder ${boot.cwd} is not inside ${config.workspace}`);
  }
}

const oneLine = (error: unknown): string => (error instanceof Error ? error.message : String(error)).split("\n")[0]!;
