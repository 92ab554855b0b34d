/** `hangar session check`. */
import { CheckResult } from "@hangar/shared";
import type { Context } from "../context.ts";
import { EXIT, ExitWith } from "../failure.ts";
import { safe } from "../ui.ts";
import { given, messageOf, post } from "./session-parts.ts";
import { checkLine } from "./session-view.ts";

/** Ends as the check did. */
export async function checkWork(
  context: Context,
  name: string,
  words: string[],
  options: { timeout?: number; json?: boolean },
): Promise<void> {
  const script = await messageOf(context, words);
  const body = { ...given("check", script), ...given("timeout_seconds", options.timeout) };
  context.ui.progress(`${name}: running the check`);
  const result = await post(context, name, "check", CheckResult, body).finally(() => context.ui.done());
  if (options.json) context.ui.json(result);
  else {
    if (result.output !== "") context.ui.out(safe(result.output));
    context.ui.note(checkLine(result));
  }
  if (result.exit_code !== 0 || result.timed_out) throw new ExitWith(EXIT.failed);
}
