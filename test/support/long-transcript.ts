/**
 * Makes an agent's transcript long, with records of the kinds that the agent writes itself: for Claude Code and pi a branch
 * of messages that was left, as after a step back; for Codex what it notes beside the conversation. The conversation's own
 * history stays as it is, and goes on from where it was.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { readFile, rename } from "node:fs/promises";
import type { AgentCli } from "./agent-clis.ts";

type Entry = Record<string, unknown>;
/** Of one added record: the record that it is like, and the one before it. */
type Maker = (pattern: Entry, before: Entry, text: string) => Entry;

/** Each record's text, which does not compress away. */
const TEXT = 96 * 1024;

/** Rewrites the transcript at `path`, of two turns or more, to at least `bytes`. */
export async function lengthenTranscript(agent: AgentCli, path: string, bytes: number): Promise<void> {
  const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
  const entries = lines.map((line) => JSON.parse(line) as Entry);
  const { at, patterns, from, make } = FORMATS[agent](entries);
  const file = createWriteStream(`${path}.longer`, { mode: 0o600 });
  const write = async (line: string): Promise<void> => {
    if (!file.write(`${line}\n`)) await once(file, "drain");
  };
  for (const line of lines.slice(0, at)) await write(line);
  let before = from;
  for (let count = 0, size = 0; size < bytes; count += 1) {
    const pattern = patterns[count % patterns.length] ?? {};
    before = make(pattern, before, randomBytes(TEXT).toString("base64"));
    const line = JSON.stringify(before);
    await write(line);
    size += line.length;
  }
  for (const line of lines.slice(at)) await write(line);
  file.end();
  await once(file, "close");
  await rename(`${path}.longer`, path);
}

interface Format {
  /** Which line the new ones come before. */
  readonly at: number;
  readonly patterns: readonly Entry[];
  /** What the first of them follows. */
  readonly from: Entry;
  readonly make: Maker;
}

/** Entries in a tree: the new ones branch off from the first answer. */
const branch = (entries: readonly Entry[], at: number, make: Maker): Format => {
  const [asked, answered] = ["user", "assistant"].map((role) => found(entries, (entry) => roleOf(entry) === role));
  return { at, patterns: [asked, answered].map((entry) => entry ?? {}), from: answered ?? {}, make };
};

const FORMATS: Record<AgentCli, (entries: readonly Entry[]) => Format> = {
  claude: (entries) =>
    branch(entries, entries.findIndex(({ type }) => type === "cost-state") + 1, (pattern, before, text) => ({
      ...pattern,
      uuid: randomUUID(),
      parentUuid: before["uuid"],
      message: { ...asEntry(pattern["message"]), content: [{ type: "text", text }] },
    })),
  pi: (entries) =>
    branch(entries, entries.findIndex((entry) => roleOf(entry) === "assistant") + 1, (pattern, before, text) => ({
      ...pattern,
      id: randomBytes(4).toString("hex"),
      parentId: before["id"],
      message: { ...asEntry(pattern["message"]), content: [{ type: "text", text }] },
    })),
  codex: (entries) => ({
    at: entries.length,
    patterns: [found(entries, ({ payload }) => asEntry(asEntry(payload)["item"])["type"] === "AgentMessage")],
    from: entries.at(-1) ?? {},
    make: (pattern, before, text) => {
      const payload = asEntry(pattern["payload"]);
      const item = { ...asEntry(payload["item"]), id: `msg_${randomUUID()}`, content: [{ type: "Text", text }] };
      return { ...pattern, ordinal: Number(before["ordinal"]) + 1, payload: { ...payload, item } };
    },
  }),
};

const asEntry = (value: unknown): Entry => (value ?? {}) as Entry;
const roleOf = (entry: Entry): unknown => asEntry(entry["message"])["role"];

function found(entries: readonly Entry[], is: (entry: Entry) => boolean): Entry {
  const entry = entries.find(is);
  if (entry === undefined) throw new Error("the transcript has no such record");
  return entry;
}
