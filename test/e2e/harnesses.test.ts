/**
 * What each agent's session survives, with its real program against a stand-in model on loopback: another sandbox, kill -9 in
 * mid-turn, another Hangar, a transcript of 100 MB; and that no credential leaves, wherever it lies in the home. Antigravity's
 * program is not published: a stand-in runs in its place, and its tests, which are called so, say nothing of the real one.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { Session, Turn } from "@hangar/shared";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { installAntigravityStandIn } from "../stand-ins/antigravity.ts";
import { startOpenAi } from "../stand-ins/openai.ts";
import type { StandIn } from "../stand-ins/server.ts";
import { type AgentCli, agentClis } from "../support/agent-clis.ts";
import { killAll, makeRemote, run, sleep, startHangar, type TestHangar } from "../support/hangar.ts";
import { lengthenTranscript } from "../support/long-transcript.ts";

const KEY = "sk-ant-api03-made-up-for-tests-0123456789";
const RECALL = "what did I ask you to remember?";
const LONG = 100_000_000;

interface Agent {
  readonly name: AgentCli | "antigravity";
  readonly title: string;
  readonly key: string;
  readonly model: string | null;
  /** Its own process, by its command line, which pi rewrites. */
  readonly program: RegExp;
  /** It goes on with a copy of a conversation; where not, a fork begins with an account. */
  readonly forks: boolean;
}
const AGENTS: readonly Agent[] = [
  {
    name: "claude",
    title: "claude",
    key: "ANTHROPIC_API_KEY",
    model: null,
    program: /^\S*claude -p /,
    forks: true,
  },
  {
    name: "codex",
    title: "codex",
    key: "OPENAI_API_KEY",
    model: "gpt-5-stand-in",
    program: /codex\S* exec /,
    forks: true,
  },
  {
    name: "pi",
    title: "pi",
    key: "ANTHROPIC_API_KEY",
    model: "anthropic/claude-opus-5-5",
    program: /^pi *$/,
    forks: true,
  },
  {
    name: "antigravity",
    title: "antigravity, by a stand-in for its program",
    key: "GEMINI_API_KEY",
    model: "stand-in-model",
    program: /antigravity\.ts --print=/,
    forks: false,
  },
];

let here: TestHangar;
let there: TestHangar;
let anthropic: StandIn;
let openai: StandIn;
/** The folder of the program that stands in for Antigravity's. */
let standIn: string;

beforeAll(async () => {
  [anthropic, openai] = await Promise.all([startAnthropic(), startOpenAi()]);
  // pi runs on a Node newer than the system may have.
  standIn = await mkdtemp(join(tmpdir(), "hangar-agy-"));
  await installAntigravityStandIn(standIn);
  const PATH = [await agentClis(), standIn, dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter);
  here = await startHangar({ PATH, HANGAR_IDLE_PASS_SECONDS: "1", HANGAR_HEARTBEAT_SECONDS: "1" });
  // Without a sandbox's own view of the disk the workspaces lie at other paths.
  there = await startHangar({ PATH, HANGAR_ISOLATION: "plain" });
  const remote = await makeRemote(here.dir);
  for (const hangar of [here, there]) {
    for (const key of ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"])
      await hangar.api("PUT", `/api/secrets/${key}`, { value: KEY });
  }
  for (const { name, key } of AGENTS) {
    await here.api("PUT", `/api/environments/${name}`, {
      repo: remote,
      harness: name,
      secrets: [key],
      variables: {
        ANTHROPIC_BASE_URL: anthropic.url,
        OPENAI_BASE_URL: `${openai.url}/v1`,
        CLAUDE_CODE_MAX_RETRIES: "1",
        ANTIGRAVITY_STAND_IN_MODEL: anthropic.url,
      },
    });
  }
}, 600_000);
afterAll(async () => {
  await Promise.all([here?.close(), there?.close()]);
  await Promise.all([anthropic?.close(), openai?.close()]);
  await rm(standIn, { recursive: true, force: true });
});

const start = async ({ name, model }: Agent, session: string): Promise<void> => {
  await here.api("POST", "/api/sessions", { name: session, environment: name, ...(model === null ? {} : { model }) });
  const first = await here.turn(session, "please remember heliotrope", 180);
  expect(first).toMatchObject({ state: "done", conversation_lost: false });
};
const suspend = async (session: string): Promise<void> => {
  await here.api("POST", `/api/sessions/${session}/suspend`, {});
  await here.until(session, "suspended", ({ state }) => state === "SUSPENDED", 180);
};
const recalls = async (session: string, words: string, hangar = here): Promise<Turn> => {
  const turn = await hangar.turn(session, RECALL, 180);
  expect(turn).toMatchObject({
    state: "done",
    conversation_lost: false,
    handoff: false,
    summary: `You asked me to remember ${words}.`,
  });
  return turn;
};

/** Starts a turn whose tool does not end by itself, and waits until it runs. */
async function stuckTurn(session: string): Promise<string> {
  const { turn } = await here.api<{ turn: Turn }>("POST", `/api/sessions/${session}/send`, {
    message: "run: perl -e 'sleep 300'",
  });
  await eventually(async () => (await tools()).length > 0);
  return turn.id;
}
const tools = (): Promise<number[]> => here.pids(/^perl -e/);
async function eventually(look: () => Promise<boolean>): Promise<void> {
  for (let i = 0; !(await look()); i++) {
    if (i > 600) throw new Error("it did not come about within a minute");
    await sleep(100);
  }
}
const turnOf = (session: Session, id: string): Turn | undefined => session.turns.find((turn) => turn.id === id);

/** The conversation's file in the session's sandbox, on this machine's disk. */
async function transcriptOf(session: string): Promise<string> {
  const { harness_session: id, sandbox_id } = await here.session(session);
  const folder = join(here.dataDir, "sandboxes", sandbox_id ?? "");
  const files = await readdir(join(folder, "home"), { recursive: true });
  const file = files.find((each) => each.endsWith(`${id ?? "?"}.jsonl`));
  return join(folder, "home", file ?? "no transcript");
}
async function digest(path: string, bytes: number): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of createReadStream(path, { end: bytes - 1 })) hash.update(piece as Buffer);
  return hash.digest("hex");
}

