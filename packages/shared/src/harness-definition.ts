/**
 * A harness that a user declares instead of writing an adapter: command lines, where its conversations are, and how its output
 * is read. In an environment's `harnesses`, or in the server's file (`HANGAR_HARNESSES`).
 *
 * In command lines and variables, `{conversation}`, `{fork}`, `{model}`, `{message}`, `{home}` and `{cwd}` stand for what they
 * name. An argument whose placeholder has no value (no model, say) is left out, and the one before it too, where it is an option.
 */
import { z } from "zod";
import { HarnessName, VariableName } from "./environment-names.ts";

const argument = z
  .string()
  .max(4096)
  .refine((text) => !text.includes("\0"), "no NUL");
const commandLine = z.array(argument).min(1).max(100);

/** `message.text`, `items[0].id`: where a value is in a line of JSON. */
const path = z
  .string()
  .max(200)
  .regex(/^[\w$-]+(?:\.[\w$-]+|\[\d+\])*$/, "a path such as message.text or items[0].id");
const when = z.record(path, z.union([z.string().max(500), z.number(), z.boolean()])).default({});

/** Below the home; never the home itself, nor a folder that holds credentials of others. */
export const ConversationFolder = z
  .string()
  .max(500)
  .refine(
    (text) =>
      // oxlint-disable-next-line no-control-regex -- control characters are what is refused
      /^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*[^/]$/.test(text) &&
      !text.split("/").some((part) => part === "" || part === "." || part === "..") &&
      !/^\.(?:ssh|gnupg|aws|kube|config|hangar|netrc|docker|npmrc)(?:\/|$)/i.test(text),
    "a folder below the home, such as .my-agent/sessions, and none that holds credentials",
  );

export const HarnessDefinition = z.strictObject({
  name: HarnessName,
  /** For people; none: the name. */
  title: z.string().min(1).max(80).optional(),
  /** One line that says how to install it. */
  install: z.string().max(500).default("install it where the sandbox runs, or in its image"),
  /** Secrets that its credential may be given in: one must be set. Empty: it needs none. */
  credentials: z.array(VariableName).max(20).default([]),
  /** Set for every process of the sandbox. */
  variables: z.record(VariableName, argument).default({}),
  /** The command of a first turn. */
  turn: commandLine,
  /** Of a later one; none: it cannot resume, and gets an account of the session each time. */
  resume: commandLine.optional(),
  /** Of one that goes on with a copy of `{fork}`; none: a fork begins with an account. */
  fork: commandLine.optional(),
  /** In a terminal; none: `hangar session attach` is a shell. */
  interactive: commandLine.optional(),
  interactive_resume: commandLine.optional(),
  /** How it gets the message; a command line with `{message}` has it there. */
  message: z.enum(["stdin", "argument"]).default("stdin"),
  conversation: z
    .strictObject({
      /** `chosen`: Hangar gives it a UUID as `{conversation}`; `output`: it says its own (`output.conversation`). */
      id: z.enum(["chosen", "output"]).default("chosen"),
      /** What an id looks like: anything else never becomes an argument. */
      pattern: z.string().max(200).default("[A-Za-z0-9][A-Za-z0-9._-]{0,127}"),
      /** Folders below the home that travel with a checkpoint. */
      roots: z.array(ConversationFolder).min(1).max(10),
      /** Which files of them, by name: `*` is any number of characters. */
      files: z.array(z.string().min(1).max(200)).min(1).max(20).default(["*"]),
      /** The file of one conversation, below the home, with `{conversation}`; `*` is anything within a name. */
      file: z.string().max(500).optional(),
    })
    .optional(),
  output: z
    .strictObject({
      /** `text`: what it prints is what it says. `jsonl`: one JSON document a line, read by the rules below. */
      format: z.enum(["text", "jsonl"]).default("text"),
      conversation: z.strictObject({ when, path }).optional(),
      text: z.strictObject({ when, path }).optional(),
      tool_call: z.strictObject({ when, name: path, input: path.optional() }).optional(),
      tool_result: z.strictObject({ when, name: path.optional(), output: path, is_error: path.optional() }).optional(),
      error: z.strictObject({ when, path }).optional(),
      usage: z.strictObject({ when, input_tokens: path, output_tokens: path, cost_usd: path.optional() }).optional(),
    })
    .default({ format: "text" }),
});
export type HarnessDefinition = z.infer<typeof HarnessDefinition>;

/** Names that a definition may not take. */
export const BUILT_IN_HARNESSES: readonly string[] = ["claude", "codex", "pi", "antigravity", "script"];

export const HarnessDefinitions = z
  .array(HarnessDefinition)
  .max(20)
  .superRefine((definitions, context) => {
    const names = definitions.map(({ name }) => name);
    for (const [i, { name, conversation, resume, fork, output }] of definitions.entries()) {
      const refuse = (message: string, ...at: string[]): void =>
        context.addIssue({ code: "custom", path: [i, ...at], message });
      if (BUILT_IN_HARNESSES.includes(name)) refuse(`"${name}" is built in: choose another name`, "name");
      if (names.indexOf(name) !== i) refuse(`"${name}" is declared twice`, "name");
      if ((resume ?? fork) !== undefined && conversation === undefined)
        refuse("say where its conversations are, since it resumes them", "conversation");
      if (conversation?.id === "output" && output.conversation === undefined)
        refuse("say where the output has the conversation's id", "output", "conversation");
      if (conversation !== undefined && !isPattern(conversation.pattern))
        refuse("not a regular expression", "conversation", "pattern");
      if (
        conversation?.file !== undefined &&
        !conversation.roots.some((root) => conversation.file?.startsWith(`${root}/`))
      )
        refuse("a file below one of the roots", "conversation", "file");
    }
  });

function isPattern(text: string): boolean {
  try {
    return new RegExp(`^(?:${text})$`).source !== "";
  } catch {
    return false;
  }
}

/** `*` is any number of characters of one name. */
export const nameMatches = (pattern: string, name: string): boolean =>
  new RegExp(
    `^${pattern
      .split("*")
      .map((text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&"))
      .join("[^/]*")}$`,
    "s",
  ).test(name);
