/**
 * A stand-in for Antigravity's command-line program `agy`, which is not published as a package. No part of Antigravity is in
 * here: it behaves as Hangar's adapter has been told that one does. It says its conversation's id in the first event of its
 * stream, goes on with `--conversation ID`, silently begins a new conversation for an id that it does not know, and keeps each
 * in a SQLite store of its own, `~/.gemini/antigravity-cli/conversations/<id>.db`. Its model is the stand-in of anthropic.ts,
 * at `ANTIGRAVITY_STAND_IN_MODEL`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync } from "node:fs";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import { asArray, asObject, asText } from "./server.ts";

/** Puts an `agy` that is this stand-in into `folder`, for a PATH. */
export async function installAntigravityStandIn(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  const program = join(folder, "agy");
  await writeFile(program, `#!/bin/sh\nexec ${quote(process.execPath)} ${quote(import.meta.filename)} "$@"\n`);
  await chmod(program, 0o755);
}

type Message = { role: "user" | "assistant"; content: unknown };
interface Conversation {
  readonly id: string;
  messages(): Message[];
  add(message: Message): void;
  close(): void;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      print: { type: "string" },
      conversation: { type: "string" },
      model: { type: "string" },
      "input-format": { type: "string" },
      "output-format": { type: "string" },
      "print-timeout": { type: "string" },
      "dangerously-skip-permissions": { type: "boolean" },
    },
  });
  const conversation = openConversation(values.conversation ?? null);
  if (values.print === undefined) return talk(conversation);
  emit({ event: "init", conversation_id: conversation.id, init: { cwd: process.cwd(), tools: ["run_command"] } });
  const { message } = asObject(JSON.parse(await standardInput()));
  conversation.add({ role: "user", content: asObject(message)["content"] });
  step({ step_type: "user_input", state: "DONE" });
  const ending = await turn(conversation, values.model ?? "stand-in");
  emit({ event: "result", result: { conversation_id: conversation.id, num_turns: 1, ...ending } });
  conversation.close();
  process.exitCode = ending.status === "SUCCESS" ? 0 : 1;
}

/** The history, then whatever is typed is kept on the screen: enough for a person to see where they are. */
function talk(conversation: Conversation): void {
  for (const { role, content } of conversation.messages()) {
    for (const block of asArray(content)) {
      const text = asText(asObject(block)["text"]);
      if (text !== "") process.stdout.write(`${role === "user" ? "> " : ""}${text}\n`);
    }
  }
  process.stdout.write("stand-in for Antigravity> ");
  process.stdin.resume();
}

const total = { input_tokens: 0, output_tokens: 0, thinking_tokens: 0, cache_read_tokens: 0 };

async function turn(conversation: Conversation, model: string) {
  for (;;) {
    const answer = await ask(conversation.messages(), model);
    if ("error" in answer) return { status: "ERROR", response: "", error: answer.error, usage: total };
    conversation.add({ role: "assistant", content: answer.content });
    const results: unknown[] = [];
    let text = "";
    for (const block of answer.content) {
      const { type, text: said, id, input } = asObject(block);
      if (type === "text") text += asText(said);
      if (type !== "tool_use") continue;
      const { output, failed } = await runCommand(asText(asObject(input)["command"]));
      results.push({ type: "tool_result", tool_use_id: id, content: output, is_error: failed });
    }
    if (results.length === 0) {
      const half = Math.ceil(text.length / 2);
      step({ step_type: "agent_response", state: "ACTIVE", text_delta: text.slice(0, half) }, false);
      step({ step_type: "agent_response", state: "DONE", text_delta: text.slice(half) });
      return { status: "SUCCESS", response: text, usage: total };
    }
    conversation.add({ role: "user", content: results });
  }
}

async function ask(messages: Message[], model: string): Promise<{ content: unknown[] } | { error: string }> {
  const response = await fetch(`${process.env["ANTIGRAVITY_STAND_IN_MODEL"]}/v1/messages`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-goog-api-key": process.env["GEMINI_API_KEY"] ?? "" },
    body: JSON.stringify({ model, messages, tools: [{ name: "bash" }] }),
  });
  const body = asObject(await response.json());
  if (!response.ok) return { error: `API error ${response.status}: ${asText(asObject(body["error"])["message"])}` };
  const usage = asObject(body["usage"]);
  total.input_tokens += Number(usage["input_tokens"]);
  total.output_tokens += Number(usage["output_tokens"]);
  return { content: asArray(body["content"]) };
}

let running: ChildProcess | null = null;

/** In a session of its own, as the real agents run their tools. */
async function runCommand(command: string): Promise<{ output: string; failed: boolean }> {
  const told = { step_type: "tool", tool_name: "run_command" };
  const parameters = { CommandLine: command };
  step({ ...told, state: "ACTIVE", tool_info: { name: "run_command", parameters } }, false);
  const child = spawn("/bin/sh", ["-c", command], { detached: true, stdio: ["ignore", "pipe", "pipe"] });
  running = child;
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  running = null;
  const failed = code !== 0;
  const error = failed ? { error: { message: `exit status ${code}` } } : {};
  step({ ...told, state: failed ? "ERROR" : "DONE", tool_info: { name: "run_command", parameters, output, ...error } });
  return { output, failed };
}

process.on("SIGTERM", () => {
  if (running?.pid !== undefined) process.kill(-running.pid, "SIGTERM");
  process.exit(143);
});

let steps = 0;
function step(update: Record<string, unknown>, isOver = true): void {
  emit({ event: "step_update", step_update: { step_index: steps, ...update } });
  if (isOver) steps += 1;
}
function emit(event: unknown): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

async function standardInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

/** An id without a store is no error: another conversation begins. */
function openConversation(asked: string | null): Conversation {
  const folder = join(process.env["HOME"] ?? "", ".gemini", "antigravity-cli", "conversations");
  mkdirSync(folder, { recursive: true });
  const id = asked !== null && existsSync(join(folder, `${asked}.db`)) ? asked : randomUUID();
  const store = new DatabaseSync(join(folder, `${id}.db`));
  store.exec(
    "PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS steps (idx INTEGER PRIMARY KEY, step_payload TEXT)",
  );
  return {
    id,
    messages: () =>
      store
        .prepare("SELECT step_payload FROM steps ORDER BY idx")
        .all()
        .map((row) => JSON.parse(asText(row["step_payload"])) as Message),
    add: (message) => void store.prepare("INSERT INTO steps (step_payload) VALUES (?)").run(JSON.stringify(message)),
    close: () => store.close(),
  };
}

if (import.meta.main) await main();
