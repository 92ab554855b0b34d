/**
 * `hangar demo`: the main job on real input, in a Hangar of its own: a session's work, its sandbox gone, and all of it back
 * in another one. What it says it verified, it compared.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ExecResult, HangarError, SandboxInfo, SecretInfo, Session, Turn } from "@hangar/shared";
import { z } from "zod";
import type { Context } from "../context.ts";
import { EXIT } from "../failure.ts";
import { followTurn, getSession, waitUntilSuspended } from "../follow.ts";
import { bytes, firstLine, safe } from "../ui.ts";
import { type Running, processExists, startDetached } from "./up.ts";

const NAME = "demo";

export async function demo(context: Context): Promise<void> {
  const { ui } = context;
  const began = performance.now();
  const folder = await mkdtemp(join(context.config.tmp, "hangar-demo-"));
  const own = contextIn(context, folder);
  const agent = chooseAgent(context);
  for (const line of agent.notes) ui.note(line);
  let running: Running | undefined;
  let ok = false;
  const off = context.onInterrupt(() => {
    ui.done();
    ui.note("hangar: the demo is stopped");
    void cleanUp().finally(() => process.exit(EXIT.interrupted));
  });
  const cleanUp = async (): Promise<void> => {
    if (running) await stop(running);
    // After a failure it stays, for whoever wants to know why.
    if (ok) await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    running = await startDetached(own);
    const { client } = running;
    own.client = () => client;
    say(`Hangar is up, with a redis-server of its own (${seconds(began)})`);
    const remote = await makeRemote(folder);
    say(`a bare remote with ${remote.commits} commits: ${remote.path}`);
    await show(own, remote.path, agent);
    ok = true;
  } finally {
    off();
    ui.progress("cleaning up");
    await cleanUp();
    ui.done();
    if (!ok) ui.note(`hangar: the demo did not get through; its log and data are in ${folder}`);
  }
  ui.out(ui.color.bold(`All of it held, in ${seconds(began)}. Start for real: ${ui.prefix} up`));

  function say(line: string): void {
    ui.out(`${ui.color.green("✓")} ${line}`);
  }
}

/** The job itself, step by step. */
async function show(context: Context, remote: string, agent: Agent): Promise<void> {
  const { ui } = context;
  const client = context.client();
  const say = (line: string) => ui.out(`${ui.color.green("✓")} ${line}`);
  for (const [name, value] of Object.entries(agent.secrets))
    await client.call("PUT", `/api/secrets/${name}`, SecretInfo, { value });
  let at = performance.now();
  const made = await client.call("POST", "/api/sessions", Session, {
    name: NAME,
    repo: `file://${remote}`,
    harness: agent.harness,
    secrets: Object.keys(agent.secrets),
    message: agent.first,
  });
  const first = await turn(context, made, made.turns.at(-1));
  const one = await getSession(context, NAME);
  say(
    `turn 1 of ${agent.harness} in ${one.sandbox_id}: ${safe(firstLine(first.summary ?? "")) || "done"} (${seconds(at)})`,
  );

  const before = await look(context);
  expect("the turn left a commit that the remote lacks", before.head !== before.remote_head);
  expect(
    "it left a staged change, an uncommitted one and an untracked file",
    before.staged !== "" && before.unstaged !== "" && before.untracked !== "",
  );
  say(
    `it left a commit the remote lacks (${before.head.slice(0, 10)}), staged ${list(before.staged)}, uncommitted ${list(before.unstaged)}, untracked ${list(before.untracked)}`,
  );

  at = performance.now();
  const suspending = await client.call("POST", `/api/sessions/${NAME}/suspend`, Session, {});
  const suspended = await waitUntilSuspended(context, suspending);
  const { sandboxes } = await client.call("GET", "/api/sandboxes", z.object({ sandboxes: z.array(SandboxInfo) }));
  const left = (await readdir(join(context.config.dataDir, "sandboxes"))).filter((name) => !name.startsWith("."));
  expect("no sandbox is left", sandboxes.length === 0 && left.length === 0 && suspended.sandbox_id === null);
  const checkpoint = suspended.checkpoints.at(-1);
  expect("a proved checkpoint holds it", checkpoint !== undefined && checkpoint.proved && checkpoint.paired);
  say(
    `suspended: the sandbox is gone; ${checkpoint?.id} holds it, sealed: ${bytes(checkpoint?.bytes ?? 0)} (${seconds(at)})`,
  );

  at = performance.now();
  const sent = await client.call("POST", `/api/sessions/${NAME}/send`, z.object({ session: Session, turn: Turn }), {
    message: agent.second,
  });
  const second = await turn(context, sent.session, sent.turn);
  const two = await getSession(context, NAME);
  say(
    `turn 2 in ${two.sandbox_id}, restored from ${two.restored_from?.checkpoint}: ${safe(firstLine(second.summary ?? "")) || "done"} (${seconds(at)})`,
  );
  const after = await look(context);
  expect(
    "another sandbox, restored from that checkpoint and verified",
    two.sandbox_id !== one.sandbox_id &&
      two.restored_from?.checkpoint === checkpoint?.id &&
      two.restored_from?.verified === true,
  );
  for (const [what, name] of Object.entries(COMPARED) as [keyof Look, string][]) {
    expect(
      `${name} is the same (was ${before[what] || "none"}, is ${after[what] || "none"})`,
      before[what] === after[what],
    );
  }
  say(`the same in both: ${Object.values(COMPARED).join(", ")}`);
  expect(
    "the conversation is the same",
    first.harness_session !== null && first.harness_session === second.harness_session && !second.conversation_lost,
  );
  expect("the agent remembers", agent.remembers === null || (second.summary ?? "").includes(agent.remembers));
  say(
    `the conversation went on: ${second.harness_session}${agent.remembers === null ? "" : `, and knew "${agent.remembers}" from turn 1`}`,
  );
}

