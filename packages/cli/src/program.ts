/** Every command of `hangar`, with its help. What they do is in `commands/`. */
import { EOL } from "node:os";
import { Command, InvalidArgumentError, Option } from "commander";
import packageJson from "../package.json" with { type: "json" };
import { applyEnvironments, listEnvironments, removeEnvironment, showEnvironment } from "./commands/environment.ts";
import { attach } from "./commands/attach.ts";
import { checkWork } from "./commands/check.ts";
import { exec, listSandboxes } from "./commands/sandbox.ts";
import { examples, json } from "./program-parts.ts";
import { diffSessions } from "./commands/diff.ts";
import { forkSession } from "./commands/fork.ts";
import { exportSession, importSession } from "./commands/transfer.ts";
import { secrets } from "./program-secret.ts";
import { vault } from "./program-vault.ts";
import * as session from "./commands/session.ts";
import { demo } from "./commands/demo.ts";
import { doctor, down, showStatus, up } from "./commands/up.ts";
import type { Context } from "./context.ts";
import { EXIT_HELP, oneLine } from "./failure.ts";

export function createProgram(context: Context): Command {
  const program = new Command("hangar")
    .description(
      "Durable work for coding agents: the conversation and the repo state are durable; the computer is not.",
    )
    .version(packageJson.version)
    .addHelpText(
      "after",
      `
Examples:
  hangar up
  hangar session new csv-fix --repo https://github.com/me/app "fix the CSV export"
  hangar session send csv-fix "add a test for empty files"
  hangar session attach csv-fix

Environment: HANGAR_DATA_DIR for another data folder; HANGAR_URL and HANGAR_TOKEN for a Hangar elsewhere; NO_COLOR.
${EXIT_HELP}`,
    )
    .exitOverride()
    // Options of what `sb exec` runs are not Hangar's.
    .enablePositionalOptions();
  hangarItself(program, context);
  environments(program.command("env").description("environments: what a session's sandbox is made from"), context);
  vault(program.command("vault").description("the key that opens every checkpoint: make, back up, rotate it"), context);
  secrets(program.command("secret").description("secrets: kept sealed, given to sandboxes when they start"), context);
  sessions(program.command("session").description("sessions: streams of work that you can come back to"), context);
  sandboxes(program.command("sb").description("sandboxes: where sessions run now"), context);
  for (const command of all(program)) {
    const help = `(see \`${pathOf(command)} --help\`)`;
    command.exitOverride().configureOutput({
      outputError: (text, write) => write(`hangar: ${oneLine(text.replace(/^error: /, ""))} ${help}${EOL}`),
    });
    command.allowExcessArguments(false);
  }
  return program;
}

function hangarItself(program: Command, context: Context): void {
  program
    .command("up")
    .description("start Hangar for this user; already running: say so")
    .option("--foreground", "stay in the foreground, with the log on standard error")
    .addOption(json())
    .addOption(new Option("--intro", "say what to type next").hideHelp())
    .addHelpText("after", examples("hangar up", "hangar up --foreground", "HANGAR_DATA_DIR=/srv/hangar hangar up"))
    .action((options) => up(context, options));
  program
    .command("down")
    .description("suspend every live session, then stop Hangar")
    .option("--keep", "leave sandboxes running; the next `hangar up` finds them again")
    .addOption(json())
    .addHelpText("after", examples("hangar down", "hangar down --keep"))
    .action((options) => down(context, options));
  program
    .command("status")
    .description("whether Hangar runs, where, and how many sessions it has")
    .addOption(json())
    .addHelpText("after", examples("hangar status", "hangar status --json"))
    .action((options) => showStatus(context, options));
  program
    .command("mcp")
    .description("the tools of Hangar for an agent or editor that speaks MCP over standard input and output")
    .addHelpText("after", examples("claude mcp add hangar -- hangar mcp", "hangar mcp"))
    .addHelpText("after", "\nOver HTTP: the address that `hangar status` shows, with /mcp (docs/mcp.md).")
    .action(async () => await (await import("./commands/mcp.ts")).mcp(context));
  program
    .command("demo")
    .description("show the main job, in a Hangar of its own in a temporary folder")
    .addHelpText("after", examples("hangar demo"))
    .addHelpText(
      "after",
      "\nWith ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN set and `claude` installed, Claude Code does the work; else a script does.",
    )
    .action(() => demo(context));
  program
    .command("doctor")
    .description("look for what Hangar needs on this machine")
    .addHelpText("after", examples("hangar doctor"))
    .action(() => doctor(context));
}