describe.each(AGENTS)(
  "$title",
  (agent) => {
    const { name } = agent;

    test("kill -9 in mid-turn, of the program or of its sandbox: said, no tool left, and the conversation goes on", async () => {
      const session = `${name}-killed`;
      await start(agent, session);

      const cut = await stuckTurn(session);
      const programs = await here.pids(agent.program);
      expect(programs).not.toEqual([]);
      killAll(programs);
      const failed = await here.until(session, "over", (s) => turnOf(s, cut)?.state === "failed");
      expect(turnOf(failed, cut)).toMatchObject({ exit_code: 137, conversation_lost: false });
      expect(turnOf(failed, cut)?.error).toContain("was ended by SIGKILL");
      expect(await tools()).toEqual([]);
      expect(await here.turn(session, "please remember quartz", 180)).toMatchObject({ state: "done", handoff: false });

      const lost = await stuckTurn(session);
      killAll(await here.pids(/hangar-agent\S* run/));
      await here.until(session, "interrupted", (s) => turnOf(s, lost)?.state === "interrupted");
      await recalls(session, "heliotrope, quartz");
      expect(await tools()).toEqual([]);
      await here.api("DELETE", `/api/sessions/${session}?force=true`);
    });

    test("credentials, wherever they lie, stay behind with the sandbox; the session goes on in another Hangar", async () => {
      const session = `${name}-planted`;
      await start(agent, session);
      const planted = await here.exec(session, "sh", "-ec", PLANT);
      expect(planted, planted.stderr).toMatchObject({ code: 0 });
      expect(await here.turn(session, "please remember quartz", 180)).toMatchObject({ state: "done" });
      const found = await here.exec(session, "sh", "-c", "grep -rl CANARY-4d1f ~ | wc -l");
      expect(Number(found.stdout)).toBeGreaterThan(PLACES.length * 0.8);
      await suspend(session);

      const { id } = await here.session(session);
      const opened = await openedFolder(join(here.dataDir, "store/sessions", id), "vault/identity.txt");
      expect(opened).toContain("heliotrope");
      expect(opened).not.toContain("CANARY-4d1f");
      expect(opened).not.toContain(KEY);

      const folder = join(here.dir, session);
      expect(await here.cli(["session", "export", session, "--out", folder])).toMatchObject({ code: 0 });
      expect(await readFile(join(folder, "session.json"), "utf8")).not.toContain(KEY);
      const imported = await there.cli(["session", "import", folder]);
      expect(imported, imported.stderr).toMatchObject({ code: 0 });
      const away = await recalls(session, "heliotrope, quartz", there);
      expect(away.harness_session).toBe((await here.session(session)).harness_session);
      expect((await there.session(session)).restored_from).toMatchObject({ verified: true, missing: [] });
      await there.api("DELETE", `/api/sessions/${session}?force=true`);

      // And where it was.
      await recalls(session, "heliotrope, quartz");
      expect((await here.exec(session, "sh", "-c", "grep -rl CANARY-4d1f ~")).stdout).toBe("");
      await here.api("DELETE", `/api/sessions/${session}?force=true`);
    });

    test("three forks each know what was said before, and none what another was told", async () => {
      const session = `${name}-parent`;
      await start(agent, session);
      const { sessions } = await here.api<{ sessions: Session[] }>("POST", `/api/sessions/${session}/fork`, {
        count: 3,
      });
      const conversations = new Set([(await here.session(session)).harness_session]);
      for (const [i, word] of ["quartz", "feldspar", "basalt"].entries()) {
        const fork = sessions[i]?.name ?? "";
        const first = await here.turn(fork, `please remember ${word}`, 180);
        expect(first).toMatchObject({ state: "done", handoff: !agent.forks });
        conversations.add((await recalls(fork, `heliotrope, ${word}`)).harness_session);
        // Elsewhere too: its own checkpoint has all that its copy of the conversation needs.
        await suspend(fork);
        await recalls(fork, `heliotrope, ${word}`);
        await here.api("DELETE", `/api/sessions/${fork}?force=true`);
      }
      expect(conversations.size).toBe(4);
      await recalls(session, "heliotrope");
      await here.api("DELETE", `/api/sessions/${session}?force=true`);
    });

    // The stand-in's store is of its own kind, and one of that length would say nothing.
    if (name === "antigravity") return;
    test("a transcript of 100 MB: goes on where it is and elsewhere, and only what it grows by is kept anew", async () => {
      const session = `${name}-long`;
      await start(agent, session);
      expect(await here.turn(session, "hello", 180)).toMatchObject({ state: "done" });
      await lengthenTranscript(name, await transcriptOf(session), LONG);
      expect(await here.turn(session, "please remember quartz", 300)).toMatchObject({
        state: "done",
        conversation_lost: false,
      });
      const path = await transcriptOf(session);
      const { size } = await stat(path);
      expect(size).toBeGreaterThan(LONG);
      const bytes = await digest(path, size);
      await recalls(session, "heliotrope, quartz");
      const before = await here.until(session, "kept", (s) => s.checkpoints.length > 3);
      expect(before.checkpoints.at(-1)?.bytes).toBeGreaterThan(LONG / 2);
      expect(before.checkpoints.at(-1)?.new_bytes).toBeLessThan(1_000_000);

      await suspend(session);
      await recalls(session, "heliotrope, quartz");
      expect((await here.session(session)).generation).toBe(before.generation + 1);
      const restored = await transcriptOf(session);
      expect((await stat(restored)).size).toBeGreaterThan(size);
      expect(await digest(restored, size)).toBe(bytes);
      await here.api("DELETE", `/api/sessions/${session}?force=true`);
    }, 600_000);
  },
  300_000,
);

