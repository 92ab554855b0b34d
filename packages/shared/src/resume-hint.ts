/** What a person types in a sandbox's own shell to go on with an agent's conversation. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  claude: ["claude", "--resume"],
  codex: ["codex", "resume"],
  pi: ["pi", "--session-id"],
  antigravity: ["agy", "--conversation"],
};

/** None: there is no conversation yet, or Hangar knows no such command of this agent. */
export function resumeHint(harness: string, conversation: string | null): string | null {
  const command = COMMANDS[harness];
  return command === undefined || conversation === null ? null : [...command, conversation].join(" ");
}
