/** MCP: over HTTP and over standard input and output, with the SDK's client and with the real Claude Code as the client. */
import { mkdir, readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { agentClis } from "../support/agent-clis.ts";
import { makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let remote: string;
const TOKEN = "test-token-0123456789abcdef0123456789abcdef";
const BIN = new URL("../../node_modules/.bin/hangar", import.meta.url).pathname;

beforeAll(async () => {
  hangar = await startHangar({ HANGAR_IDLE_PASS_SECONDS: "1" });
  remote = await makeRemote(hangar.dir);
}, 120_000);
afterAll(() => hangar.close());

interface Called {
  readonly text: string;
  readonly data: Record<string, unknown>;
  readonly isError: boolean;
  readonly progress: string[];
}

async function overHttp(): Promise<Client> {
  const client = new Client({ name: "test", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${TOKEN}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", hangar.replica.url), { requestInit }));
  return client;
}

async function overStdio(): Promise<Client> {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioClientTransport({ command: BIN, args: ["mcp"], env: hangar.env, stderr: "inherit" }));
  return client;
}

async function call(client: Client, name: string, input: Record<string, unknown> = {}): Promise<Called> {
  const progress: string[] = [];
  const result = await client.callTool(
    { name, arguments: input },
    { timeout: 120_000, onprogress: ({ message }) => void progress.push(message ?? "") },
  );
  const [content] = result.content;
  return {
    text: content?.type === "text" ? content.text : "",
    data: (result.structuredContent ?? {}) as Record<string, unknown>,
    isError: result.isError === true,
    progress,
  };
}

test.each([
  ["over HTTP", overHttp],
  ["over standard input and output", overStdio],
] as const)(
  "the main job %s",
  async (how, connect) => {
    const name = `job-${how.length}`;
    const client = await connect();
    try {
      const { tools } = await client.listTools();
      expect(tools.map((tool) => tool.name).toSorted()).toEqual([
        "fork_session",
        "get_session",
        "keep_session",
        "list_checkpoints",
        "list_sessions",
        "new_session",
        "open_session",
        "send_to_session",
        "suspend_session",
      ]);
      for (const tool of tools) expect(tool.description?.length).toBeGreaterThan(20);

      const made = await call(client, "new_session", { name, repo: remote, harness: "script" });
      expect(made).toMatchObject({ isError: false, data: { name, state: "IDLE" } });
      expect(made.progress).toContain(`cloning (${remote})`);

      const sent = await call(client, "send_to_session", { session: name, message: "echo kept > a.txt; echo done" });
      expect(sent).toMatchObject({ isError: false, data: { turn: { state: "done", summary: "done" } } });
      expect(sent.text).toContain("\n\ndone");
      expect(sent.progress).toContain("the agent works");

      const suspended = await call(client, "suspend_session", { session: name });
      expect(suspended).toMatchObject({ isError: false, data: { state: "SUSPENDED" } });
      const opened = await call(client, "open_session", { session: name });
      expect(opened.progress.join("\n")).toContain("restoring");
      expect(opened).toMatchObject({ isError: false, data: { state: "IDLE" } });

      // A turn that takes longer than the caller waits gives a handle; the same handle gives the outcome.
      const long = await call(client, "send_to_session", {
        session: name,
        message: "while [ ! -e go ]; do sleep 0.1; done; cat a.txt",
        wait_seconds: 1,
      });
      const turn = (long.data["turn"] as { id: string }).id;
      expect(long.text).toContain(`get_session {"session":"${name}","turn":"${turn}"`);
      expect(await call(client, "get_session", { session: name, turn })).toMatchObject({
        data: { turn: { state: "running" } },
      });
      await hangar.exec(name, "touch", "go");
      const polled = await call(client, "get_session", { session: name, turn, wait_seconds: 60 });
      expect(polled).toMatchObject({ data: { turn: { id: turn, state: "done", summary: "kept" } } });

      const kept = await call(client, "keep_session", { session: name, idle_minutes: 0 });
      expect(kept.isError).toBe(false);
      expect((await hangar.session(name)).idle_minutes).toBe(0);
      const { data } = await call(client, "list_checkpoints", { session: name });
      expect((data["checkpoints"] as { id: string }[]).length).toBeGreaterThan(1);
      const forked = await call(client, "fork_session", { session: name, count: 2 });
      expect(forked.text).toBe(`Starting: ${name}-fork-1, ${name}-fork-2`);
      expect((await call(client, "list_sessions")).text).toContain(`${name}-fork-2: `);
      for (const fork of [`${name}-fork-1`, `${name}-fork-2`]) {
        await hangar.until(fork, "its own checkpoint", (s) => s.checkpoints.length > 0);
        await hangar.api("DELETE", `/api/sessions/${fork}?force=true`);
      }
    } finally {
      await client.close();
    }
  },
  240_000,
);

test("what is wrong is said with its code and what to do, and nothing happens", async () => {
  const client = await overHttp();
  try {
    expect(await call(client, "get_session", { session: "nope" })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/^session_not_found: .*hangar session list/),
    });
    expect(await call(client, "new_session", { name: "Not a name" })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/^invalid_request: name: use 1 to 60 lower-case/),
    });
    expect(await call(client, "new_session", { name: "x", nonsense: 1 })).toMatchObject({
      isError: true,
      text: 'invalid_request: there is no field "nonsense"',
    });
    const failing = await call(client, "new_session", { name: "gone", repo: "/no/such/repo", harness: "script" });
    expect(failing).toMatchObject({ isError: true, text: expect.stringMatching(/^clone_failed: gone did not start/) });
  } finally {
    await client.close();
  }
  const stranger = new Client({ name: "stranger", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL("/mcp", hangar.replica.url));
  await expect(stranger.connect(transport)).rejects.toThrow();
  const page = await fetch(new URL("/mcp", hangar.replica.url), {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}`, origin: "https://evil.example" },
    body: "{}",
  });
  expect(page.status).toBe(403);
});

test("the bridge outlives its Hangar: a call that is cut off is answered, the next ones find it again", async () => {
  const client = await overStdio();
  try {
    await call(client, "new_session", { name: "cut-off", repo: remote, harness: "script" });
    const message = "while [ ! -e go ]; do sleep 0.1; done; echo ran >> runs.txt; cat runs.txt";
    const send = { session: "cut-off", message, idempotency_key: "once" };
    const told: string[] = [];
    const sent = client.callTool(
      { name: "send_to_session", arguments: { ...send, wait_seconds: 300 } },
      { timeout: 120_000, onprogress: ({ message }) => void told.push(message ?? "") },
    );
    await expect.poll(() => told.join("\n"), { timeout: 30_000 }).toMatch(/goes on, for 1\d s now/);
    await hangar.replica.kill("SIGKILL");
    await expect(sent).rejects.toThrow(/not_running: Hangar/);
    await expect(call(client, "list_sessions")).rejects.toThrow(/not_running: Hangar at .* cannot be reached/);
    await hangar.restart();
    await hangar.exec("cut-off", "touch", "go");
    // The same key: the turn that the first call began.
    const again = await call(client, "send_to_session", { ...send, wait_seconds: 60 });
    expect(again).toMatchObject({ isError: false, data: { turn: { state: "done", summary: "ran" } } });
    expect((await hangar.session("cut-off")).turns).toHaveLength(1);

    // One that is told to stop answers first, with how to go on.
    const waiting = call(client, "send_to_session", {
      session: "cut-off",
      message: "sleep 5; echo slept",
      wait_seconds: 300,
    });
    await hangar.until("cut-off", "at work", (s) => s.state === "ACTIVE");
    await hangar.replica.kill("SIGTERM");
    const handle = (await waiting).data["ask_again"] as { arguments: Record<string, unknown> };
    await hangar.restart();
    expect(await call(client, "get_session", handle.arguments)).toMatchObject({
      isError: false,
      data: { turn: { state: "done", summary: "slept" } },
    });
  } finally {
    await client.close();
  }
  const stranger = new Client({ name: "stranger", version: "1" });
  const env = { ...hangar.env, HANGAR_TOKEN: "wrong-token-0123456789" };
  const transport = new StdioClientTransport({ command: BIN, args: ["mcp"], env, stderr: "pipe" });
  await expect(stranger.connect(transport)).rejects.toThrow(/unauthorized: The token is wrong/);
  await stranger.close();
}, 180_000);

test("Claude Code uses the tools, as docs/mcp.md says to set it up", async () => {
  const model = await startAnthropic();
  const clis = await agentClis();
  const home = join(hangar.dir, "claude-home");
  await mkdir(home);
  const page = await readFile(new URL("../../docs/mcp.md", import.meta.url), "utf8");
  const commands = [...page.matchAll(/^claude mcp add .*$/gm)].map(([line]) => line);
  expect(commands).toHaveLength(2);
  const env = {
    ...hangar.env,
    PATH: [join(BIN, ".."), clis, process.env["PATH"] ?? ""].join(delimiter),
    HOME: home,
    ANTHROPIC_API_KEY: "sk-ant-api03-made-up-for-tests-0123456789",
    ANTHROPIC_BASE_URL: model.url,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    IS_SANDBOX: "1",
    URL: hangar.replica.url,
    TOKEN,
  };
  try {
    for (const [i, command] of commands.entries()) {
      const added = await run("sh", ["-c", command], { cwd: hangar.dir, env });
      expect(added, command).toMatchObject({ code: 0 });
      const server = /claude mcp add (?:.* )?(hangar\S*)/.exec(command)?.[1] ?? "hangar";
      const ask = async (tool: string, input: object): Promise<string> => {
        const prompt = `use mcp__${server}__${tool} ${JSON.stringify(input)}`;
        const args = ["-p", "--dangerously-skip-permissions", "--output-format", "json"];
        const ran = await run("claude", args, { cwd: hangar.dir, env, input: prompt });
        expect(ran, ran.stderr).toMatchObject({ code: 0 });
        return (JSON.parse(ran.stdout) as { result: string }).result;
      };
      const name = `by-claude-${i}`;
      expect(
        await ask("new_session", { name, repo: remote, harness: "script", message: "echo from the tool" }),
      ).toMatch(/"state":"done".*"summary":"from the tool"/);
      expect(await ask("list_sessions", {})).toMatch(new RegExp(`"name":"${name}".*"state":"IDLE"`));
      expect((await hangar.session(name)).turns).toMatchObject([{ state: "done", summary: "from the tool" }]);
      await run("claude", ["mcp", "remove", server], { cwd: hangar.dir, env });
    }
  } finally {
    await model.close();
  }
}, 240_000);