const ENVIRONMENT_FILE = `
A file, as YAML or JSON (only the name is needed; several: separated by ---):
  name: app                       # lower-case letters, digits and dashes
  repo: https://github.com/me/app # or git@host:path, file://…, an absolute path
  base_branch: main               # none: the remote's default branch
  harness: claude                 # or codex, pi, antigravity, script
  model: null
  setup: npm ci                   # a shell script, run in the fresh clone
  check: npm test                 # tells whether the work is good: hangar session check
  variables: { NODE_ENV: test }
  secrets:                        # by name: see hangar secret set
    - ANTHROPIC_API_KEY           # a variable
    - { name: KUBECONFIG_DEV, file: ~/.kube/config, mode: "0600" }
  idle_minutes: 30                # 0: stays up until you suspend it
  ttl_minutes: 1440               # 0: no limit
  keep_ignored: [.env]            # ignored files that travel all the same
  warm_pool: 1                    # sandboxes that wait for sessions, cloned and set up; 0: none
  warm_pool_hours: Mon-Fri 08:00-20:00 Europe/Berlin   # null: always`;

function environments(env: Command, context: Context): void {
  env
    .command("list")
    .description("all of them")
    .addOption(json())
    .addHelpText("after", examples("hangar env list"))
    .action((options) => listEnvironments(context, options));
  env
    .command("get <name>")
    .description("one, as a file that can be applied again")
    .addOption(json())
    .addHelpText("after", examples("hangar env get app > app.yaml"))
    .action((name, options) => showEnvironment(context, name, options));
  env
    .command("apply")
    .description("make or change environments from a file")
    .requiredOption("-f, --file <file>", "a YAML or JSON file; - is standard input")
    .addOption(json())
    .addHelpText("after", examples("hangar env apply -f app.yaml") + ENVIRONMENT_FILE)
    .action((options) => applyEnvironments(context, options));
  env
    .command("rm <name>")
    .description("remove one that no session uses")
    .addHelpText("after", examples("hangar env rm app"))
    .action((name) => removeEnvironment(context, name));
}

