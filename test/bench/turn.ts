/**
 * A turn beside the same program run by hand: the same arguments, the same stand-in model on loopback, a conversation of the
 * same length that each resumes. Through REST and the event stream, as an agent's client sees it; a command's own start is
 * not in it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import type { Turn } from "@hangar/shared";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { startOpenAi } from "../stand-ins/openai.ts";
import { agentClis } from "../support/agent-clis.ts";
import { git, makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";
import { inPairs, median } from "./measure.ts";
import { ms, type Row } from "./row.ts";

const RUNS = 9;
const MESSAGE = "say hello";
const KEY = "sk-ant-api03-made-up-for-the-benchmark";

interface Rig {
  readonly harness: string;
  readonly title: string;
  readonly model: string | null;
  /** As the adapter gives them; the prompt is on standard input. */
  readonly argv: (conversation: string, isNew: boolean) => string[];
  /** What a first run says of its conversation; none: the id was chosen. */
  readonly saidId: RegExp | null;
}

const RIGS: readonly Rig[] = [
  {
    harness: "claude",
    title: "Claude Code",
    model: null,
    argv: (id, isNew) =>
      words(
        "claude -p --output-format stream-json --verbose --dangerously-skip-permissions",
        `${isNew ? "--session-id" : "--resume"} ${id}`,
      ),
    saidId: null,
  },
  {
    harness: "pi",
    title: "pi",
    model: "anthropic/claude-opus-5-5",
    argv: (id) => words("pi --mode json --model anthropic/claude-opus-5-5 --session-id", id),
    saidId: null,
  },
  {
    harness: "codex",
    title: "Codex",
    model: "gpt-5-stand-in",
    argv: (id, isNew) =>
      words(
        `codex exec ${isNew ? "" : "resume"} --json --dangerously-bypass-approvals-and-sandbox --model gpt-5-stand-in`,
        isNew ? "-" : `${id} -`,
      ),
    saidId: /"thread_id":"([^"]+)"/,
  },
];

function words(...texts: string[]): string[] {
  return texts.join(" ").split(/ +/);
}

export async function turnRows(): Promise<Row[]> {
  const anthropic = await startAnthropic();
  const openAi = await startOpenAi();
  const path = [await agentClis(), dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter);
  const hangar = await startHangar({ PATH: path, HANGAR_LOG_LEVEL: "info" });
  const variables = {
    ANTHROPIC_API_KEY: KEY,
    OPENAI_API_KEY: KEY,
    ANTHROPIC_BASE_URL: anthropic.url,
    OPENAI_BASE_URL: `${openAi.url}/v1`,
  };
  const rows: Row[] = [];
  try {
    const repo = await makeRemote(hangar.dir);
    for (const rig of RIGS) {
      console.error(`a turn of ${rig.title} …`);
      rows.push(...(await rowsOf(hangar, rig, repo, variables)));
    }
    return rows;
  } finally {
    await hangar.close();
    await Promise.all([anthropic.close(), openAi.close()]);
  }
}

async function rowsOf(hangar: TestHangar, rig: Rig, repo: string, variables: Record<string, string>): Promise<Row[]> {
  const { harness: name, model } = rig;
  const environment = { name, repo, harness: name, model, variables, idle_minutes: 0 };
  await hangar.api("PUT", `/api/environments/${name}`, environment);
  await hangar.api("POST", "/api/sessions", { name, environment: name });
  const { sandbox_id } = await hangar.until(name, "ready", (s) => s.state === "IDLE");
  await hangar.turn(name, MESSAGE);
  const byHand = await prepareByHand(hangar, rig, repo, variables, sandbox_id ?? "");
  const events = await follow(hangar, name);
  // The checkpoint follows; a turn by hand has none.
  const settling: number[] = [];
  let ended: Promise<void> = Promise.resolve();
  try {
    const pair = await inPairs(RUNS, {
      ours: async () => {
        const begun = performance.now();
        const { turn } = await hangar.api<{ turn: Turn }>("POST", `/api/sessions/${name}/send`, { message: MESSAGE });
        await events.of("turn_finished", turn.id);
        ended = events.of("turn_ended", turn.id).then(() => void settling.push(performance.now() - begun));
      },
      // Not while the checkpoint is taken.
      between: () => ended,
      theirs: byHand,
    });
    const { turns } = await hangar.session(name);
    const failed = turns.find(({ state }) => state !== "done");
    if (failed) throw new Error(`${name}: a turn ${failed.state}: ${failed.error ?? ""}`);
    const bar = "≤ + 150 ms";
    const acknowledged = median(settling.slice(1));
    const [overhead, withCheckpoint] = [pair.difference, acknowledged - pair.theirs];
    return [
      {
        size: "turn",
        what: `a turn of ${rig.title}, from the message to its result, beside the same program by hand`,
        ours: ms(pair.ours),
        theirs: ms(pair.theirs),
        ratio: more(overhead),
        bar,
        met: overhead <= 150,
      },
      {
        size: "turn",
        what: "… to the acknowledgement of its checkpoint, which a program by hand does not take",
        ours: ms(acknowledged),
        theirs: ms(pair.theirs),
        ratio: more(withCheckpoint),
        bar,
        met: withCheckpoint <= 150,
      },
    ];
  } finally {
    events.close();
  }
}

