/** Asking a person. */
import { createInterface } from "node:readline/promises";
import { HangarError } from "@hangar/shared";
import type { Context } from "../context.ts";
import { EXIT, ExitWith } from "../failure.ts";

/** Asks on a terminal; a script that calls the command means it. */
export async function confirm(context: Context, question: string, yes: boolean | undefined): Promise<void> {
  if (yes || !context.stdin.isTTY || !context.ui.isTerminal) return;
  const readline = createInterface({ input: context.stdin, output: process.stderr });
  const answer = await readline.question(`${question} [y/N] `);
  readline.close();
  if (!/^y(?:es)?$/i.test(answer.trim())) throw new ExitWith(EXIT.failed);
}

/** A line from the terminal that is not shown while it is typed. */
export async function askHidden(context: Context, prompt: string): Promise<string> {
  const { stdin } = context;
  // First: what is typed ahead of it would be shown.
  stdin.setRawMode?.(true);
  process.stderr.write(prompt);
  let line = "";
  try {
    for await (const chunk of stdin) {
      for (const char of String(chunk)) {
        if (char === "\r" || char === "\n") return line;
        if (char === "\u0003") throw new ExitWith(EXIT.interrupted);
        if (char === "\u0004") throw new HangarError("invalid_request", "no value was given");
        if (char === "\u007f" || char === "\b") line = line.slice(0, -1);
        else line += char;
      }
    }
    return line;
  } finally {
    stdin.setRawMode?.(false);
    stdin.pause();
    process.stderr.write("\n");
  }
}
