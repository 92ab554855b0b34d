/**
 * The one outbound WebSocket to the coordinator: hello, events, heartbeats and results up; acks and commands down.
 *
 * It reconnects for ever, over all URLs in turn. A link over which nothing comes back is dead and is cut. Events come from
 * the spool and leave it when acknowledged. Answers are sent again after a cut, since no frame acknowledges them.
 */
import { FromAgent, MAX_FRAME, PROTOCOL_VERSION, ToAgent } from "@hangar/shared";
import type { Activity, AgentCommand, StartPhase } from "@hangar/shared";
import { WebSocket } from "ws";
import type { RawData } from "ws";
import { backoff, pause } from "./backoff.ts";
import type { Journal, Reply } from "./journal.ts";
import type { Log } from "./log.ts";
import type { Spool } from "./spool.ts";

export interface LinkOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly sandbox: string;
  readonly spool: Spool;
  readonly journal: Journal;
  readonly log: Log;
  readonly heartbeat: () => Promise<{ phase: StartPhase; frozen: boolean; activity: Activity }>;
  /** May be called twice with one id. */
  readonly onCommand: (id: string, command: AgentCommand) => void;
  readonly onSuperseded: (generation: number | null) => void;
  /** Nothing was heard for longer than the lease. Called once per cut. */
  readonly onLeaseLost: () => void;
  readonly onWelcome: () => void;
}

const IN_FLIGHT = 1024 * 1024;
const HANDSHAKE_MS = 10_000;
/** Seldom enough for a coordinator that is away for days, and short enough not to be felt when it is back. */
const RECONNECT_MS = 3000;

export class CoordinatorLink {
  readonly #options: LinkOptions;
  readonly #stop = new AbortController();
  #socket: WebSocket | null = null;
  #welcomed = false;
  #sent = 0;
  #heartbeatMs = 5000;
  #leaseMs: number | null = null;
  #heard = performance.now();
  #leaseLost = false;
  #answersFrom = Date.now() - 120_000;
  #done: Promise<void> = Promise.resolve();

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  start(): void {
    this.#options.spool.onChange(() => this.#pump());
    this.#done = this.#run();
  }

  get connected(): boolean {
    return this.#welcomed;
  }

