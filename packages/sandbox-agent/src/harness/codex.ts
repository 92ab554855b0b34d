/** Codex: it chooses a conversation's id itself and says it first; its conversation is one append-only rollout file. */
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { codexParser, type CodexUsage, usageInRollout } from "./codex-output.ts";
import { type Harness, type Place, spoken, type Transcript } from "./harness.ts";
import { lastLineWith } from "./last-line.ts";
import { fileSize, transcriptAt } from "./transcript-file.ts";

const KEYS = ["OPENAI_API_KEY", "CODEX_API_KEY"] as const;
/** The first line of a configuration that is Hangar's to write anew. */
const MARK = "# Written by Hangar before every turn: remove this line to keep what you change.";

export const codex: Harness = {
  name: "codex",
  title: "Codex",
  install: {
    program: "codex",
    npm: "@openai/codex",
    hint: "install it with `npm install -g @openai/codex` where the sandbox runs, or in its image",
    versions: "0.171.0",
  },
  supportsResume: true,
  supportsFork: true,
  credentials: KEYS,
  conversation: {
    roots: [".codex/sessions"],
    // All of them: a fork reads its parent's file, by offset.
    keeps: (path) => /^\.codex\/sessions\/(?:.+\/)?rollout-[^/]+\.jsonl$/.test(path),
  },

  environment: (place) => ({ HOME: place.home, CODEX_HOME: codexHome(place) }),

  async seed(place) {
    await mkdir(codexHome(place), { recursive: true, mode: 0o700 });
    const path = join(codexHome(place), "config.toml");
    const before = await readFile(path, "utf8").catch(() => null);
    const after = configuration(place);
    if (before === after || (before !== null && !before.startsWith(MARK))) return;
    await writeFile(path, after, { mode: 0o600 });
  },

  async missingCredential(place) {
    if (keyName(place) !== null || (await fileSize(join(codexHome(place), "auth.json"))) > 0) return null;
    return (
      "Codex has no credential in this session: give one with `hangar secret set OPENAI_API_KEY`, name it in the " +
      "environment's secrets, then suspend the session and send again"
    );
  },

  newConversation: () => null,
  // Any other word would silently begin a new conversation.
  validConversation: (id) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id),

  async transcript(place, id): Promise<Transcript | null> {
    const folder = join(codexHome(place), "sessions");
    const files = await readdir(folder, { recursive: true }).catch(() => []);
    const found = files.find((file) => file.endsWith(`-${id}.jsonl`));
    if (found === undefined) return null;
    return transcriptAt(join(folder, found));
  },
  // It is found under any folder, and its tools run where the turn runs.
  relocate: () => Promise.resolve(),

  turn: (context) =>
    Promise.resolve({
      argv: [
        "codex",
        "exec",
        ...(context.resume === null ? [] : ["resume"]),
        ...(context.fork === null ? [] : ["fork"]),
        "--json",
        "--dangerously-bypass-approvals-and-sandbox",
        ...(context.model === null ? [] : ["--model", context.model]),
        ...(context.resume === null ? [] : [context.resume]),
        ...(context.fork === null ? [] : [context.fork]),
        // The prompt is on stdin.
        "-",
      ],
      env: { ...context.env, ...codex.environment(context) },
      stdin: spoken(context),
    }),

  async parser(context) {
    const id = context.resume ?? context.fork;
    const before = id === null ? null : await codex.transcript(context, id);
    return codexParser(before === null ? null : await usageBefore(before.path), KEYS);
  },

  interactive: (context) =>
    Promise.resolve({
      argv: [
        "codex",
        ...(context.resume === null ? [] : ["resume"]),
        "--dangerously-bypass-approvals-and-sandbox",
        ...(context.model === null ? [] : ["--model", context.model]),
        ...(context.resume === null ? [] : [context.resume]),
      ],
      env: { ...context.env, ...codex.environment(context) },
      stdin: null,
    }),
};

const codexHome = ({ home }: Pick<Place, "home">): string => join(home, ".codex");
const keyName = ({ env }: Place): string | null => KEYS.find((name) => (env[name] ?? "") !== "") ?? null;

/** What the conversation has used so far: Codex reports the sum. */
async function usageBefore(path: string): Promise<CodexUsage | null> {
  const line = await lastLineWith(path, '"total_token_usage"');
  return line === null ? null : usageInRollout(line);
}

/**
 * With a key: a provider of its own, the same in every sandbox (a conversation names its provider, and is refused where that
 * is not configured), which sends the key and needs no WebSocket. Without one: whatever a login by hand uses.
 */
function configuration(place: Place): string {
  const key = keyName(place);
  const text = (value: string): string => JSON.stringify(value);
  const url = place.env["OPENAI_BASE_URL"] ?? "";
  return [
    MARK,
    ...(key === null ? [] : ['model_provider = "hangar"']),
    "check_for_update_on_startup = false",
    "",
    "[model_providers.hangar]",
    'name = "OpenAI"',
    `base_url = ${text(url === "" ? "https://api.openai.com/v1" : url)}`,
    'wire_api = "responses"',
    `env_key = ${text(key ?? KEYS[0])}`,
    "",
    "[analytics]",
    "enabled = false",
    "",
    "[features]",
    "plugins = false",
    // It writes the environment, keys included, to a file.
    "shell_snapshot = false",
    // It would outlive the terminal.
    "daemon_auto_start = false",
    "",
    `[projects.${text(place.cwd)}]`,
    'trust_level = "trusted"',
    "",
  ].join("\n");
}
