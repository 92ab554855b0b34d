/** Does what the coordinator asks, each command once, and answers it as often as it is asked. */
import { CheckpointOutcome, HangarError } from "@hangar/shared";
import type { AgentCommand, Redact } from "@hangar/shared";
import type { ActivityWatch } from "./activity.ts";
import { PATIENCE_MS } from "./checkpointer.ts";
import type { Checkpointer } from "./checkpointer.ts";
import { exec } from "./exec.ts";
import type { Freezer } from "./freeze.ts";
import type { Journal, Reply } from "./journal.ts";
import type { Log } from "./log.ts";
import type { Terminals } from "./terminal/terminals.ts";
import type { Turns } from "./turns.ts";

/** What there is once the workspace is ready. */
export interface Sandbox {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly turns: Turns;
  readonly terminals: Terminals;
  readonly checkpointer: Checkpointer;
  readonly freezer: Freezer;
}

export interface CommandsOptions {
  readonly journal: Journal;
  readonly activity: ActivityWatch;
  readonly log: Log;
  /** Hides secrets in answers that say what went wrong. */
  readonly redact: Redact;
  /** Resolves when the workspace is ready; rejects when the start failed. */
  readonly sandbox: Promise<Sandbox>;
  readonly answer: (id: string, reply: Reply) => void;
}

const MOST_EXECS = 16;
/** Often enough that a long exec keeps the session awake all the time. */
const TOUCH_MS = 20_000;

export class Commands {
  readonly #options: CommandsOptions;
  #execs = 0;

  constructor(options: CommandsOptions) {
    this.#options = options;
  }

  /** Delivered, perhaps not for the first time. Never throws. */
  take(id: string, command: AgentCommand): void {
    const { journal, answer } = this.#options;
    const before = journal.state(id);
    if (before.state === "finished") return answer(id, before.reply);
    if (before.state === "running") return;
    if (before.state === "abandoned" && !REPEATABLE.has(command.kind)) return this.#finish(id, ABANDONED);
    journal.begin(id);
    this.#do(command).then(
      (value) => this.#finish(id, { ok: true, value }),
      (error: unknown) => this.#finish(id, failure(error)),
    );
  }

  #finish(id: string, said: Reply): void {
    const reply = redacted(said, this.#options.redact);
    if (!reply.ok) this.#options.log.info(`${id} refused: ${reply.code}: ${reply.error}`);
    this.#options.journal.finish(id, reply);
    this.#options.answer(id, reply);
  }

  async #do(command: AgentCommand): Promise<unknown> {
    const sandbox = await this.#options.sandbox;
    switch (command.kind) {
      case "turn":
        if (sandbox.turns.knows(command.turn)) return {};
        sandbox.freezer.refuse("no turn can be started");
        await sandbox.terminals.leaveConversation();
        sandbox.freezer.refuse("no turn can be started");
        sandbox.turns.start(command);
        return {};
      case "cancel_turn":
        await sandbox.turns.cancel(command.turn);
        return {};
      case "checkpoint":
        return await this.#checkpoint(sandbox, command);
      case "freeze":
        return await sandbox.freezer.freeze(command.reason, command.push, command.keep_processes);
      case "thaw":
        sandbox.freezer.thaw();
        return {};
      case "exec":
        sandbox.freezer.refuse("nothing can be run");
        return await this.#exec(sandbox, command);
      case "terminal":
        sandbox.freezer.refuse("no terminal can be opened");
        await sandbox.terminals.open(command);
        return {};
      default:
        throw new HangarError(
          "internal",
          "The sandbox's daemon does not know this command: it is older than the coordinator",
        );
    }
  }

  #checkpoint(
    { checkpointer, turns }: Sandbox,
    { reason, if_changed }: Extract<AgentCommand, { kind: "checkpoint" }>,
  ): Promise<CheckpointOutcome> {
    return checkpointer.take({
      reason,
      ifChanged: if_changed,
      turn: turns.unsettled,
      patienceMs: PATIENCE_MS,
      waitForLink: false,
    });
  }

  async #exec(sandbox: Sandbox, command: Extract<AgentCommand, { kind: "exec" }>): Promise<unknown> {
    if (this.#execs >= MOST_EXECS) {
      throw new HangarError("wrong_state", `${MOST_EXECS} programs are being run already: wait until one has ended`);
    }
    const { activity } = this.#options;
    this.#execs++;
    activity.touch();
    const touch = setInterval(() => activity.touch(), TOUCH_MS);
    try {
      return await exec(command, { cwd: sandbox.cwd, env: sandbox.env, signal: sandbox.freezer.signal });
    } finally {
      clearInterval(touch);
      activity.touch();
      this.#execs--;
    }
  }
}

/** Begun by an earlier daemon and not finished: these may be begun again. A turn knows by itself whether it was begun. */
const REPEATABLE: ReadonlySet<AgentCommand["kind"]> = new Set(["turn", "cancel_turn", "checkpoint", "freeze", "thaw"]);

/** Anything else may have had an effect. */
const ABANDONED: Reply = {
  ok: false,
  code: "sandbox_lost",
  error: "The sandbox's daemon was restarted during this; it may have been done in part",
};

function redacted(reply: Reply, redact: Redact): Reply {
  if (!reply.ok) return { ...reply, error: redact(reply.error) };
  const outcome = CheckpointOutcome.safeParse(reply.value);
  if (!outcome.success || outcome.data.outcome !== "failed") return reply;
  return { ok: true, value: { ...outcome.data, error: redact(outcome.data.error) } };
}

function failure(error: unknown): Reply {
  if (error instanceof HangarError) return { ok: false, code: error.code, error: error.message };
  return { ok: false, code: "internal", error: error instanceof Error ? error.message : String(error) };
}