  /** Sends an answer when connected; after a cut it is sent again from the journal. */
  answer(id: string, reply: Reply): void {
    if (this.#welcomed) this.#send(answerFrame(id, reply));
  }

  /** A heartbeat out of turn: something that it says has changed. */
  beat(): void {
    if (this.#welcomed) void this.#beat();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#socket?.close(1000);
    const socket = this.#socket;
    const force = setTimeout(() => socket?.terminate(), 1000);
    await this.#done;
    clearTimeout(force);
  }

  async #run(): Promise<void> {
    const { urls, log } = this.#options;
    const lease = setInterval(() => this.#watchLease(), 250);
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      const url = urls[attempt % urls.length]!;
      try {
        if (await this.#connection(url)) attempt = -1;
      } catch (error) {
        log.warn(`no link to ${url}: ${message(error)}`);
      }
      const round = Math.floor((attempt + 1) / urls.length);
      if ((attempt + 1) % urls.length === 0) await pause(backoff(round, 250, RECONNECT_MS), this.#stop.signal);
    }
    clearInterval(lease);
  }

  /** One connection, from dialling to its end. True when it was welcomed. Rejects when it never opened. */
  #connection(url: string): Promise<boolean> {
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}/agent/link`, {
      headers: { authorization: `Bearer ${this.#options.token}` },
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: MAX_FRAME,
      perMessageDeflate: false,
      followRedirects: false,
    });
    this.#socket = socket;
    const timers: NodeJS.Timeout[] = [];
    let welcomed = false;
    const ended = new Promise<boolean>((resolve, reject) => {
      socket.on("open", () => {
        this.#heard = performance.now();
        this.#send({
          type: "hello",
          protocol: PROTOCOL_VERSION,
          sandbox: this.#options.sandbox,
          last_command: this.#options.journal.lastFinished,
        });
        timers.push(setInterval(() => this.#probe(socket), 1000));
      });
      socket.on("unexpected-response", (_request, response) => void this.#refused(response, reject));
      socket.on("message", (data, binary) => {
        this.#hear();
        const frame = binary ? null : parse(data);
        if (!frame) return this.#options.log.warn("a frame from the coordinator made no sense and was skipped");
        if (frame.type === "welcome") {
          welcomed = true;
          timers.push(setInterval(() => void this.#beat(), frame.heartbeat_seconds * 1000));
        }
        this.#take(frame);
      });
      socket.on("pong", () => this.#hear());
      socket.on("ping", () => this.#hear());
      socket.on("error", (error) => reject(error));
      socket.on("close", () => resolve(welcomed));
    });
    return ended.finally(() => {
      for (const timer of timers) clearInterval(timer);
      if (this.#welcomed) this.#answersFrom = Date.now() - Math.max(60_000, 4 * this.#heartbeatMs);
      this.#welcomed = false;
      this.#socket = null;
      if (socket.readyState !== WebSocket.CLOSED) socket.terminate();
    });
  }

  #take(frame: ToAgent): void {
    switch (frame.type) {
      case "welcome":
        return this.#welcome(frame);
      case "ack":
        return this.#options.spool.ack(frame.seq);
      case "command":
        return this.#options.onCommand(frame.id, frame.command);
      case "superseded":
        return this.#options.onSuperseded(frame.generation);
    }
  }

  #welcome(frame: Extract<ToAgent, { type: "welcome" }>): void {
    const { spool, journal, log } = this.#options;
    this.#heartbeatMs = frame.heartbeat_seconds * 1000;
    this.#leaseMs = frame.lease_seconds * 1000;
    this.#sent = frame.acked;
    spool.ack(frame.acked);
    this.#welcomed = true;
    this.#leaseLost = false;
    log.info("linked to the coordinator");
    void this.#beat();
    for (const { id, reply } of journal.repliesSince(this.#answersFrom)) this.#send(answerFrame(id, reply));
    this.#options.onWelcome();
    this.#pump();
  }

  /** Sends spooled events while the socket takes them. */
  #pump(): void {
    const socket = this.#socket;
    if (!socket || !this.#welcomed) return;
    while (socket.readyState === WebSocket.OPEN && socket.bufferedAmount < IN_FLIGHT) {
      const events = this.#options.spool.after(this.#sent, 256 * 1024);
      if (events.length === 0) return;
      for (const { seq, event } of events) {
        this.#sent = seq;
        this.#send({ type: "event", seq, event });
      }
    }
  }

  async #beat(): Promise<void> {
    const state = await this.#options.heartbeat();
    if (!this.#welcomed) return;
    this.#send({ type: "heartbeat", at: new Date().toISOString(), ...state });
  }

  #send(frame: FromAgent): void {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify(frame), (error) => {
      if (!error) this.#pump();
    });
  }

  /** Pings, and cuts a link over which nothing came back for three heartbeats. */
  #probe(socket: WebSocket): void {
    const silent = performance.now() - this.#heard;
    if (silent > Math.max(3 * this.#heartbeatMs, 3000)) {
      this.#options.log.warn(`the link is dead: nothing came for ${Math.round(silent / 1000)} s`);
      socket.terminate();
    } else if (silent > this.#heartbeatMs / 2) socket.ping();
  }

  #hear(): void {
    this.#heard = performance.now();
  }

  #watchLease(): void {
    if (this.#leaseMs === null || this.#leaseLost || performance.now() - this.#heard <= this.#leaseMs) return;
    this.#leaseLost = true;
    this.#options.onLeaseLost();
  }

  async #refused(response: import("node:http").IncomingMessage, reject: (error: Error) => void): Promise<void> {
    const body = await readAtMost(response, 8192);
    const code = problemCode(body);
    if (code === "stale_generation") this.#options.onSuperseded(null);
    reject(new Error(`refused with ${response.statusCode ?? 0}${code === null ? "" : ` ${code}`}`));
  }
}

const answerFrame = (command: string, reply: Reply): FromAgent =>
  reply.ok
    ? { type: "result", command, ok: true, value: reply.value }
    : { type: "failure", command, code: reply.code, error: reply.error.slice(0, 8000) };

function parse(data: RawData): ToAgent | null {
  try {
    const parsed = ToAgent.safeParse(JSON.parse(textOf(data)));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

export function textOf(data: RawData): string {
  if (Array.isArray(data)) return Buffer.concat(data).toString("utf8");
  return (Buffer.isBuffer(data) ? data : Buffer.from(data)).toString("utf8");
}

async function readAtMost(stream: AsyncIterable<Buffer>, most: number): Promise<string> {
  let text = "";
  try {
    for await (const chunk of stream) {
      text += chunk.toString("utf8");
      if (text.length > most) break;
    }
  } catch {
    // what came is enough
  }
  return text;
}

function problemCode(body: string): string | null {
  try {
    const parsed: unknown = JSON.parse(body);
    const has = typeof parsed === "object" && parsed !== null && "code" in parsed && typeof parsed.code === "string";
    return has ? String(parsed.code) : null;
  } catch {
    return null;
  }
}

const message = (error: unknown): string =>
  error instanceof AggregateError && error.errors.length > 0
    ? (error.errors[0] as Error).message
    : error instanceof Error
      ? error.message || ((error as NodeJS.ErrnoException).code ?? error.name)
      : String(error);
