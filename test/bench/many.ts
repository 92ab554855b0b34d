/**
 * What many sessions cost the coordinator: a real one, with the kubernetes driver, over a stand-in API server whose pods are
 * simulated daemons that link and send heartbeats as real ones do.
 */
import { newSessionId, PROTOCOL_VERSION } from "@hangar/shared";
import type { AgentEvent, FromAgent } from "@hangar/shared";
import { connectRedis } from "@hangar/coordinator/redis/connect";
import { EMPTY_RECORD } from "@hangar/coordinator/session/record";
import { type Json, StandInApi } from "../../packages/coordinator/test/driver/kubernetes/stand-in-api.ts";
import { sleep, startHangar, type TestHangar } from "../support/hangar.ts";
import { cpuSeconds, residentMb } from "./process.ts";
import type { Row } from "./row.ts";

const SUSPENDED = 10_000;
const LIVE = 1000;
const SECONDS = 40;

export async function manyRows(): Promise<Row[]> {
  const api = new StandInApi();
  const sockets: WebSocket[] = [];
  const timers: NodeJS.Timeout[] = [];
  const hangar = await startHangar({
    HANGAR_DRIVER: "kubernetes",
    HANGAR_KUBERNETES_CONFIG: await api.start(),
    HANGAR_SANDBOX_IMAGE: "registry.example/hangar-sandbox:1",
    HANGAR_HOST: "0.0.0.0",
    HANGAR_SANDBOX_URL: "http://hangar.invalid:4747",
    HANGAR_LOG_LEVEL: "warn",
  });
  try {
    await sleep(5000);
    const none = await cost(hangar);
    await suspend(hangar, SUSPENDED);
    const suspended = await cost(hangar);
    await live(hangar, api, sockets, timers);
    await sleep(70_000); // every session's first looks are over
    const both = await cost(hangar);
    const show = ({ cpu, mb }: Cost): string => `${(cpu * 100).toFixed(2)} %, ${mb.toFixed(0)} MB`;
    return [
      {
        size: "-",
        what: `the coordinator with ${SUSPENDED.toLocaleString("en")} suspended sessions, beside with none: share of one CPU, memory`,
        ours: show(suspended),
        theirs: show(none),
        ratio: "-",
        bar: "+ ≤ 0.5 %: what is not due costs nothing",
        met: suspended.cpu <= none.cpu + 0.005,
      },
      {
        size: "-",
        what: `… and ${LIVE.toLocaleString("en")} live ones (simulated daemons, a heartbeat each 10 s)`,
        ours: show(both),
        theirs: show(suspended),
        ratio: "-",
        bar: "≤ 50 %, ≤ 500 MB",
        met: both.cpu <= 0.5 && both.mb <= 500,
      },
    ];
  } finally {
    for (const timer of timers) clearInterval(timer);
    for (const socket of sockets) socket.close();
    await hangar.close();
    await api.stop();
  }
}

interface Cost {
  /** Share of one CPU. */
  readonly cpu: number;
  readonly mb: number;
}

async function cost({ replica }: TestHangar): Promise<Cost> {
  const before = await cpuSeconds(replica.pid);
  await sleep(SECONDS * 1000);
  return { cpu: ((await cpuSeconds(replica.pid)) - before) / SECONDS, mb: await residentMb(replica.pid) };
}

/** Written as the coordinator itself leaves them. */
async function suspend(hangar: TestHangar, count: number): Promise<void> {
  const { redis: url } = await hangar.api<{ redis: string }>("GET", "/api/status");
  const redis = await connectRedis({ url, clock: Date.now });
  const at = new Date().toISOString();
  for (let from = 0; from < count; from += 200) {
    await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const record = {
          ...EMPTY_RECORD,
          id: newSessionId(),
          name: `suspended-${from + i}`,
          title: "A session that sleeps",
          owner: "admin",
          environment: "many",
          harness: "script",
          model: null,
          repo: "https://git.example/acme/web",
          base_branch: null,
          branch: `hangar/session/suspended-${from + i}`,
          state: "SUSPENDED",
          state_since: Date.now(),
          phase: null,
          generation: 3,
          nonce: "",
          wanted: "down",
          sandbox_id: null,
          sandbox_started_at: null,
          idle_minutes: 30,
          ttl_minutes: 1440,
          expires_at: null,
          job_id: null,
          recipient: "age1bench",
          own_environment: false,
          created_at: at,
          last_active_at: at,
          updated_at: at,
        } as const;
        await redis.sessions.create(record, {});
      }),
    );
  }
  await redis.close();
}

