/**
 * Antigravity: it chooses a conversation's id itself and says it first; a conversation is one SQLite store. An id that it does
 * not know silently begins a new conversation, so the store is looked for before a turn and the id compared after it.
 *
 * It is not published as a package: the id, the flag and the files are as the spec's table says (1.3.3); the stream's fields
 * are those that public captures of its versions 1.1.15 to 1.3 agree on. Tried with the stand-in of test/stand-ins alone.
 */
import { utimes } from "node:fs/promises";
import { join } from "node:path";
import { antigravityParser } from "./antigravity-output.ts";
import { type Harness, type Place, spoken, type TurnContext } from "./harness.ts";
import { fileSize, storeAt } from "./transcript-file.ts";

const CREDENTIALS = ["GEMINI_API_KEY", "GOOGLE_API_KEY"] as const;
/** Its own limit is 5 minutes, at whose end it says "SUCCESS" with half an answer; Hangar's own limits are the turn's. */
const PRINT_TIMEOUT = "24h";

export const antigravity: Harness = {
  name: "antigravity",
  title: "Antigravity",
  install: {
    program: "agy",
    npm: null,
    hint: "install its `agy` (https://antigravity.google) where the sandbox runs, or in its image",
    versions: "1.3.3, by its stand-in",
  },
  supportsResume: true,
  supportsFork: false,
  credentials: CREDENTIALS,
  conversation: {
    roots: [".gemini/antigravity-cli/conversations"],
    keeps: (path) => /^\.gemini\/antigravity-cli\/conversations\/(?:.+\/)?[^/]+\.db$/.test(path),
  },

  environment: (place) => ({ HOME: place.home }),
  seed: () => Promise.resolve(),

  async missingCredential(place) {
    if (CREDENTIALS.some((name) => (place.env[name] ?? "") !== "")) return null;
    if ((await fileSize(join(configFolder(place), "antigravity-oauth-token"))) > 0) return null;
    return (
      "Antigravity has no credential in this session: give one with `hangar secret set GEMINI_API_KEY`, name it in the " +
      "environment's secrets, then suspend the session and send again"
    );
  },

  newConversation: () => null,
  validConversation: (id) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id),

  transcript: (place, id) => storeAt(storePath(place, id)),
  // It is found from every folder, and its tools run where the turn runs.
  async relocate(place, id) {
    const now = new Date();
    await utimes(storePath(place, id), now, now).catch(() => undefined);
  },

  turn: (context) =>
    Promise.resolve({
      argv: [
        "agy",
        "--print=",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--print-timeout",
        PRINT_TIMEOUT,
        ...commonArguments(context),
      ],
      env: environmentOf(context),
      stdin: `${JSON.stringify({
        event: "user",
        message: { role: "user", content: [{ type: "text", text: spoken(context) }] },
      })}\n`,
    }),

  parser: () => Promise.resolve(antigravityParser(CREDENTIALS)),

  interactive: (context) =>
    Promise.resolve({ argv: ["agy", ...commonArguments(context)], env: environmentOf(context), stdin: null }),
};

const configFolder = ({ home }: Pick<Place, "home">): string => join(home, ".gemini", "antigravity-cli");
const storePath = (place: Place, id: string): string => join(configFolder(place), "conversations", `${id}.db`);
const environmentOf = (place: Place): Record<string, string> => ({ ...place.env, ...antigravity.environment(place) });

const commonArguments = ({ resume, model }: Pick<TurnContext, "resume" | "model">): string[] => [
  "--dangerously-skip-permissions",
  ...(model === null ? [] : ["--model", model]),
  ...(resume === null ? [] : ["--conversation", resume]),
];