const more = (value: number): string => `${value < 0 ? "−" : "+"} ${ms(Math.abs(value))}`;

/** The same program in a home and a clone of its own, prepared as the adapter prepares them, by its own first turn. */
async function prepareByHand(
  hangar: TestHangar,
  rig: Rig,
  repo: string,
  variables: Record<string, string>,
  sandbox: string,
): Promise<() => Promise<void>> {
  const cwd = join(hangar.dir, "by-hand", rig.harness, "repo");
  const home = join(hangar.dir, "by-hand", rig.harness, "home");
  const scratch = join(hangar.dir, "by-hand", rig.harness, "tmp");
  await mkdir(dirname(cwd), { recursive: true });
  await mkdir(scratch);
  await git(dirname(cwd), "clone", "-q", repo, cwd);
  await seedAs(join(hangar.dataDir, "sandboxes", sandbox, "home"), home);
  const env = {
    PATH: hangar.env["PATH"] ?? "",
    HOME: home,
    LANG: "C.UTF-8",
    TMPDIR: scratch,
    CODEX_HOME: join(home, ".codex"),
    CLAUDE_CONFIG_DIR: join(home, ".claude"),
    CLAUDE_CODE_TMPDIR: scratch,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    IS_SANDBOX: "1",
    PI_OFFLINE: "1",
    ...variables,
  };
  const run = async (argv: readonly string[]): Promise<string> => {
    const [program = "", ...args] = argv;
    const child = spawn(program, args, { cwd, env, stdio: ["pipe", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => (said += text));
    }
    child.stdin.end(MESSAGE);
    const [code] = (await once(child, "exit")) as [number | null];
    if (code !== 0 || !said.includes("You said")) throw new Error(`${program} by hand: ${code}: ${said.slice(-2000)}`);
    return said;
  };
  const chosen = crypto.randomUUID();
  const said = await run(rig.argv(chosen, true));
  const id = rig.saidId === null ? chosen : (rig.saidId.exec(said)?.[1] ?? "");
  return async () => void (await run(rig.argv(id, false)));
}

/** The settings that the adapter has written; no conversation. */
async function seedAs(from: string, to: string): Promise<void> {
  const kept = [".codex/config.toml", ".pi/agent/models.json", ".claude/settings.json", ".claude/.claude.json"];
  await mkdir(to, { recursive: true });
  for (const path of kept) await cp(join(from, path), join(to, path)).catch(() => undefined);
}

interface Events {
  /** Resolves when the turn's event of this type has come. */
  of(type: string, turn: string): Promise<void>;
  close(): void;
}

/** The session's event stream, open before anything is sent. */
async function follow(hangar: TestHangar, name: string): Promise<Events> {
  const stop = new AbortController();
  const answer = await hangar.raw("GET", `/api/sessions/${name}/events?from=$`, { signal: stop.signal });
  const seen = new Set<string>();
  const waiting = new Map<string, () => void>();
  const read = async (): Promise<void> => {
    let text = "";
    const decoder = new TextDecoder();
    for await (const chunk of answer.body ?? []) {
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop() ?? "";
      for (const frame of frames) {
        const data = /^data: (.*)$/m.exec(frame)?.[1];
        if (data === undefined) continue;
        const { event } = JSON.parse(data) as { event: { type: string; turn?: string } };
        const key = `${event.type} ${event.turn ?? ""}`;
        seen.add(key);
        waiting.get(key)?.();
      }
    }
  };
  read().catch(() => undefined);
  return {
    of: (type, turn) =>
      new Promise((resolve) => {
        const key = `${type} ${turn}`;
        if (seen.has(key)) resolve();
        else waiting.set(key, resolve);
      }),
    close: () => stop.abort(),
  };
}
