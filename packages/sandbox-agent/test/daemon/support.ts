/** A sandbox on this machine for tests: temporary folders, a bare remote, the daemon as a process of its own. */
import { execFile, execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { AGENT_ENV, newSessionId, newTurnId, sandboxIdOf } from "@hangar/shared";
import type { AgentCommand, BootSpec } from "@hangar/shared";
import { generateIdentity, identityToRecipient } from "age-encryption";
import { afterEach } from "vitest";
import { StandInCoordinator } from "./stand-in-coordinator.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));
const cleanups: Array<(failed: boolean) => Promise<void> | void> = [];

afterEach(async ({ task }) => {
  for (const clean of cleanups.splice(0).toReversed()) await clean(task.result?.state === "fail");
});

/** Folders of one sandbox, and its daemon. */
export class TestSandbox {
  readonly root: string;
  readonly home: string;
  readonly workspace: string;
  readonly state: string;
  readonly log: string;
  readonly repo: string;
  #child: ChildProcess | null = null;
  readonly #coordinator: StandInCoordinator;

  constructor(coordinator: StandInCoordinator, root: string, workspace: string) {
    this.#coordinator = coordinator;
    this.root = root;
    this.home = join(root, "home");
    this.workspace = workspace;
    this.state = join(root, "state");
    this.log = join(root, "log");
    this.repo = coordinator.boot.cwd;
    for (const folder of [this.home, this.workspace, this.state, join(root, "tmp")])
      mkdirSync(folder, { recursive: true });
  }

  get env(): Record<string, string> {
    return {
      PATH: process.env["PATH"] ?? "",
      HOME: this.home,
      TMPDIR: join(this.root, "tmp"),
      SHELL: "/bin/sh",
      LANG: "C.UTF-8",
      [AGENT_ENV.url]: this.#coordinator.url,
      [AGENT_ENV.token]: this.#coordinator.token,
      [AGENT_ENV.sandbox]: this.#coordinator.boot.sandbox,
      [AGENT_ENV.workspace]: this.workspace,
      [AGENT_ENV.state]: this.state,
    };
  }

  /**
   * `namespace`: in a process namespace of its own, as the local driver does it. `stateBytes`: that, and with a state folder on
   * a disk of this size.
   */
  start({ namespace = false, stateBytes = 0 } = {}): void {
    const log = openSync(this.log, "a");
    const daemon = [process.execPath, MAIN, "run"];
    const bubblewrap = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent"];
    if (stateBytes > 0) bubblewrap.push("--size", String(stateBytes), "--tmpfs", this.state);
    bubblewrap.push("--");
    const [program, ...args] =
      namespace || stateBytes > 0 ? [...bubblewrap, "sh", "-c", '"$0" "$@"; exit $?', ...daemon] : daemon;
    this.#child = spawn(program!, args, { cwd: this.root, env: this.env, detached: true, stdio: ["ignore", log, log] });
    closeSync(log);
  }

  /** Another command of the agent in the same sandbox, until it ends. */
  async beside(command: string): Promise<void> {
    await promisify(execFile)(process.execPath, [MAIN, command], { env: this.env });
  }

  kill(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** The exit code once the daemon has ended. */
  async ended(): Promise<number | null> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    return await new Promise((resolve) => child.once("exit", (code) => resolve(code)));
  }

  async destroy(): Promise<void> {
    this.kill("SIGKILL");
    await this.ended();
    this.killLeftovers();
    rmSync(this.root, { recursive: true, force: true, maxRetries: 5 });
  }

  killLeftovers(): void {
    for (const pid of this.processes()) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // it ended by itself meanwhile
      }
    }
  }

  /** What carries this sandbox's mark and still runs. */
  processes(): number[] {
    const mark = `HANGAR_SANDBOX=${this.#coordinator.boot.sandbox}\0`;
    const pids = execFileSync("sh", ["-c", "ls /proc"], { encoding: "utf8" })
      .split("\n")
      .filter((name) => /^\d+$/.test(name));
    return pids.map(Number).filter((pid) => {
      try {
        const ended = readFileSync(`/proc/${pid}/stat`, "latin1")
          .replace(/^.*\) /s, "")
          .startsWith("Z");
        return !ended && readFileSync(`/proc/${pid}/environ`, "latin1").includes(mark);
      } catch {
        return false;
      }
    });
  }

  /** How many processes of this machine have `text` among their arguments. */
  static running(text: string): number {
    const arguments_ = execFileSync("sh", ["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"], {
      encoding: "utf8",
    });
    return arguments_.split(text).length - 1;
  }

  git(...args: string[]): string {
    return git(this.repo, ...args);
  }

  read(path: string): string | null {
    const full = join(this.repo, path);
    return existsSync(full) ? readFileSync(full, "utf8") : null;
  }
}

