/** `hangar session fork`. */
import { Session, turnEnded } from "@hangar/shared";
import { z } from "zod";
import type { Context } from "../context.ts";
import { EXIT, ExitWith } from "../failure.ts";
import { waitFor, waitUntilReady } from "../follow.ts";
import { safe } from "../ui.ts";
import { given, messageOf, post, type Waiting } from "./session-parts.ts";
import { turnLine } from "./session-view.ts";

export async function forkSession(
  context: Context,
  name: string,
  words: string[],
  options: Waiting & { count: number; checkpoint?: string; name?: string; harness?: string },
): Promise<void> {
  const { ui } = context;
  const message = await messageOf(context, words);
  const { checkpoint, name: stem, harness } = options;
  const body = {
    count: options.count,
    ...given("message", message),
    ...given("checkpoint", checkpoint),
    ...given("name", stem),
    ...given("harness", harness),
  };
  ui.progress(checkpoint === undefined ? `${name}: taking a checkpoint` : `${name}: forking from ${checkpoint}`);
  const { sessions } = await post(context, name, "fork", z.object({ sessions: z.array(Session) }), body).finally(() =>
    ui.done(),
  );
  if (options.wait !== true) {
    if (options.json) return ui.json(sessions);
    for (const fork of sessions) ui.out(`${fork.name} is starting, on the branch ${fork.branch}`);
    return ui.note(`next: ${ui.prefix} session get ${sessions[0]?.name ?? name}`);
  }
  const done: Session[] = [];
  for (const fork of sessions) done.push(await waitUntilDone(context, fork, message !== undefined));
  if (options.json) ui.json(done);
  else
    for (const fork of done) {
      ui.out(`${fork.name} is ${message === undefined ? `ready in ${fork.sandbox_id ?? "no sandbox"}` : "done"}`);
      const turn = fork.turns.at(-1);
      if (turn && message !== undefined) {
        ui.note(ui.color.dim(turnLine(turn)));
        if (turn.summary) ui.out(safe(turn.summary));
      }
    }
  const failed = done.some(
    ({ state, turns }) => state === "FAILED" || (message !== undefined && turns.at(-1)?.state !== "done"),
  );
  if (failed) throw new ExitWith(EXIT.failed);
}

/** Its first turn has ended, or, without one, it is ready. */
async function waitUntilDone(context: Context, fork: Session, hasTurn: boolean): Promise<Session> {
  if (!hasTurn) return await waitUntilReady(context, fork);
  const turn = fork.turns.at(-1)?.id;
  context.ui.progress(`${fork.name}: at work`);
  const ended = (now: Session): boolean => now.state === "FAILED" || turnEnded(now.turns.find(({ id }) => id === turn));
  return await waitFor(context, fork, "to end its turn", ended).finally(() => context.ui.done());
}