function sessions(command: Command, context: Context): void {
  waiting(command.command("new <name> [message...]"))
    .description("make a session and start it, with a first message where one is given")
    .option("--env <environment>", "an environment, see `hangar env list`")
    .option("--repo <url>", "without an environment: the repo; none: the origin of this folder")
    .option("--base <branch>", "the branch to start from; none: the remote's default")
    .option("--branch <branch>", "the session's own branch; none: hangar/session/NAME")
    .option(
      "--harness <name>",
      "the agent: claude, codex, pi, antigravity or script; none: claude or codex, whose key is set",
    )
    .option("--model <model>", "the agent's model")
    .option("--title <title>", "what lists show")
    .option("--idle <minutes>", "suspend after so long without activity; 0: stay up", minutes)
    .addHelpText(
      "after",
      examples(
        'hangar session new csv-fix --repo https://github.com/me/app "fix the CSV export"',
        "hangar session new csv-fix --env app --wait",
        "hangar session new notes --harness script 'echo hello > notes.txt'",
        "cat task.md | hangar session new csv-fix --env app -",
      ),
    )
    .action((name, words, options) => session.newSession(context, name, words, options));
  command
    .command("list")
    .description("all of them, the one that was used last first")
    .option("--all", "also archived ones")
    .addOption(json())
    .addHelpText("after", examples("hangar session list", "hangar session list --all --json"))
    .action((options) => session.listSessions(context, options));
  command
    .command("get <name>")
    .description("one: its state, what keeps it awake, its queue, turns, checkpoints and use")
    .addOption(json())
    .addHelpText("after", examples("hangar session get csv-fix", "hangar session get csv-fix --json"))
    .action((name, options) => session.showOne(context, name, options));
  waiting(command.command("open <name>"), "wait until it is ready (the default)")
    .description("bring a session back into a sandbox; up already: nothing changes")
    .option("--harness <name>", "go on with another agent, which gets an account of what was done")
    .option("--model <model>", "go on with another model")
    .addHelpText("after", examples("hangar session open csv-fix", "hangar session open csv-fix --harness claude"))
    .action((name, options) => session.openSession(context, name, options));
  waiting(command.command("send <name> [message...]"))
    .description("send a message to the agent; a suspended session is opened first; while a turn runs, it queues")
    .option("--timeout <seconds>", "end the turn after so long", whole)
    .option("--key <key>", "sent again with the same key, it is the same turn")
    .addHelpText(
      "after",
      examples(
        'hangar session send csv-fix "add a test for empty files"',
        "hangar session send csv-fix - --wait < review.md",
      ) + "\nCtrl-C while it is shown leaves the turn running.",
    )
    .action((name, words, options) => session.send(context, name, words, options));
  command
    .command("attach <name>")
    .description("talk to the agent in this terminal, in the session's own conversation; the session is opened first")
    .option("--shell", "a shell in the sandbox instead of the agent")
    .addHelpText(
      "after",
      examples("hangar session attach csv-fix", "hangar session attach csv-fix --shell") +
        "\nDetach with Ctrl-]: what runs goes on, and attaching again comes back to it. Ctrl-C goes to the agent.",
    )
    .action((name, options: { shell?: boolean }) =>
      attach(context, name, {
        what: options.shell ? "shell" : "harness",
        instead: 'to send one message: hangar session send NAME "MESSAGE"',
        again: true,
      }),
    );
  command
    .command("cancel <name> [turn]")
    .description("end a turn: the running one, or the one that is named")
    .addOption(json())
    .addHelpText("after", examples("hangar session cancel csv-fix"))
    .action((name, turn, options) => session.cancelTurn(context, name, turn, options));
  command
    .command("check <name> [script...]")
    .description("run the check of the work, the environment's or this one, and keep what it said; fails as it does")
    .option("--timeout <seconds>", "end it after so long (600)", whole)
    .addOption(json())
    .addHelpText("after", examples("hangar session check csv-fix", 'hangar session check csv-fix "npm test"'))
    .action((name, words, options) => checkWork(context, name, words, options));
  command
    .command("export <name>")
    .description("a session as a folder, for a Hangar elsewhere; one that is up is checkpointed first")
    .requiredOption("--out <folder>", "a new folder")
    .option("--recipient <age1…>", "seal its key to that Hangar's vault (`hangar vault init` there says it)")
    .addOption(json())
    .addHelpText("after", examples("hangar session export csv-fix --out csv-fix.hangar"))
    .action((name, options) => exportSession(context, name, options));
  command
    .command("import <folder>")
    .description("take in a session that was exported: checked first, then suspended here, ready to open")
    .option("--name <name>", "another name than it had")
    .option("--repo <url>", "where its repository is from here")
    .addOption(json())
    .addHelpText(
      "after",
      examples("hangar session import csv-fix.hangar", "hangar session import csv-fix.hangar --name csv-fix-2"),
    )
    .action((folder, options) => importSession(context, folder, options));
  waiting(command.command("suspend <name>"), "wait until it is suspended (the default)")
    .description("checkpoint a session and let its sandbox go; a running turn is stopped")
    .option("--push", "push its branch too")
    .option("--accept-loss", "also where the checkpoint leaves files out (`get` names them): they are lost")
    .option("--force", "let the sandbox go even where no checkpoint can be committed: what is not in one is lost")
    .addHelpText(
      "after",
      examples(
        "hangar session suspend csv-fix",
        "hangar session suspend csv-fix --push",
        "hangar session suspend csv-fix --accept-loss",
      ),
    )
    .action((name, options) => session.suspend(context, name, options));
  command
    .command("keep <name>")
    .description("change how long a session stays up")
    .option("--idle <minutes>", "suspend after so long without activity; 0: stay up", minutes)
    .option("--ttl <minutes>", "the sandbox's hard limit; 0: none", minutes)
    .option("--title <title>", "what lists show")
    .addOption(json())
    .addHelpText("after", examples("hangar session keep csv-fix --idle 0", "hangar session keep csv-fix --idle 60"))
    .action((name, options) => session.keep(context, name, options));
  waiting(command.command("archive <name>"), "wait until it is archived (the default)")
    .description("drop a session's checkpoints and keep its record with the transcript's summary")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("hangar session archive csv-fix --yes"))
    .action((name, options) => session.archive(context, name, options));
  command
    .command("rm <name>")
    .description("remove a session with everything of it")
    .option("--force", "also while a turn runs")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("hangar session rm csv-fix --yes"))
    .action((name, options) => session.remove(context, name, options));
  command
    .command("checkpoint <name>")
    .description("take a checkpoint of a live session now")
    .addOption(json())
    .addHelpText("after", examples("hangar session checkpoint csv-fix"))
    .action((name, options) => session.checkpointNow(context, name, options));
  command
    .command("checkpoints <name>")
    .description("those that are kept, the newest first")
    .addOption(json())
    .addHelpText("after", examples("hangar session checkpoints csv-fix"))
    .action((name, options) => session.listCheckpoints(context, name, options));
  waiting(command.command("fork <name> [message...]"), "wait until their first turns have ended")
    .description("new sessions that go on from this one's work and conversation, each on its own; it stays as it is")
    .option("-n, --count <number>", "how many", whole, 1)
    .option("--checkpoint <id>", "from an older checkpoint")
    .option("--name <name>", "what their names begin with, instead of NAME-fork")
    .option("--harness <name>", "with another agent, which gets an account of what was done")
    .addHelpText(
      "after",
      examples(
        'hangar session fork csv-fix -n 3 "try another way to parse the header"',
        "hangar session fork csv-fix --checkpoint ckp-0199f2c3a1b4d5e6f",
      ),
    )
    .action((name, words, options) => forkSession(context, name, words, options));
  command
    .command("diff <a> <b>")
    .description("what two sessions' workspaces differ in, uncommitted and untracked files too; both may be suspended")
    .option("--stat", "how much of which files")
    .option("--name-only", "only the files' names")
    .addHelpText(
      "after",
      examples(
        "hangar session diff csv-fix-fork-1 csv-fix-fork-2",
        "hangar session diff csv-fix csv-fix-fork-1 --stat",
      ),
    )
    .action((a, b, options) => diffSessions(context, [a, b], options));
  waiting(command.command("restore <name> <checkpoint>"), "wait until it is restored (the default)")
    .description("go back to an older checkpoint; what is there now is checkpointed first")
    .addHelpText("after", examples("hangar session restore csv-fix ckp-0199f2c3a1b4d5e6f"))
    .action((name, checkpoint, options) => session.restore(context, name, checkpoint, options));
}