async function live(
  hangar: TestHangar,
  api: StandInApi,
  sockets: WebSocket[],
  timers: NodeJS.Timeout[],
): Promise<void> {
  await hangar.api("PUT", "/api/environments/many", { name: "many", idle_minutes: 0, ttl_minutes: 0 });
  const linked: Promise<void>[] = [];
  const seen = new Set<string>();
  const kubelet = setInterval(() => {
    for (const [key, pod] of api.objects) {
      const { name } = (pod as { metadata: { name: string } }).metadata;
      if (!key.startsWith("pods/") || seen.has(name)) continue;
      seen.add(name);
      api.change("pods", name, (object: Json) => {
        object["spec"].nodeName = "node-1";
        object["status"] = { phase: "Running", containerStatuses: [{ restartCount: 0, state: { running: {} } }] };
      });
      const token = String(api.get("secrets", name)?.["stringData"].token);
      linked.push(daemon(hangar.replica.url, name, token, sockets, timers));
    }
  }, 50);
  try {
    for (let from = 0; from < LIVE; from += 20) {
      await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          hangar.api("POST", "/api/sessions", { name: `live-${from + i}`, environment: "many" }),
        ),
      );
    }
    for (let i = 0; i < 1200 && linked.length < LIVE; i++) await sleep(100);
    await Promise.all(linked);
    const { sessions } = await hangar.api<{ sessions: Record<string, number> }>("GET", "/api/status");
    if (sessions["IDLE"] !== LIVE) throw new Error(`not all are live: ${JSON.stringify(sessions)}`);
  } finally {
    clearInterval(kubelet);
  }
}

/** Links, says that it is ready, and beats. Resolves once that is stored. */
function daemon(
  url: string,
  sandbox: string,
  token: string,
  sockets: WebSocket[],
  timers: NodeJS.Timeout[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    // Node's WebSocket takes headers, which the standard's type does not know
    const options = { headers: { authorization: `Bearer ${token}` } } as unknown as string[];
    const socket = new WebSocket(`${url.replace("http", "ws")}/agent/link`, options);
    sockets.push(socket);
    const send = (frame: FromAgent): void => socket.send(JSON.stringify(frame));
    const restored = {
      type: "restored" as const,
      source: "fresh" as const,
      checkpoint: null,
      verified: true,
      missing: [],
      bad: [],
      warnings: [],
      seconds: {},
    } satisfies AgentEvent;
    const activity = { turn_running: false, terminals_open: 0, tmux_clients: 0, last_used_at: null };
    socket.addEventListener("open", () =>
      send({ type: "hello", protocol: PROTOCOL_VERSION, sandbox, last_command: null }),
    );
    socket.addEventListener("error", () => reject(new Error(`the link of ${sandbox} failed`)));
    socket.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(String(data)) as { type: string; seq?: number; heartbeat_seconds?: number };
      if (frame.type === "welcome") {
        send({ type: "event", seq: 1, event: restored });
        send({ type: "event", seq: 2, event: { type: "phase", phase: "ready", detail: null } });
        const beat = (): void =>
          send({ type: "heartbeat", at: new Date().toISOString(), phase: "ready", frozen: false, activity });
        timers.push(setInterval(beat, (frame.heartbeat_seconds ?? 10) * 1000));
      }
      if (frame.type === "ack" && frame.seq === 2) resolve();
    });
  });
}
