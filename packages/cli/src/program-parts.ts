/** What the commands' descriptions share. */
import { Option } from "commander";

export const json = (): Option => new Option("--json", "as JSON on standard output");
export const examples = (...lines: string[]): string => `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}\n`;