function sandboxes(command: Command, context: Context): void {
  command.enablePositionalOptions();
  command
    .command("list")
    .description("those that run, and what keeps them awake")
    .addOption(json())
    .addHelpText("after", examples("hangar sb list"))
    .action((options) => listSandboxes(context, options));
  command
    .command("exec <session> <command...>")
    .description("run a command in a session's sandbox; its exit code is this one's")
    .option("--cwd <folder>", "where; none: the repo's folder")
    .option("--timeout <seconds>", "end it after so long (600)", whole)
    .addOption(json())
    .passThroughOptions()
    .addHelpText(
      "after",
      examples("hangar sb exec csv-fix git status", "hangar sb exec csv-fix -- sh -c 'npm test | tail'"),
    )
    .action((name, argv: string[], options) => exec(context, name, argv[0] === "--" ? argv.slice(1) : argv, options));
  command
    .command("attach <session>")
    .description(
      "a terminal in a session's sandbox, which is opened first; detach with Ctrl-], what runs in it goes on",
    )
    .option("--agent", "the agent itself, resumed interactively, instead of a shell")
    .addHelpText("after", examples("hangar sb attach csv-fix", "hangar sb attach csv-fix --agent"))
    .action((name, options: { agent?: boolean }) =>
      attach(context, name, {
        what: options.agent ? "harness" : "shell",
        instead: "to run one command: hangar sb exec NAME -- COMMAND",
        again: false,
      }),
    );
}

const waiting = (command: Command, text = "show it until it ends (on a terminal the default)"): Command =>
  command.option("--wait", text).option("--no-wait", "return at once").addOption(json());

function all(command: Command): Command[] {
  return [command, ...command.commands.flatMap(all)];
}

function pathOf(command: Command): string {
  return command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}

function minutes(text: string): number {
  const n = Number(text);
  if (!/^\d+(?:\.\d+)?$/.test(text) || n > 525_600) throw new InvalidArgumentError("Give minutes, from 0 to 525600.");
  return n;
}

function whole(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError("Give whole seconds.");
  return Number(text);
}
