/** Claude Code: its conversation is one append-only JSONL, kept by the id that Hangar chooses. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, realpath, rename, utimes } from "node:fs/promises";
import { join } from "node:path";
import { claudeParser } from "./claude-output.ts";
import { type Harness, type Place, spoken, type TurnContext } from "./harness.ts";
import { seedJson } from "./seed-json.ts";
import { fileSize, transcriptAt } from "./transcript-file.ts";

const CLAUDE_CREDENTIALS = ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"] as const;
/** Set for the model services that take other credentials than these. */
const OTHER_SERVICES = ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"];

export const claude: Harness = {
  name: "claude",
  title: "Claude Code",
  install: {
    program: "claude",
    npm: "@anthropic-ai/claude-code",
    hint: "install it with `npm install -g @anthropic-ai/claude-code` where the sandbox runs, or in its image",
    versions: "2.1.332",
  },
  supportsResume: true,
  supportsFork: true,
  credentials: CLAUDE_CREDENTIALS,
  conversation: {
    roots: [".claude/projects"],
    // Transcripts, sub-agents, large tool outputs and auto-memory.
    keeps: (path) => /^\.claude\/projects\/[^/]+\/(?:[^/]+\.jsonl|[0-9a-f-]{36}\/.+|memory\/.+)$/.test(path),
  },

  environment: (place) => ({
    HOME: place.home,
    CLAUDE_CONFIG_DIR: configFolder(place.home),
    CLAUDE_CODE_TMPDIR: place.env["CLAUDE_CODE_TMPDIR"] ?? scratchFolder(place),
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL: "1",
    DISABLE_AUTOUPDATER: "1",
    // Without it, root may not skip the permission prompts. The sandbox is Hangar's.
    ...(process.getuid?.() === 0 ? { IS_SANDBOX: "1" } : {}),
  }),

  async seed(place) {
    await mkdir(scratchFolder(place), { recursive: true });
    const key = place.env["ANTHROPIC_API_KEY"] ?? "";
    await seedJson(join(configFolder(place.home), ".claude.json"), (config) => ({
      ...config,
      hasCompletedOnboarding: true,
      ...(key === "" ? {} : { customApiKeyResponses: approving(config["customApiKeyResponses"], key.slice(-20)) }),
      projects: trusting(config["projects"], place.cwd),
    }));
    await seedJson(join(configFolder(place.home), "settings.json"), (settings) => ({
      // It deletes transcripts by file time after 30 days.
      cleanupPeriodDays: 3650,
      ...settings,
      skipDangerousModePermissionPrompt: true,
    }));
  },

  async missingCredential(place) {
    const isSet = (name: string): boolean => (place.env[name] ?? "") !== "";
    if ([...CLAUDE_CREDENTIALS, ...OTHER_SERVICES].some(isSet)) return null;
    // Somebody logged in by hand in this sandbox.
    if ((await fileSize(join(configFolder(place.home), ".credentials.json"))) > 0) return null;
    return (
      "Claude Code has no credential in this session: give one with `hangar secret set CLAUDE_CODE_OAUTH_TOKEN` (or " +
      "ANTHROPIC_API_KEY), name it in the environment's secrets, then suspend the session and send again"
    );
  },

  newConversation: () => randomUUID(),
  validConversation: (id) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id),

  async transcript(place, id) {
    const projects = projectsFolder(place.home);
    const expected = await transcriptAt(join(projects, await slugOf(place.cwd), `${id}.jsonl`));
    if (expected !== null) return expected;
    const folders = await readdir(projects).catch(() => []);
    const found = await Promise.all(folders.map((folder) => transcriptAt(join(projects, folder, `${id}.jsonl`))));
    return found.find((each) => each !== null) ?? null;
  },

  async relocate(place, id) {
    const found = await this.transcript(place, id);
    if (found === null) return;
    const folder = join(projectsFolder(place.home), await slugOf(place.cwd));
    const path = join(folder, `${id}.jsonl`);
    if (found.path !== path) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      // What belongs to it first: were this cut short, the transcript would still be found where it was.
      await rename(found.path.slice(0, -".jsonl".length), join(folder, id)).catch(() => undefined);
      await rename(found.path, path);
    }
    const now = new Date();
    await utimes(path, now, now);
  },

  turn: (context) =>
    Promise.resolve({
      argv: [
        "claude",
        "-p",
        "--output-format",
        "stream-json",
        // stream-json requires it.
        "--verbose",
        "--dangerously-skip-permissions",
        ...conversationArguments(context),
        ...modelArguments(context),
      ],
      env: environmentOf(context),
      // Not as an argument: one is bounded by 128 KiB, may begin with a dash, and is shown by `ps`.
      stdin: spoken(context),
    }),

  parser: () => Promise.resolve(claudeParser(CLAUDE_CREDENTIALS)),

  interactive: (context) =>
    Promise.resolve({
      argv: ["claude", "--dangerously-skip-permissions", ...conversationArguments(context), ...modelArguments(context)],
      env: environmentOf(context),
      stdin: null,
    }),
};

const configFolder = (home: string): string => join(home, ".claude");
const projectsFolder = (home: string): string => join(configFolder(home), "projects");
const scratchFolder = ({ home, env }: Place): string => env["TMPDIR"] ?? join(home, ".cache", "claude-tmp");

const environmentOf = (place: Place): Record<string, string> => ({ ...place.env, ...claude.environment(place) });

const conversationArguments = ({ resume, fork, fresh }: Pick<TurnContext, "resume" | "fork" | "fresh">): string[] => {
  if (resume !== null) return ["--resume", resume];
  if (fork !== null) return ["--resume", fork, "--fork-session", ...(fresh === null ? [] : ["--session-id", fresh])];
  return fresh === null ? [] : ["--session-id", fresh];
};
const modelArguments = ({ model }: Pick<TurnContext, "model">): string[] => (model === null ? [] : ["--model", model]);

/** The folder that Claude Code keeps a directory's conversations in. */
async function slugOf(cwd: string): Promise<string> {
  const path = await realpath(cwd).catch(() => cwd);
  const slug = path.replace(/[^A-Za-z0-9]/g, "-");
  return slug.length <= 200 ? slug : `${slug.slice(0, 200)}-${shortHash(path)}`;
}
/** 31-based, in 32 bits, as the CLI does it. */
function shortHash(text: string): string {
  let hash = 0;
  for (let at = 0; at < text.length; at += 1) hash = (hash * 31 + text.charCodeAt(at)) | 0;
  return Math.abs(hash).toString(36);
}

const asRecord = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};

/** Approves the key that the sandbox was given: interactively, Claude Code asks whether it may use it. */
function approving(responses: unknown, ending: string): Record<string, unknown> {
  const approved = asRecord(responses)["approved"];
  return {
    rejected: [],
    ...asRecord(responses),
    approved: [...new Set([...(Array.isArray(approved) ? approved : []), ending])],
  };
}

function trusting(projects: unknown, cwd: string): Record<string, unknown> {
  const known = asRecord(projects);
  return { ...known, [cwd]: { ...asRecord(known[cwd]), hasTrustDialogAccepted: true } };
}
