/**
 * What a stand-in model says. It is no model: it finds what it needs in the request, so that an answer proves which history
 * the agent sent. Only the last paragraph of the last user message is obeyed:
 *
 * - `remember WORD`: promises to.
 * - `what did I ask you to remember?`: lists each WORD of the earlier user messages, in order.
 * - `run: COMMAND` (to the end of the paragraph): calls the shell tool once, then says what it printed.
 * - `use TOOL {"json": …}` (to the end of the paragraph): calls that tool once, then says what it answered.
 * - `fail with STATUS`: answers that HTTP status, as often as it is asked.
 * - `say nothing` ends a turn with no text; `overflow`: the prompt is too long.
 * - anything else: repeats it.
 */

/** One thing said so far, without what the agent's program itself adds. */
export type Said = { role: "user" | "assistant"; text: string } | { role: "tool"; output: string };

export type Answer =
  | { kind: "text"; text: string }
  | { kind: "run"; command: string }
  | { kind: "use"; tool: string; input: unknown }
  | { kind: "fail"; status: number }
  | { kind: "overflow" };

export function answerTo(said: readonly Said[]): Answer {
  const last = said.at(-1);
  if (last?.role === "tool") return { kind: "text", text: `The command printed: ${last.output.trim().slice(0, 2000)}` };
  const asked = said.findLast((one) => one.role === "user");
  // What is put before a message (an account of earlier turns) may quote their messages, and ends with an empty line.
  const text = (asked?.role === "user" ? asked.text : "").split(/\n\s*\n/).at(-1) ?? "";
  const status = /\bfail with (\d{3})\b/.exec(text)?.[1];
  if (status !== undefined) return { kind: "fail", status: Number(status) };
  if (/\boverflow\b/.test(text)) return { kind: "overflow" };
  if (/\bsay nothing\b/.test(text)) return { kind: "text", text: "" };
  const command = /\brun: ([\s\S]+)$/.exec(text)?.[1];
  if (command !== undefined) return { kind: "run", command: command.trim() };
  const [, tool, input] = /\buse ([\w-]+) (\{[\s\S]*\})\s*$/.exec(text) ?? [];
  if (tool !== undefined) return { kind: "use", tool, input: JSON.parse(input ?? "{}") };
  if (/what did i ask you to remember/i.test(text)) {
    const words = remembered(said);
    return { kind: "text", text: `You asked me to remember ${words.length === 0 ? "nothing" : words.join(", ")}.` };
  }
  const words = wordsIn(text);
  if (words.length > 0) return { kind: "text", text: `I will remember ${words.join(", ")}.` };
  return { kind: "text", text: `You said: ${text.trim().slice(0, 2000)}` };
}

/** The words that the user messages of a conversation ask to remember, each once. */
const remembered = (said: readonly Said[]): string[] => [
  ...new Set(said.flatMap((one) => (one.role === "user" ? wordsIn(one.text) : []))),
];

const wordsIn = (text: string): string[] =>
  [...text.matchAll(/\bremember (?:the word )?([A-Za-z0-9][\w-]*)/g)].map((match) => match[1] ?? "");

/** Text that an agent's program adds to a user message by itself. */
export const withoutAdditions = (text: string): string =>
  text
    .replace(
      /<(system-reminder|environment_context|user_instructions|command-[a-z]+|local-command-[a-z]+)>[\s\S]*?<\/\1>/g,
      "",
    )
    .trim();