/** Where the agents, and what they work with, keep credentials or what may hold one. */
const PLACES = [
  ".claude/.credentials.json",
  ".claude/backups/.claude.json.backup.1",
  ".claude/history.jsonl",
  ".claude/sessions/4242.json",
  ".claude/sessions/4242.peer.key",
  ".claude/session-env/4242/env.sh",
  ".claude/shell-snapshots/snapshot-bash-1.sh",
  ".claude/telemetry/1.json",
  ".claude/plugins/config.json",
  ".claude.json",
  ".codex/auth.json",
  ".codex/history.jsonl",
  ".codex/log/codex-tui.log",
  ".codex/shell_snapshots/01a23207.sh",
  ".codex/.env",
  ".pi/agent/auth.json",
  ".pi/agent/models-store.json",
  ".pi/agent/trust.json.bak",
  ".gemini/oauth_creds.json",
  ".gemini/antigravity-cli/antigravity-oauth-token",
  ".hangar/planted",
  ".ssh/id_ed25519",
  ".aws/credentials",
  ".netrc",
  ".npmrc",
  ".git-credentials",
  ".config/gh/hosts.yml",
  ".config/gcloud/application_default_credentials.json",
  ".kube/config",
  ".docker/config.json",
];
const PLANT = PLACES.map(
  (path) => `mkdir -p ~/"${dirname(path)}"; printf '{"token":"CANARY-4d1f"}\\n' > ~/"${path}"`,
).join("\n");

/** Every file below the folder, opened with this Hangar's key, as text. */
async function openedFolder(folder: string, identity: string): Promise<string> {
  let text = "";
  for (const file of await readdir(folder, { recursive: true })) {
    if (!file.endsWith(".age")) continue;
    const plain = await run("sh", [
      "-c",
      'age -d -i "$0" "$1" | case $1 in *.zst.age) zstd -dc ;; *) cat ;; esac | base64 -w0',
      join(here.dataDir, identity),
      join(folder, file),
    ]);
    expect(plain, plain.stderr).toMatchObject({ code: 0 });
    text += Buffer.from(plain.stdout, "base64").toString("utf8");
  }
  return text;
}
