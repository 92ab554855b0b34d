/** A harness from its declaration (docs/harnesses.md). */
import { randomUUID } from "node:crypto";
import { readdir, utimes } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type HarnessDefinition, nameMatches } from "@hangar/shared";
import { declaredParser } from "./declared-output.ts";
import { findProgram } from "./find-program.ts";
import { type Command, type Harness, type Place, spoken, type Transcript, type TurnContext } from "./harness.ts";
import { storeAt, transcriptAt } from "./transcript-file.ts";

export function declaredHarness(definition: HarnessDefinition): Harness {
  const { name, conversation, credentials } = definition;
  const title = definition.title ?? name;
  const valid = new RegExp(`^(?:${conversation?.pattern ?? ".+"})$`);
  const program = definition.turn[0] ?? name;

  const environment = (place: Place): Record<string, string> => ({
    HOME: place.home,
    ...Object.fromEntries(Object.entries(definition.variables).map(([key, text]) => [key, filled(text, place) ?? ""])),
  });
  const command = (
    line: readonly string[],
    context: Omit<TurnContext, "message" | "preamble">,
    said: string | null,
  ): Command => {
    const values = { ...context, message: said };
    const [first = program, ...rest] = line;
    const isArgument =
      said !== null && (definition.message === "argument" || line.some((text) => text.includes("{message}")));
    const hasPlace = line.some((text) => text.includes("{message}"));
    const argv: [string, ...string[]] = [first, ...filledLine(rest, values)];
    if (isArgument && !hasPlace && said !== null) argv.push(said);
    return {
      argv,
      env: { ...context.env, ...environment(context) },
      stdin: said === null || isArgument ? null : said,
    };
  };
  const transcript = async (place: Place, id: string): Promise<Transcript | null> => {
    if (conversation?.file === undefined) return await wholeFolder(place, conversation?.roots ?? []);
    const path = await matching(place.home, conversation.file.replaceAll("{conversation}", id));
    if (path === null) return null;
    return path.endsWith(".db") ? await storeAt(path) : await transcriptAt(path);
  };

  return {
    name,
    title,
    install: { program, npm: null, hint: definition.install, versions: "as declared" },
    supportsResume: definition.resume !== undefined,
    supportsFork: definition.fork !== undefined,
    credentials,
    conversation: {
      roots: conversation?.roots ?? [],
      keeps: (path) =>
        (conversation?.roots ?? []).some((root) => path.startsWith(`${root}/`)) &&
        (conversation?.files ?? []).some((pattern) => nameMatches(pattern, basename(path))),
    },
    seed: () => Promise.resolve(),
    environment,
    missingCredential: (place) => {
      if (credentials.length === 0 || credentials.some((each) => (place.env[each] ?? "") !== ""))
        return Promise.resolve(null);
      return Promise.resolve(
        `${title} has no credential in this session: give one with \`hangar secret set ${credentials[0]}\`, name it in the environment's secrets, then suspend the session and send again`,
      );
    },
    newConversation: () => (conversation?.id === "chosen" ? randomUUID() : null),
    validConversation: (id) => !id.startsWith("-") && valid.test(id),
    transcript,
    async relocate(place, id) {
      const found = await transcript(place, id);
      const now = new Date();
      if (found !== null) await utimes(found.path, now, now).catch(() => undefined);
    },
    turn: (context) => {
      const { resume, fork } = context;
      const line =
        fork !== null && definition.fork
          ? definition.fork
          : resume !== null && definition.resume
            ? definition.resume
            : definition.turn;
      return Promise.resolve(command(line, context, spoken(context)));
    },
    parser: (context) => Promise.resolve(declaredParser(definition, title, context.resume ?? context.fresh)),
    async interactive(context) {
      const line =
        context.resume === null ? definition.interactive : (definition.interactive_resume ?? definition.interactive);
      if (line) return command(line, context, null);
      const shell = (await findProgram("bash", context.env)) === null ? "sh" : "bash";
      return { argv: [shell, "-i"], env: { ...context.env, ...environment(context) }, stdin: null };
    },
  };
}

type Values = Partial<Pick<TurnContext, "home" | "cwd" | "model" | "resume" | "fresh" | "fork">> & {
  message?: string | null;
};

const PLACEHOLDER = /\{(conversation|fork|model|message|home|cwd)\}/g;

/** None: a placeholder in it has no value. */
function filled(text: string, values: Values): string | null {
  let isWhole = true;
  const value = (name: string): string | null | undefined => {
    if (name === "conversation") return values.resume ?? values.fresh;
    return values[name as "fork" | "model" | "message" | "home" | "cwd"];
  };
  const full = text.replace(PLACEHOLDER, (_, name: string) => {
    const found = value(name);
    if (found === null || found === undefined) isWhole = false;
    return found ?? "";
  });
  return isWhole ? full : null;
}

/** An argument without its value goes, with the option before it. */
function filledLine(line: readonly string[], values: Values): string[] {
  const out: string[] = [];
  for (const text of line) {
    const full = filled(text, values);
    if (full !== null) out.push(full);
    else if (/^--?[A-Za-z]/.test(out.at(-1) ?? "") && !text.startsWith("-")) out.pop();
  }
  return out;
}

/** `*` stands for anything within a name; the newest name in order where there are several. */
async function matching(home: string, file: string): Promise<string | null> {
  let places = [home];
  for (const piece of file.split("/")) {
    if (!piece.includes("*")) {
      places = places.map((place) => join(place, piece));
      continue;
    }
    const lists = await Promise.all(
      places.map(async (place) => {
        const names = await readdir(place).catch(() => []);
        return names.filter((name) => nameMatches(piece, name)).map((name) => join(place, name));
      }),
    );
    places = lists.flat();
  }
  const there = await Promise.all(places.toSorted().map(async (path) => ((await transcriptAt(path)) ? path : null)));
  return there.findLast((path) => path !== null) ?? null;
}

/** Where no file of its own is declared: that there is something, and that it grew. */
async function wholeFolder(place: Place, roots: readonly string[]): Promise<Transcript | null> {
  let size = 0;
  let path: string | null = null;
  for (const root of roots) {
    const folder = join(place.home, root);
    for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])) {
      if (!entry.isFile()) continue;
      const found = await transcriptAt(join(entry.parentPath, entry.name));
      size += found?.size ?? 0;
      path ??= found === null ? null : dirname(found.path);
    }
  }
  // Rewritten in place, it need not grow.
  return path === null ? null : { path, size, stamp: `${size}:${Date.now()}` };
}
