/** pi: Hangar chooses a conversation's id; a run goes on only with a file whose folder and first line name its directory. */
import { randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, open, readdir, realpath, rename, rm, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { type Harness, type Place, spoken, type Transcript, type TurnContext } from "./harness.ts";
import { jsonIn } from "./json.ts";
import { piParser } from "./pi-output.ts";
import { seedJson } from "./seed-json.ts";
import { fileSize, transcriptAt } from "./transcript-file.ts";

/** Base URLs that a session's variables may set, and the provider that each is for. */
const BASE_URLS = { anthropic: "ANTHROPIC_BASE_URL", openai: "OPENAI_BASE_URL" } as const;
const CREDENTIALS = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"];
const HEADER_LIMIT = 1024 * 1024;

const Header = z.looseObject({ type: z.literal("session"), id: z.string(), cwd: z.string() });

export const pi: Harness = {
  name: "pi",
  title: "pi",
  install: {
    program: "pi",
    npm: "@earendil-works/pi-coding-agent",
    hint: "install it with `npm install -g @earendil-works/pi-coding-agent` where the sandbox runs, or in its image",
    versions: "1.6.0",
  },
  supportsResume: true,
  supportsFork: true,
  credentials: CREDENTIALS,
  conversation: {
    roots: [".pi/agent/sessions"],
    keeps: (path) => /^\.pi\/agent\/sessions\/(?:[^/]+\/)?[^/]+\.jsonl$/.test(path),
  },

  environment: (place) => ({
    HOME: place.home,
    // Interactively it would look for newer versions and fetch tools.
    PI_OFFLINE: place.env["PI_OFFLINE"] ?? "1",
  }),

  async seed(place) {
    const urls = Object.entries(BASE_URLS).flatMap(([provider, name]) => {
      const baseUrl = place.env[name] ?? "";
      return baseUrl === "" ? [] : [[provider, { baseUrl }] as const];
    });
    if (urls.length === 0) return;
    await seedJson(join(agentFolder(place), "models.json"), (models) => {
      const known = z.record(z.string(), z.record(z.string(), z.unknown())).catch({}).parse(models["providers"]);
      const changed = urls.map(([provider, url]) => [provider, { ...known[provider], ...url }]);
      return { ...models, providers: { ...known, ...Object.fromEntries(changed) } };
    });
  },

  async missingCredential(place) {
    const isSet = Object.entries(place.env).some(([name, value]) => /_(?:API_KEY|TOKEN)$/.test(name) && value !== "");
    if (isSet || (await fileSize(join(agentFolder(place), "auth.json"))) > 0) return null;
    return (
      "pi has no credential in this session: give one with `hangar secret set ANTHROPIC_API_KEY` (or another provider's), " +
      "name it in the environment's secrets, then suspend the session and send again"
    );
  },

  newConversation: () => randomUUID(),
  validConversation: (id) => /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$/.test(id),

  async transcript(place, id) {
    const here = await newestIn(await sessionFolder(place), id);
    if (here !== null) return here;
    const root = join(agentFolder(place), "sessions");
    const folders = await readdir(root).catch(() => []);
    const found = await Promise.all(folders.map((folder) => newestIn(join(root, folder), id)));
    return found.find((each) => each !== null) ?? null;
  },

  async relocate(place, id) {
    const found = await pi.transcript(place, id);
    const header = found === null ? null : await headerOf(found.path);
    if (found === null || header === null) return;
    const cwd = await realpath(place.cwd).catch(() => place.cwd);
    const path = join(await sessionFolder(place), basename(found.path));
    if (found.path !== path || header.record.cwd !== cwd) await rewrite(found.path, path, header, cwd);
    const now = new Date();
    await utimes(path, now, now);
  },

  turn: (context) =>
    Promise.resolve({
      argv: ["pi", "--mode", "json", ...piArguments(context)],
      env: { ...context.env, ...pi.environment(context) },
      stdin: spoken(context),
    }),

  parser: () => Promise.resolve(piParser(CREDENTIALS)),

  interactive: (context) =>
    Promise.resolve({
      // The repo's own settings are trusted, as a turn's are.
      argv: ["pi", "--approve", ...piArguments(context)],
      env: { ...context.env, ...pi.environment(context) },
      stdin: null,
    }),
};

const agentFolder = ({ home }: Pick<Place, "home">): string => join(home, ".pi", "agent");

const piArguments = ({ resume, fork, fresh, model }: Omit<TurnContext, "message" | "preamble">): string[] => {
  const id = resume ?? fresh;
  return [
    ...(model === null ? [] : ["--model", model]),
    ...(fork === null ? [] : ["--fork", fork]),
    ...(id === null ? [] : ["--session-id", id]),
  ];
};

/** The folder that pi keeps a directory's conversations in. */
async function sessionFolder(place: Place): Promise<string> {
  const cwd = await realpath(place.cwd).catch(() => place.cwd);
  return join(agentFolder(place), "sessions", `--${cwd.replace(/^\//, "").replace(/[/\\:]/g, "-")}--`);
}

/** A file is named by its time, so the last one in order is the newest. */
async function newestIn(folder: string, id: string): Promise<Transcript | null> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(`_${id}.jsonl`)).sort();
  const name = names.at(-1);
  return name === undefined ? null : transcriptAt(join(folder, name));
}

interface FirstLine {
  readonly record: z.infer<typeof Header>;
  /** Bytes, with the line's end. */
  readonly length: number;
}

async function headerOf(path: string): Promise<FirstLine | null> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_LIMIT), 0, HEADER_LIMIT, 0);
    const end = buffer.subarray(0, bytesRead).indexOf(0x0a);
    const record = Header.safeParse(jsonIn(buffer.toString("utf8", 0, Math.max(0, end))));
    return record.success ? { record: record.data, length: end + 1 } : null;
  } finally {
    await file.close();
  }
}

/** The same conversation under another path, its first line naming another directory. The old file goes last. */
async function rewrite(from: string, to: string, header: FirstLine, cwd: string): Promise<void> {
  const temporary = `${to}.${randomUUID()}.tmp`;
  await mkdir(join(to, ".."), { recursive: true, mode: 0o700 });
  try {
    const target = createWriteStream(temporary, { mode: 0o600 });
    target.write(`${JSON.stringify({ ...header.record, cwd })}\n`);
    await pipeline(createReadStream(from, { start: header.length }), target);
    await rename(temporary, to);
  } finally {
    await rm(temporary, { force: true });
  }
  if (from !== to) await rm(from, { force: true });
}