async function turn(context: Context, session: Session, sent: Turn | undefined): Promise<Turn> {
  if (!sent) throw new HangarError("internal", "the session has no turn");
  const ended = await followTurn(context, session, sent, false);
  if (ended.state !== "done")
    throw new HangarError("harness_failed", `the turn ended as ${ended.state}: ${ended.error ?? "no reason given"}`);
  return ended;
}

const COMPARED = {
  head: "HEAD",
  branch: "branch",
  index: "index",
  tree: "every file's bytes",
  modes: "modes",
  staged: "staged changes",
  unstaged: "uncommitted changes",
  untracked: "untracked files",
} as const;
type Look = Record<keyof typeof COMPARED | "remote_head", string>;

/** What is in the sandbox's repo now: with git itself, over the index's entries and over every file's raw bytes. */
async function look(context: Context): Promise<Look> {
  const script = `set -e
    files() { git ls-files -z --cached --others --exclude-standard | sort -zu; }
    git rev-parse HEAD
    git symbolic-ref HEAD
    git ls-files --stage | git hash-object --stdin
    files | xargs -0 git hash-object --no-filters -- | git hash-object --stdin
    files | xargs -0 ls -ld -- | cut -c 1-10 | git hash-object --stdin
    git diff --cached --name-only | tr '\\n' ' '; echo
    git diff --name-only | tr '\\n' ' '; echo
    git ls-files --others --exclude-standard | tr '\\n' ' '; echo
    git rev-parse origin/main`;
  const result = await context
    .client()
    .call("POST", `/api/sandboxes/${NAME}/exec`, ExecResult, { argv: ["/bin/sh", "-c", script] });
  const text = (base64: string) => Buffer.from(base64, "base64").toString("utf8");
  if (result.exit_code !== 0)
    throw new HangarError("internal", `the sandbox's repo cannot be read: ${text(result.stderr)}`);
  const lines = text(result.stdout).trimEnd().split("\n");
  const names = [...Object.keys(COMPARED), "remote_head"];
  return Object.fromEntries(names.map((name, i) => [name, (lines[i] ?? "").trim()])) as Look;
}

function expect(what: string, holds: boolean): void {
  if (!holds) throw new HangarError("internal", `the demo expected that ${what}; it is not so`);
}

interface Agent {
  readonly harness: "claude" | "script";
  readonly secrets: Record<string, string>;
  readonly first: string;
  readonly second: string;
  /** A word of the first message that only the conversation can know. */
  readonly remembers: string | null;
  readonly notes: string[];
}

const KEYS = ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];

