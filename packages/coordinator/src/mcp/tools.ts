/** Hangar's tools for agents and editors, over the same face as REST. */
import {
  ForkSession,
  HangarError,
  KeepSession,
  NewSession,
  OpenSession,
  SendMessage,
  SuspendSession,
  suspendWatch,
  TurnId,
  turnSettled,
  type Problem,
  type Session,
} from "@hangar/shared";
import {
  type CallToolResult,
  fromJsonSchema,
  type JsonSchemaType,
  type JsonSchemaValidator,
  McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Sessions } from "../session/sessions.ts";
import { type Answer, checkpointsAnswer, listAnswer, sessionAnswer, turnAnswer } from "./view.ts";
import { waitFor, type Waiting } from "./wait.ts";

export interface ToolDeps {
  readonly sessions: Sessions;
  readonly owner: string;
  readonly version: string;
  /** Hangar stops: every wait ends, and its call is answered with what there is. */
  readonly stopping: AbortSignal;
  /** What a failed call is told; logs what nobody expected. */
  readonly problem: (error: unknown) => Problem;
}

const ref = z.string().min(1).max(100).describe("The session's name or id");
/** Under a minute by default: that is how long clients wait for a call. */
const waiting = z
  .number()
  .int()
  .min(0)
  .max(3600)
  .default(45)
  .describe("How long to wait for the outcome; then a handle to ask again is the answer");

const INSTRUCTIONS =
  "Hangar runs coding agents in durable sessions: a git workspace and a conversation that survive their machine. Make one with " +
  "new_session, give it work with send_to_session (a suspended session comes back by itself), and read the outcome from the turn. " +
  "A turn that takes longer than you wait for goes on: ask again with get_session and its turn id.";