export interface Stage {
  readonly coordinator: StandInCoordinator;
  readonly sandbox: TestSandbox;
  readonly remote: string;
  /** Another sandbox of the same session, as the next generation, from the newest checkpoints. */
  readonly next: (change?: Partial<BootSpec>) => Promise<TestSandbox>;
}

/** A coordinator and a sandbox whose daemon is not started yet. Everything goes when the test ends. */
export async function stage(change: Partial<BootSpec> = {}): Promise<Stage> {
  const root = mkdtempSync(join(tmpdir(), "hangar-daemon-"));
  const remote = bareRemote(root);
  const workspace = join(root, "workspace");
  const identity = await generateIdentity();
  const session = newSessionId();
  const boot: BootSpec = {
    session,
    sandbox: sandboxIdOf(session, 1),
    generation: 1,
    repo: remote,
    base_branch: "main",
    branch: "hangar/session/test",
    cwd: join(workspace, "project"),
    harness: "script",
    model: null,
    harness_session: null,
    setup: null,
    variables: {},
    secrets: {},
    secret_files: [],
    keep_ignored: [],
    candidates: [],
    identity: null,
    recipients: [await identityToRecipient(identity)],
    adopt: false,
    baseline: false,
    renamed_branch: null,
    harnesses: [],
    git_credentials: false,
    settings: { checkpoint_minutes: 0, max_untracked_bytes: 50 * 1024 * 1024, max_part_bytes: 100 * 1024 * 1024 },
    ...change,
  };
  const coordinator = await StandInCoordinator.start(boot, join(root, "store"));
  const sandbox = new TestSandbox(coordinator, join(root, "g1"), workspace);
  const all = [sandbox];
  cleanups.push(async (failed) => {
    for (const each of failed ? all : [])
      console.error(existsSync(each.log) ? readFileSync(each.log, "utf8") : "no log");
    for (const each of all) await each.destroy();
    await coordinator.close();
    rmSync(root, { recursive: true, force: true, maxRetries: 5 });
  });
  return {
    coordinator,
    sandbox,
    remote,
    next: async (change = {}) => {
      const last = all.at(-1)!;
      last.kill("SIGKILL");
      await last.ended();
      last.killLeftovers();
      rmSync(workspace, { recursive: true, force: true });
      const generation = coordinator.boot.generation + 1;
      coordinator.nextSandbox({
        ...coordinator.boot,
        sandbox: sandboxIdOf(session, generation),
        generation,
        candidates: coordinator.committed.toReversed().map(({ id }) => coordinator.candidate(id)),
        identity,
        harness_session: coordinator.committed.at(-1)?.request.harness_session ?? null,
        ...change,
      });
      const next = new TestSandbox(coordinator, join(root, `g${generation}`), workspace);
      all.push(next);
      return next;
    },
  };
}

export function turn(message: string, more: Partial<Extract<AgentCommand, { kind: "turn" }>> = {}) {
  return {
    kind: "turn",
    turn: newTurnId(),
    harness: "script",
    model: null,
    message,
    preamble: null,
    handoff: false,
    harness_session: null,
    fork: false,
    timeout_seconds: null,
    ...more,
  } satisfies AgentCommand;
}

export function exec(...argv: string[]): Extract<AgentCommand, { kind: "exec" }> {
  return { kind: "exec", argv, cwd: null, timeout_seconds: 30, max_bytes: 100_000 };
}

export function git(cwd: string, ...args: string[]): string {
  const env = {
    PATH: process.env["PATH"],
    HOME: "/nonexistent",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_AUTHOR_NAME: "Test",
    GIT_AUTHOR_EMAIL: "test@example.invalid",
    GIT_COMMITTER_NAME: "Test",
    GIT_COMMITTER_EMAIL: "test@example.invalid",
  };
  return execFileSync("git", args, { cwd, env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
}

/** With branches `main` and `develop`, and two files. */
function bareRemote(root: string): string {
  const remote = join(root, "remote.git");
  const seed = join(root, "seed");
  git(root, "init", "--quiet", "--bare", "--initial-branch=main", remote);
  git(root, "init", "--quiet", "--initial-branch=main", seed);
  writeFileSync(join(seed, "README.md"), "# Project\n");
  writeFileSync(join(seed, "app.txt"), "one\ntwo\nthree\n");
  git(seed, "add", ".");
  git(seed, "commit", "--quiet", "-m", "Start");
  git(seed, "push", "--quiet", remote, "main", "main:develop");
  rmSync(seed, { recursive: true });
  return remote;
}
