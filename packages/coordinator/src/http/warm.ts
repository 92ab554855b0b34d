/**
 * `GET /agent/warm`: the WebSocket of a sandbox that waits for a session. Its `hello` is answered by `welcome`; then it says
 * how it is, and hears of its claim. What it must not do ends it with 1008, a coordinator that fails with 1011.
 */
import { FromWarm, HangarError, PROTOCOL_VERSION, type ToWarm } from "@hangar/shared";
import type { RawData, WebSocket } from "ws";
import type { Log } from "../telemetry.ts";
import type { WarmSide } from "../warm/warm-side.ts";
import { bearer } from "./auth.ts";
import { textOf } from "./relay.ts";
import type { UpgradeRoute } from "./upgrades.ts";

export interface WarmLinkDeps {
  readonly warm: WarmSide;
  readonly log: Log;
  readonly helloMs: number;
}

export function warmRoute(deps: WarmLinkDeps): UpgradeRoute {
  return {
    pattern: /^\/agent\/warm$/,
    async accept({ authorization }) {
      const id = await deps.warm.authenticate(bearer(authorization));
      return (ws) => serve(deps, id, ws);
    },
  };
}

function serve({ warm, log, helloMs }: WarmLinkDeps, id: string, ws: WebSocket): void {
  const gone = new AbortController();
  const send = (frame: ToWarm): void => ws.send(JSON.stringify(frame), () => {});
  const hello = setTimeout(() => ws.close(1008, "no hello in time"), helloMs);
  ws.on("close", () => {
    clearTimeout(hello);
    gone.abort();
  });

  const tell = async (): Promise<void> => {
    for await (const frame of warm.follow(id, gone.signal)) {
      send(frame);
      if (frame.type === "retired") ws.close(1000);
    }
  };
  const take = async (frame: FromWarm | null): Promise<void> => {
    if (frame === null) return ws.close(1008, "a frame makes no sense");
    if (frame.type === "state") return warm.report(id, frame.state, frame.detail);
    if (frame.protocol !== PROTOCOL_VERSION || frame.warm !== id) return ws.close(1008, "another protocol or sandbox");
    clearTimeout(hello);
    send(await warm.welcome(id));
    void tell().catch(end);
  };
  const end = (error: unknown): void => {
    if (ws.readyState !== ws.OPEN) return;
    const isStale = error instanceof HangarError && error.code === "stale_generation";
    if (isStale) send({ type: "retired" });
    else log.warn({ warm: id, error }, "the link of a warm sandbox failed");
    ws.close(isStale ? 1000 : 1011);
  };
  // One after the other, as they came.
  let taken = Promise.resolve();
  ws.on("message", (data: RawData) => {
    taken = taken.then(() => take(parse(textOf(data)))).catch(end);
  });
}

function parse(text: string): FromWarm | null {
  try {
    const parsed = FromWarm.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}