export function makeServer(deps: ToolDeps): McpServer {
  const server = new McpServer(
    { name: "hangar", title: "Hangar", version: deps.version },
    { capabilities: { tools: {} }, instructions: INSTRUCTIONS },
  );
  const { sessions, owner } = deps;
  const tool = <S extends z.ZodObject>(
    name: string,
    about: { title: string; description: string; readOnly?: boolean },
    input: S,
    work: (input: z.output<S>, context: ServerContext) => Promise<Answer>,
  ): void => {
    const { title, description } = about;
    const annotations = { readOnlyHint: about.readOnly ?? false, destructiveHint: false, openWorldHint: false };
    server.registerTool(
      name,
      { title, description, inputSchema: shown(input), annotations },
      async (given, context) => {
        try {
          const { text, data } = await work(input.parse(given), context);
          return { content: [{ type: "text" as const, text }], structuredContent: data };
        } catch (error) {
          return failed(deps.problem(error));
        }
      },
    );
  };
  const waitOn = (session: Session, seconds: number, context: ServerContext): Waiting => ({
    sessions,
    owner,
    session: session.id,
    seconds,
    signal: AbortSignal.any([context.mcpReq.signal, deps.stopping]),
    onProgress: progressOf(context),
  });
  const untilUp = (session: Session, seconds: number, context: ServerContext): Promise<Session> =>
    waitFor(waitOn(session, seconds, context), ({ state }) => state !== "STARTING");
  const untilTurn = async (
    session: Session,
    turn: string,
    seconds: number,
    context: ServerContext,
  ): Promise<Answer> => {
    const of = (now: Session) => now.turns.find(({ id }) => id === turn);
    const isOver = (now: Session): boolean => now.state === "FAILED" || turnSettled(now, turn);
    const now = await waitFor(waitOn(session, seconds, context), isOver);
    const found = of(now);
    if (!found) throw new HangarError("turn_not_found", `${now.name} has no turn ${turn}: see get_session`);
    return turnAnswer(now, found);
  };

  tool(
    "new_session",
    {
      title: "New session",
      description:
        "Make a session: a sandbox with a clone of a repository and a coding agent in it. With a message, the agent starts on it at once.",
    },
    NewSession.extend({ wait_seconds: waiting }),
    async ({ wait_seconds, ...input }, context) => {
      const session = await sessions.create(owner, input);
      const [turn] = session.turns;
      if (turn) return await untilTurn(session, turn.id, wait_seconds, context);
      return sessionAnswer(await untilUp(session, wait_seconds, context));
    },
  );
  tool(
    "list_sessions",
    { title: "List sessions", description: "All sessions, with their states and last summaries.", readOnly: true },
    z.strictObject({ all: z.boolean().default(false).describe("Archived ones too") }),
    async ({ all }) => listAnswer(await sessions.list(owner, { all })),
  );
  tool(
    "get_session",
    {
      title: "Look at a session",
      description: "Its state, turns and checkpoint. With a turn's id: that turn, waiting for its end.",
      readOnly: true,
    },
    z.strictObject({ session: ref, turn: TurnId.optional(), wait_seconds: waiting.default(0) }),
    async ({ session, turn, wait_seconds }, context) => {
      const now = await sessions.get(owner, session);
      return turn === undefined ? sessionAnswer(now) : await untilTurn(now, turn, wait_seconds, context);
    },
  );
  tool(
    "open_session",
    {
      title: "Open a session",
      description: "Bring a suspended session back into a sandbox, with its work and its conversation.",
    },
    OpenSession.extend({ session: ref, wait_seconds: waiting }),
    async ({ session, wait_seconds, ...input }, context) =>
      sessionAnswer(await untilUp(await sessions.open(owner, session, input), wait_seconds, context)),
  );
  tool(
    "send_to_session",
    {
      title: "Send a message",
      description:
        "Give the session's agent a message. A suspended session is opened first; while a turn runs, it queues. The answer is the agent's last message.",
    },
    SendMessage.extend({ session: ref, wait_seconds: waiting }),
    async ({ session, wait_seconds, ...input }, context) => {
      const sent = await sessions.send(owner, session, input);
      return await untilTurn(sent.session, sent.turn.id, wait_seconds, context);
    },
  );
  tool(
    "keep_session",
    {
      title: "Keep a session up",
      description: "Change when it suspends by itself: idle_minutes 0 keeps it up. Also its title and time limit.",
    },
    KeepSession.extend({ session: ref }),
    async ({ session, ...input }) => sessionAnswer(await sessions.keep(owner, session, input)),
  );
  tool(
    "suspend_session",
    {
      title: "Suspend a session",
      description: "Take a checkpoint, then end its sandbox. Sending to it or opening it brings it back.",
    },
    SuspendSession.extend({ session: ref, wait_seconds: waiting }),
    async ({ session, wait_seconds, ...input }, context) => {
      const before = await sessions.suspend(owner, session, input);
      const isOver = suspendWatch();
      isOver(before);
      const now = await waitFor(waitOn(before, wait_seconds, context), isOver);
      if (now.state === "IDLE")
        throw new HangarError("checkpoint_failed", `${now.name} was not suspended: ${now.status ?? "try again"}`);
      return sessionAnswer(now);
    },
  );
  tool(
    "fork_session",
    {
      title: "Fork a session",
      description:
        "Make sessions that go on from this one's work and conversation, each on its own branch; it stays as it is. With a message, each gets it.",
    },
    ForkSession.extend({ session: ref }),
    async ({ session, ...input }) => {
      const forks = await sessions.fork(owner, session, input);
      const names = forks.map(({ name }) => name);
      return {
        text: `Starting: ${names.join(", ")}`,
        data: { sessions: forks.map((fork) => sessionAnswer(fork).data) },
      };
    },
  );
  tool(
    "list_checkpoints",
    {
      title: "List checkpoints",
      description: "What can be forked from or gone back to, newest first.",
      readOnly: true,
    },
    z.strictObject({ session: ref }),
    async ({ session }) => checkpointsAnswer(session, await sessions.checkpoints(owner, session)),
  );
  return server;
}

/** Does nothing where the client asked for no progress; a client that went away is no failure. */
function progressOf(context: ServerContext): Waiting["onProgress"] {
  const token = context.mcpReq._meta?.progressToken;
  let progress = 0;
  return async (message) => {
    if (token === undefined) return;
    const params = { progressToken: token, progress: progress++, message };
    await context.mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  };
}

/** As clients see it. What does not fit it is refused where it is parsed, in the words of the table of errors. */
const shown = (input: z.ZodObject) =>
  fromJsonSchema(z.toJSONSchema(input, { io: "input", unrepresentable: "any" }) as unknown as JsonSchemaType, {
    getValidator: takeAny,
  });

const takeAny =
  <T>(): JsonSchemaValidator<T> =>
  (given) => ({ valid: true, data: given as T, errorMessage: undefined });

const failed = (problem: Problem): CallToolResult => ({
  isError: true,
  content: [{ type: "text", text: `${problem.code}: ${problem.detail}` }],
  _meta: { "hangar/problem": problem },
});
