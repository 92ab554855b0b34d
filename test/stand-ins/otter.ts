#!/usr/bin/env node
/**
 * A stand-in for an agent that Hangar has no adapter of: made up for tests of declared harnesses. It keeps a conversation as
 * JSON lines under `~/.otter/talks/<id>.jsonl`, and a key, which must never travel, beside it.
 * `otter talk --id ID [--model M] [--again | --copy-of OTHER]`, the message on standard input.
 */
import { appendFileSync, copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const [verb = "", ...rest] = process.argv.slice(2);
const option = (name: string): string | null => {
  const at = rest.indexOf(`--${name}`);
  return at < 0 ? null : (rest[at + 1] ?? null);
};
const say = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);
const folder = join(homedir(), ".otter", "talks");
mkdirSync(folder, { recursive: true });
const file = join(folder, `${option("id")}.jsonl`);
const other = option("copy-of");

if (verb !== "talk" || option("id") === null) process.exit(2);
if (other !== null) copyFileSync(join(folder, `${other}.jsonl`), file);
if (rest.includes("--again") && !existsSync(file)) process.exit(3);
writeFileSync(join(folder, "login.key"), process.env["OTTER_KEY"] ?? "");
const message = readFileSync(0, "utf8").trim();
appendFileSync(file, `${JSON.stringify({ said: message })}\n`);
const words = readFileSync(file, "utf8")
  .split("\n")
  .filter(Boolean)
  .flatMap((line) =>
    [...(JSON.parse(line) as { said: string }).said.matchAll(/remember (\w+)/g)].map(([, word]) => word),
  );
say({ type: "hello", talk: { id: option("id") }, model: option("model") });
say({ type: "tool", tool: { name: "look", input: { at: process.cwd() } } });
say({ type: "tool_end", tool: { name: "look", output: "nothing", failed: false } });
if (message.includes("break")) {
  say({ type: "oops", why: "the otter fell asleep" });
  process.exit(0);
}
say({ type: "word", text: { body: `I remember ${words.length === 0 ? "nothing" : [...new Set(words)].join(", ")}.` } });
say({ type: "bill", tokens: { in: 7, out: 3 }, dollars: 0.5 });
