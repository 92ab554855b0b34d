/** All terminals of the sandbox: shells and interactive resumes of the harness, in tmux where it is installed. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { AgentCommand } from "@hangar/shared";
import type { ActivityWatch } from "../activity.ts";
import type { Conversation } from "../conversation-state.ts";
import { requireProgram } from "../harness/find-program.ts";
import type { Harness } from "../harness/harness.ts";
import { shellQuote } from "../sandbox-env.ts";
import { openTerminal } from "./terminal.ts";
import type { Terminal } from "./terminal.ts";
import { Tmux } from "./tmux.ts";

export type TerminalCommand = Extract<AgentCommand, { kind: "terminal" }>;

export interface TerminalsOptions {
  readonly token: string;
  readonly state: string;
  readonly home: string;
  readonly cwd: string;
  readonly shell: string;
  readonly env: Readonly<Record<string, string>>;
  /** By name; throws for one that is not known. */
  readonly harnesses: (name: string) => Harness;
  readonly conversation: Conversation;
  readonly activity: ActivityWatch;
  readonly turnRunning: () => boolean;
}

const MOST = 32;
const SHELL_SESSION = "shell";
const HARNESS_SESSION = "harness";

export class Terminals {
  readonly #options: TerminalsOptions;
  readonly #tmux: Tmux;
  readonly #env: Readonly<Record<string, string>>;
  readonly #open = new Set<Terminal>();
  #closed = false;

  constructor(options: TerminalsOptions) {
    this.#options = options;
    // A person is there to answer git's prompts.
    const { GIT_TERMINAL_PROMPT: _, ...env } = options.env;
    this.#env = { ...env, TERM: "xterm-256color", COLORTERM: "truecolor" };
    this.#tmux = new Tmux(this.#env, options.cwd);
  }

  /** Returns when it is connected. `wrong_state`: frozen, too many, or a turn runs in the conversation that is asked for. */
  async open(command: TerminalCommand): Promise<void> {
    if (this.#open.size >= MOST)
      throw new HangarError("wrong_state", `There are ${MOST} terminals open: close one first`);
    const program = await this.#program(command);
    const { token, cwd, activity } = this.#options;
    const terminal = await openTerminal({
      url: command.url,
      token,
      ...program,
      env: this.#env,
      cwd,
      cols: command.cols,
      rows: command.rows,
      onOpened: (pid) => activity.terminalOpened(pid),
      onKey: () => activity.touch(),
      onClosed: (pid) => activity.terminalClosed(pid),
    });
    this.#open.add(terminal);
    void terminal.closed.then(() => this.#open.delete(terminal));
    if (this.#closed) terminal.close();
  }

  /** A turn is about to start: nobody may be in its conversation. Throws `wrong_state` while somebody is. */
  async leaveConversation(): Promise<void> {
    if (!(await this.#tmux.has(HARNESS_SESSION))) return;
    if (await this.#tmux.attached(HARNESS_SESSION)) {
      throw new HangarError("wrong_state", "Somebody talks to the agent in a terminal: close it first, or talk there");
    }
    await this.#tmux.end(HARNESS_SESSION);
  }

  /** Ends all of them, and what runs in tmux unless that is kept. */
  async closeAll(keep = false): Promise<void> {
    this.#closed = true;
    for (const terminal of this.#open) terminal.close();
    if (!keep) await this.#tmux.endAll();
    await Promise.race([Promise.all([...this.#open].map((terminal) => terminal.closed)), later(2000)]);
  }

  reopen(): void {
    this.#closed = false;
  }

  async #program(command: TerminalCommand): Promise<{ argv: [string, ...string[]]; notice: string | null }> {
    const { what } = command;
    const argv = what === "shell" ? this.#shell() : await this.#resume(command);
    if (!(await this.#tmux.installed())) {
      return { argv, notice: "hangar: tmux is not installed here, so this terminal ends when you leave it." };
    }
    return { argv: this.#tmux.attach(what === "shell" ? SHELL_SESSION : HARNESS_SESSION, argv), notice: null };
  }

  #shell(): [string, ...string[]] {
    return [this.#options.shell, "-l"];
  }

  /** A file, since the harness's own variables must not appear among a process's arguments. */
  async #resume({ harness: name, harness_session, model }: TerminalCommand): Promise<[string, ...string[]]> {
    const { home, cwd, conversation, state } = this.#options;
    const harness = this.#options.harnesses(name);
    if (this.#options.turnRunning()) {
      throw new HangarError("wrong_state", "A turn is running in this conversation: wait for it, or cancel it");
    }
    const place = { home, cwd, env: this.#env };
    await requireProgram(harness, this.#env);
    await harness.seed(place);
    const { current } = conversation;
    const changed = current !== null && current.harness !== name;
    // The one that runs in tmux is then the agent that the session left.
    if (changed) await this.leaveConversation();
    const known = current?.harness === name ? current.session : harness_session;
    const valid = known !== null && harness.supportsResume && harness.validConversation(known);
    const there = valid && (await harness.transcript(place, known)) !== null;
    const fresh = there ? null : harness.newConversation();
    if (there) await harness.relocate(place, known);
    const command = await harness.interactive({ ...place, model, resume: there ? known : null, fork: null, fresh });
    // A conversation begun by hand is the session's from its first word on.
    if (changed || fresh !== null) conversation.set({ harness: name, session: there ? known : fresh });
    const folder = join(state, "terminal");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const path = join(folder, "harness.sh");
    const exports = Object.entries(command.env).map(([name, value]) => `export ${name}=${shellQuote(value)}\n`);
    const script = `${exports.join("")}cd ${shellQuote(cwd)} && exec ${command.argv.map(shellQuote).join(" ")}\n`;
    writeFileSync(path, script, { mode: 0o600 });
    return ["/bin/sh", path];
  }
}

const later = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms).unref());
