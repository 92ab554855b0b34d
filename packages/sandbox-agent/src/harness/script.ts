/**
 * The scripted harness: each message runs as a shell script in the workspace. It needs no model and no key, and has what an
 * agent has: a conversation of its own, kept as JSONL in the home, that goes on from turn to turn. It has no program that
 * would keep this transcript, so the adapter does.
 *
 * `~/.hangar-script/sessions/<uuid>.jsonl`, append-only, one record a line:
 * `{"type":"user","turn":1,"at":"…","text":"the script"}` when a turn starts,
 * `{"type":"assistant","turn":1,"at":"…","text":"what it printed","exit_code":0}` when it ends.
 */
import { randomUUID } from "node:crypto";
import { copyFile, mkdir, open, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { TurnOutput } from "@hangar/shared";
import { z } from "zod";
import { exitLine } from "./api-errors.ts";
import { findProgram } from "./find-program.ts";
import { type Harness, LIMITS, type OutputParser, type Place, type TurnContext } from "./harness.ts";
import { jsonIn } from "./json.ts";
import { lastLines } from "./text.ts";
import { transcriptAt } from "./transcript-file.ts";

const FOLDER = ".hangar-script";
/** Characters of a turn's output that the transcript keeps: its end. */
const KEPT_OUTPUT = 1024 * 1024;
const SUMMARY_LINES = 20;

const Record = z.looseObject({ type: z.enum(["user", "assistant"]), turn: z.number().int() });

export const script: Harness = {
  name: "script",
  title: "The scripted harness",
  install: {
    program: "sh",
    npm: null,
    hint: "it needs only a shell, which this sandbox's PATH does not have",
    versions: "any POSIX shell; bash where there is one",
  },
  supportsResume: true,
  supportsFork: true,
  credentials: [],
  conversation: {
    roots: [`${FOLDER}/sessions`],
    keeps: (path) => /^\.hangar-script\/sessions\/[0-9a-f-]{36}\.jsonl$/.test(path),
  },

  seed: async (place) => void (await mkdir(join(place.home, FOLDER, "sessions"), { recursive: true, mode: 0o700 })),
  environment: (place) => ({ HOME: place.home }),
  missingCredential: () => Promise.resolve(null),
  newConversation: () => randomUUID(),
  validConversation: (id) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id),

  transcript: (place, id) => transcriptAt(transcriptPath(place, id)),
  async relocate(place, id) {
    const now = new Date();
    await utimes(transcriptPath(place, id), now, now).catch(() => undefined);
  },

  async turn(context) {
    if (context.fork !== null)
      await copyFile(transcriptPath(context, context.fork), transcriptPath(context, idOf(context)));
    const turn = (await turnsIn(context)) + 1;
    await append(context, { type: "user", turn, at: new Date().toISOString(), text: context.message });
    const path = scriptPath(context);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(path, withPreamble(context), { mode: 0o600 });
    const shell = (await findProgram("bash", context.env)) === null ? "sh" : "bash";
    return {
      argv: [shell, path],
      env: {
        ...context.env,
        ...script.environment(context),
        HANGAR_CONVERSATION: idOf(context),
        HANGAR_TRANSCRIPT: transcriptPath(context, idOf(context)),
        HANGAR_TURN: String(turn),
      },
      stdin: null,
    };
  },

  async parser(context) {
    return scriptParser(context, await turnsIn(context));
  },

  async interactive(context) {
    const shell = (await findProgram("bash", context.env)) === null ? "sh" : "bash";
    return { argv: [shell, "-i"], env: { ...context.env, ...script.environment(context) }, stdin: null };
  },
};

function scriptParser(context: TurnContext, turn: number): OutputParser {
  const began = context.fork !== null ? "forked" : context.resume === null ? "began" : "resumed";
  const opening: TurnOutput = { kind: "text", text: `${began} conversation ${idOf(context)}, turn ${turn}\n` };
  let printed = "";
  return {
    opening: [opening],
    plain: true,
    session: () => idOf(context),
    line(line) {
      printed = `${printed}${line}\n`;
      if (printed.length > 2 * KEPT_OUTPUT) printed = printed.slice(-KEPT_OUTPUT);
      return [{ kind: "text", text: `${line}\n` }];
    },
    async end(exit, stderr) {
      const text = printed.slice(-KEPT_OUTPUT);
      await append(context, { type: "assistant", turn, at: new Date().toISOString(), text, exit_code: exit.code });
      await rm(scriptPath(context), { force: true });
      return {
        error: exit.code === 0 ? null : exitLine("The script", exit, stderr),
        session: idOf(context),
        summary: lastLines(text, SUMMARY_LINES, LIMITS.summary),
        usage: null,
        unknownConversation: false,
      };
    },
  };
}

const idOf = ({ resume, fresh }: TurnContext): string => resume ?? fresh ?? "";
const transcriptPath = (place: Place, id: string): string => join(place.home, FOLDER, "sessions", `${id}.jsonl`);
const scriptPath = (context: TurnContext): string => join(context.home, FOLDER, "run", `${idOf(context)}.sh`);

/** The script, behind its preamble as comments: what is told to an agent must not run. */
const withPreamble = ({ message, preamble }: TurnContext): string =>
  preamble === null ? message : `${preamble.replace(/^/gm, "# ")}\n${message}`;

/** The number of the last turn that the transcript knows. Lines that make no sense are passed over. */
async function turnsIn(context: TurnContext): Promise<number> {
  const text = await readFile(transcriptPath(context, idOf(context)), "utf8").catch(() => "");
  const turns = text.split("\n").flatMap((line) => {
    const record = Record.safeParse(jsonIn(line));
    return record.success && record.data.type === "user" ? [record.data.turn] : [];
  });
  return Math.max(0, ...turns.slice(-1));
}

/** Appends one record. A line that a crash left without its end gets one, so that the two don't become one. */
async function append(context: TurnContext, record: unknown): Promise<void> {
  const path = transcriptPath(context, idOf(context));
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, "a+", 0o600);
  try {
    const { size } = await file.stat();
    const last = Buffer.alloc(1);
    if (size > 0) await file.read(last, 0, 1, size - 1);
    const torn = size > 0 && last[0] !== 0x0a;
    await file.write(`${torn ? "\n" : ""}${JSON.stringify(record)}\n`);
  } finally {
    await file.close();
  }
}