function chooseAgent({ config }: Context): Agent {
  const key = KEYS.find((name) => config.env[name]);
  const installed = (config.env["PATH"] ?? "")
    .split(delimiter)
    .some((folder) => folder !== "" && existsSync(join(folder, "claude")));
  if (key !== undefined && installed) {
    const names = [...KEYS, "ANTHROPIC_BASE_URL"].filter((name) => config.env[name]);
    return {
      ...CLAUDE,
      secrets: Object.fromEntries(names.map((name) => [name, config.env[name] ?? ""])),
      notes: [`agent: Claude Code, with ${key}`],
    };
  }
  const why =
    key === undefined
      ? "no agent's key is set: a script does the work"
      : `${key} is set, but \`claude\` is not installed: a script does the work`;
  return { ...SCRIPT, secrets: {}, notes: [why] };
}

/** One commit, a staged change, changes on top of it and of a tracked file, and an untracked file: all of them with odd bytes. */
const WORK = String.raw`tracked=$(git ls-files | head -n 1)
printf 'committed\r\n' > committed.txt && git add committed.txt
git -c user.name=Demo -c user.email=demo@example.org commit --quiet --message 'A commit that is not pushed'
echo 'a staged line' > staged.txt && chmod +x staged.txt && git add staged.txt
echo 'a line on top of what is staged' >> staged.txt
printf 'no line break at the end' >> "$tracked"
printf 'an untracked file, with a NUL: \0\n' > untracked.bin`;

const SCRIPT = {
  harness: "script",
  first: `set -e\n${WORK}\necho 'left a commit, a staged file, changes on top and an untracked file'`,
  second: "git status --short",
  remembers: null,
} as const;

const CLAUDE = {
  harness: "claude",
  first: `Please remember the word marmalade: I will ask for it in my next message, when this computer is gone.

For now run exactly the following in a shell, once, and nothing else; then answer with one short line. To run: ${WORK}`,
  second: "What did I ask you to remember? Answer with that word alone, and change no file.",
  remembers: "marmalade",
} as const;

/** The remote: the history of the checkout that this runs from or, where there is none, a small one made here. */
async function makeRemote(folder: string): Promise<{ path: string; commits: number }> {
  const path = join(folder, "remote.git");
  await git(folder, "init", "--quiet", "--bare", "--initial-branch=main", path);
  const checkout = join(dirname(fileURLToPath(import.meta.url)), "../../../..");
  try {
    if (!existsSync(join(checkout, ".git"))) throw new Error("not a checkout");
    await git(checkout, "push", "--quiet", path, "HEAD:refs/heads/main");
  } catch {
    const seed = join(folder, "seed");
    await mkdir(join(seed, "src"), { recursive: true });
    await git(seed, "init", "--quiet", "--initial-branch=main");
    for (let i = 1; i <= 20; i++) {
      await writeFile(join(seed, "src", `part-${i}.txt`), `part ${i}\n`.repeat(i * 10));
      await git(seed, "add", "--all");
      await git(
        seed,
        "-c",
        "user.name=Demo",
        "-c",
        "user.email=demo@example.org",
        "commit",
        "--quiet",
        "-m",
        `Add part ${i}`,
      );
    }
    await git(seed, "push", "--quiet", path, "main");
  }
  return { path, commits: Number(await git(path, "rev-list", "--count", "main")) };
}

async function git(cwd: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(
    "git",
    ["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", ...args],
    { cwd },
  );
  return stdout.trim();
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** A Hangar that shares nothing with the user's: its own folder and port, and none of the settings. */
function contextIn(context: Context, folder: string): Writable<Context> {
  const env = Object.fromEntries(Object.entries(context.config.env).filter(([name]) => !name.startsWith("HANGAR_")));
  const dataDir = join(folder, "data");
  return {
    ...context,
    config: { ...context.config, dataDir, url: null, token: null, env: { ...env, HANGAR_PORT: "0" } },
  };
}

/** Its session goes first, so that no sandbox is left. */
async function stop({ client, pid }: Running): Promise<void> {
  await client.call("DELETE", `/api/sessions/${NAME}?force=1`, z.unknown()).catch(() => undefined);
  if (!processExists(pid)) return;
  process.kill(pid, "SIGTERM");
  for (let waited = 0; processExists(pid) && waited < 20_000; waited += 50)
    await new Promise((resolve) => setTimeout(resolve, 50));
}

const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`;
const list = (names: string): string => names.split(" ").join(", ");
