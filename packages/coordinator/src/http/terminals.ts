/**
 * Terminals. A user's WebSocket at `/api/sandboxes/{ref}/terminal` makes the sandbox's daemon dial
 * `/agent/terminals/{id}` of this replica; the two are joined. The id is drawn for this one terminal and works once.
 */
import { randomBytes } from "node:crypto";
import { HangarError, SandboxId, TerminalControl } from "@hangar/shared";
import type { WebSocket } from "ws";
import { z } from "zod";
import type { AgentSide, Sessions } from "../session/sessions.ts";
import type { Log } from "../telemetry.ts";
import { bearer, OWNER, type CheckAdmin } from "./auth.ts";
import { relay } from "./relay.ts";
import type { UpgradeRoute } from "./upgrades.ts";

export interface TerminalDeps {
  readonly sessions: Sessions;
  readonly agents: AgentSide;
  readonly checkAdmin: CheckAdmin;
  /** This replica's base URL as sandboxes reach it. Asked late: the port may be drawn at listen. */
  advertiseUrl(): string;
  readonly log: Log;
  /** How long a daemon may take to dial in. */
  readonly dialMs: number;
}

const Query = z.object({
  what: z.enum(["shell", "harness"]).default("shell"),
  cols: z.coerce.number().int().min(1).max(1000).default(80),
  rows: z.coerce.number().int().min(1).max(1000).default(24),
});

interface Awaited {
  readonly session: string;
  arrived(ws: WebSocket): void;
}

export function terminalRoutes(deps: TerminalDeps): UpgradeRoute[] {
  const awaited = new Map<string, Awaited>();
  return [
    {
      pattern: /^\/api\/sandboxes\/(?<ref>[^/]+)\/terminal$/,
      async accept({ url, authorization, params, signal }) {
        deps.checkAdmin(authorization);
        const query = Query.parse(Object.fromEntries(url.searchParams));
        const ref = params["ref"] ?? "";
        const agent = await callDaemon(deps, awaited, ref, query, signal);
        return (user) => join(deps, ref, user, agent);
      },
    },
    {
      pattern: /^\/agent\/terminals\/(?<id>[0-9a-f]{64})$/,
      async accept({ authorization, params }) {
        const agent = await deps.agents.authenticate(bearer(authorization));
        const id = params["id"] ?? "";
        const waiting = awaited.get(id);
        if (waiting === undefined || waiting.session !== agent.session) {
          throw new HangarError("not_found", "Nobody waits for that terminal");
        }
        awaited.delete(id);
        return (ws) => {
          // Unread until the user's end is there: what the daemon says meanwhile waits in its own socket.
          ws.pause();
          waiting.arrived(ws);
        };
      },
    },
  ];
}

/** The daemon's open end. Throws what `openTerminal` throws, or `timeout`. */
async function callDaemon(
  deps: TerminalDeps,
  awaited: Map<string, Awaited>,
  ref: string,
  query: z.infer<typeof Query>,
  gone: AbortSignal,
): Promise<WebSocket> {
  const session = await deps.sessions.get(OWNER, sessionRef(ref));
  const id = randomBytes(32).toString("hex");
  const url = `${deps.advertiseUrl().replace(/^http/, "ws")}/agent/terminals/${id}`;
  const done = new AbortController();
  const limit = AbortSignal.any([gone, done.signal, AbortSignal.timeout(deps.dialMs)]);
  let arrivedWs: WebSocket | null = null;
  const arrived = new Promise<WebSocket>((resolve, reject) => {
    awaited.set(id, {
      session: session.id,
      arrived: (ws) => {
        arrivedWs = ws;
        resolve(ws);
      },
    });
    limit.addEventListener("abort", () =>
      reject(new HangarError("timeout", "The sandbox did not open a terminal in time")),
    );
  });
  arrived.catch(() => {});
  try {
    await deps.sessions.openTerminal(OWNER, ref, { ...query, url }, limit);
    return await arrived;
  } catch (error) {
    (arrivedWs as WebSocket | null)?.terminate();
    if (limit.aborted && !(error instanceof HangarError)) {
      throw new HangarError("timeout", "The sandbox did not open a terminal in time", { cause: error });
    }
    throw error;
  } finally {
    awaited.delete(id);
    done.abort();
  }
}

/** A keystroke counts as use; one report in a while is enough to keep a sandbox awake for 90 s. */
const TOUCH_EVERY_MS = 20_000;

function join(deps: TerminalDeps, ref: string, user: WebSocket, agent: WebSocket): void {
  let touched = 0;
  const touch = (): void => {
    const now = Date.now();
    if (now - touched < TOUCH_EVERY_MS) return;
    touched = now;
    deps.sessions.touch(OWNER, ref).catch((error: unknown) => deps.log.debug({ error }, "a keystroke was not counted"));
  };
  if (agent.readyState !== agent.OPEN) {
    user.close(1011, "the sandbox closed the terminal");
    return;
  }
  void relay(user, agent, { allowText, onUserInput: touch });
}

/** Only what the protocol knows goes through as text. */
function allowText(from: "user" | "agent", text: string): boolean {
  if (text.length > 1000) return false;
  try {
    const control = TerminalControl.parse(JSON.parse(text));
    return control.type === (from === "user" ? "resize" : "exit");
  } catch {
    return false;
  }
}

/** A sandbox's id names its session. */
const sessionRef = (ref: string): string =>
  SandboxId.safeParse(ref).success ? `ses-${ref.slice("sbx-".length, "sbx-".length + 8)}` : ref;
