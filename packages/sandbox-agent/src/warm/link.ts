/** The WebSocket of a sandbox that waits for a session: it says how it is and hears of its claim. Reconnects for ever. */
import { PROTOCOL_VERSION, ToWarm } from "@hangar/shared";
import type { FromWarm, WarmBoot, WarmState } from "@hangar/shared";
import { WebSocket } from "ws";
import { textOf } from "../coordinator-link.ts";
import { backoff, pause } from "../backoff.ts";
import type { Log } from "../log.ts";

export interface WarmLinkOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly warm: string;
  readonly log: Log;
  readonly state: () => { state: WarmState; detail: string | null };
  /** Each may be called again, after a link was lost. */
  readonly onBoot: (boot: WarmBoot) => void;
  readonly onClaimed: (claim: { sandbox: string; token: string }) => void;
  readonly onRetired: () => void;
}

export class WarmLink {
  readonly #options: WarmLinkOptions;
  readonly #stop = new AbortController();
  #socket: WebSocket | null = null;
  #welcomed = false;
  #done: Promise<void> = Promise.resolve();

  constructor(options: WarmLinkOptions) {
    this.#options = options;
  }

  start(): void {
    this.#done = this.#run();
  }

  /** How it is, out of turn. */
  say(): void {
    if (this.#welcomed) this.#send({ type: "state", ...this.#options.state() });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#socket?.terminate();
    await this.#done;
  }

  async #run(): Promise<void> {
    const { urls, log } = this.#options;
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      const url = urls[attempt % urls.length]!;
      try {
        if (await this.#connection(url)) attempt = -1;
      } catch (error) {
        log.warn(`no link to ${url}: ${error instanceof Error ? error.message : String(error)}`);
      }
      await pause(backoff(Math.max(attempt, 0), 250, 3000), this.#stop.signal);
    }
  }

  #connection(url: string): Promise<boolean> {
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}/agent/warm`, {
      headers: { authorization: `Bearer ${this.#options.token}` },
      handshakeTimeout: 10_000,
      maxPayload: 4 * 1024 * 1024,
      perMessageDeflate: false,
      followRedirects: false,
    });
    this.#socket = socket;
    let timer: NodeJS.Timeout | undefined;
    let heard = performance.now();
    const hear = (): void => void (heard = performance.now());
    const ended = new Promise<boolean>((resolve, reject) => {
      let welcomed = false;
      socket.on("open", () => this.#send({ type: "hello", protocol: PROTOCOL_VERSION, warm: this.#options.warm }));
      socket.on("unexpected-response", (_request, response) => {
        // Its record is gone: nobody waits for it.
        if (response.statusCode === 409) this.#options.onRetired();
        response.resume();
        reject(new Error(`refused with ${response.statusCode ?? 0}`));
      });
      socket.on("ping", hear);
      socket.on("pong", hear);
      socket.on("message", (data) => {
        hear();
        const frame = parse(textOf(data));
        if (frame?.type !== "welcome") return this.#take(frame);
        welcomed = true;
        this.#welcomed = true;
        const beat = frame.heartbeat_seconds * 1000;
        timer ??= setInterval(() => {
          if (performance.now() - heard > Math.max(3 * beat, 5000)) return socket.terminate();
          socket.ping();
          this.say();
        }, beat);
        this.say();
        this.#options.onBoot(frame.boot);
      });
      socket.on("error", reject);
      socket.on("close", () => resolve(welcomed));
    });
    return ended.finally(() => {
      clearInterval(timer);
      this.#welcomed = false;
      this.#socket = null;
      if (socket.readyState !== WebSocket.CLOSED) socket.terminate();
    });
  }

  #take(frame: ToWarm | null): void {
    if (frame?.type === "claimed") this.#options.onClaimed({ sandbox: frame.sandbox, token: frame.token });
    else if (frame?.type === "retired") this.#options.onRetired();
    else this.#options.log.warn("a frame from the coordinator made no sense and was skipped");
  }

  #send(frame: FromWarm): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame), () => {});
  }
}

function parse(text: string): ToWarm | null {
  try {
    const parsed = ToWarm.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}
