/**
 * A stand-in for the coordinator, for tests of the daemon alone: it speaks the protocol over real sockets, keeps everything in
 * memory, and its store is a folder behind signed-looking URLs. It checks what the real one checks of a checkpoint's bytes.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import {
  BeginCheckpoint,
  CommitCheckpoint,
  DownloadRequest,
  FromAgent,
  GitCredentialRequest,
  newCommandId,
  RenewUploads,
} from "@hangar/shared";
import type {
  AgentCommand,
  AgentEvent,
  BootSpec,
  Checkpoint,
  RestoreCandidate,
  SignedUrl,
  ToAgent,
  GitCredentialAnswer,
} from "@hangar/shared";
import { WebSocketServer } from "ws";
import type { WebSocket } from "ws";

export type Answer = { ok: true; value: unknown } | { ok: false; code: string; error: string };
type Heartbeat = Extract<FromAgent, { type: "heartbeat" }>;

interface Sent {
  readonly id: string;
  readonly command: AgentCommand;
}

export class StandInCoordinator {
  token = "token-of-the-sandbox-under-test";
  /** What a daemon with that token goes on as, where its sandbox was restored from a snapshot. */
  successor: { readonly of: string; readonly token: string } | null = null;
  readonly events: AgentEvent[] = [];
  readonly committed: Array<{ id: string; request: CommitCheckpoint; reason: string }> = [];
  readonly heartbeats: Heartbeat[] = [];
  /** Every answer that came, repeated ones too. */
  readonly answers: Array<{ id: string; answer: Answer }> = [];
  readonly hellos: Array<string | null> = [];
  boot: BootSpec;
  heartbeatSeconds = 0.2;
  leaseSeconds = 60;
  credential: GitCredentialAnswer | null = null;
  /** Answers every HTTP request of the daemon with this. */
  failure: { status: number; code: string; detail: string } | null = null;
  /** Knows no checkpoint that another one could build on. */
  refuseParents = false;
  #repeated = 0;
  #acked = 0;
  #cut = false;
  #link: WebSocket | null = null;
  readonly #store: string;
  readonly #sent: Sent[] = [];
  readonly #begun = new Map<string, BeginCheckpoint>();
  readonly #terminals = new Map<string, (socket: WebSocket) => void>();
  readonly #watchers = new Set<() => void>();
  readonly #http: Server;
  readonly #sockets = new WebSocketServer({ noServer: true });

  private constructor(boot: BootSpec, store: string) {
    this.boot = boot;
    this.#store = store;
    this.#http = createServer((request, response) => void this.#request(request, response));
    this.#http.on("upgrade", (request, socket, head) => {
      if (this.#cut || request.headers.authorization !== `Bearer ${this.token}`) {
        socket.destroy();
        return;
      }
      this.#sockets.handleUpgrade(request, socket, head, (ws) => this.#accept(request.url ?? "", ws));
    });
  }

  static async start(boot: BootSpec, store: string): Promise<StandInCoordinator> {
    const coordinator = new StandInCoordinator(boot, store);
    mkdirSync(store, { recursive: true });
    await new Promise<void>((resolve) => coordinator.#http.listen(0, "127.0.0.1", resolve));
    return coordinator;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  get repeatedEvents(): number {
    return this.#repeated;
  }

  get acked(): number {
    return this.#acked;
  }

  /** Ends the link and refuses everything until `heal`. */
  cut(): void {
    this.#cut = true;
    this.#link?.terminate();
    this.#http.closeAllConnections();
  }

  /** Neither reads nor answers on the present link, and does not end it either. */
  stall(): void {
    this.#link?.pause();
  }

  heal(): void {
    this.#cut = false;
  }

  /** A sandbox of the next generation: its events are counted anew. */
  nextSandbox(boot: BootSpec): void {
    this.boot = boot;
    this.#acked = 0;
    this.#sent.length = 0;
    this.events.length = 0;
    this.heartbeats.length = 0;
  }

  /** Queues a command as the real one does: delivered until it is answered. */
  async command(command: AgentCommand, id: string = newCommandId()): Promise<Answer> {
    this.#sent.push({ id, command });
    this.push({ type: "command", id, command });
    return await this.until(() => this.answers.find((each) => each.id === id)?.answer, `an answer to ${command.kind}`);
  }

  /** One frame down the link as it is. */
  push(frame: ToAgent): void {
    this.#link?.send(JSON.stringify(frame));
  }

  async event<T extends AgentEvent["type"]>(
    type: T,
    matches: (event: Extract<AgentEvent, { type: T }>) => boolean = () => true,
  ): Promise<Extract<AgentEvent, { type: T }>> {
    const found = (): Extract<AgentEvent, { type: T }> | undefined =>
      this.events.find(
        (event): event is Extract<AgentEvent, { type: T }> =>
          event.type === type && matches(event as Extract<AgentEvent, { type: T }>),
      );
    return await this.until(found, `an event ${type}; there are ${JSON.stringify(this.events).slice(0, 2000)}`);
  }

  async ready(): Promise<void> {
    await this.event("phase", ({ phase }) => phase === "ready");
  }

  /** The daemon's end of a terminal, once it has dialled. */
  terminal(id: string): Promise<WebSocket> {
    return new Promise((resolve) => this.#terminals.set(`/agent/terminals/${id}`, resolve));
  }

  /** Asked again whenever something came, and now and then for what comes without a word. */
  async until<T>(check: () => T | undefined | false | null, what: string, ms = 40_000): Promise<T> {
    const limit = performance.now() + ms;
    for (;;) {
      const value = check();
      if (value !== undefined && value !== false && value !== null) return value;
      if (performance.now() > limit) throw new Error(`waited in vain for ${what}`);
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#watchers.delete(wake);
          clearTimeout(timer);
          resolve();
        };
        const timer = setTimeout(wake, 50);
        this.#watchers.add(wake);
      });
    }
  }

  candidate(id: string): RestoreCandidate {
    const { request } = this.committed.find((each) => each.id === id)!;
    return { checkpoint: id, meta: request.meta, parts: request.parts };
  }

  /** Where a stored object lies, to damage it. */
  object(checkpoint: string, file: string): string {
    return join(this.#store, checkpoint, file);
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets.clients) socket.terminate();
    this.#sockets.close();
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  #accept(path: string, socket: WebSocket): void {
    const terminal = this.#terminals.get(path);
    if (terminal) return terminal(socket);
    if (path !== "/agent/link") return socket.close(1008);
    this.#link = socket;
    socket.on("error", () => undefined);
    socket.on("message", (data: Buffer) => {
      this.#take(socket, FromAgent.parse(JSON.parse(data.toString("utf8"))));
      this.#wake();
    });
  }

  #take(socket: WebSocket, frame: FromAgent): void {
    switch (frame.type) {
      case "hello": {
        this.hellos.push(frame.last_command);
        const welcome = { heartbeat_seconds: this.heartbeatSeconds, lease_seconds: this.leaseSeconds };
        this.#send(socket, { type: "welcome", ...welcome, acked: this.#acked });
        const from = this.#sent.findIndex(({ id }) => id === frame.last_command) + 1;
        for (const { id, command } of this.#sent.slice(from)) this.#send(socket, { type: "command", id, command });
        return;
      }
      case "event":
        if (frame.seq <= this.#acked) this.#repeated++;
        else {
          this.#acked = frame.seq;
          this.events.push(frame.event);
        }
        return this.#send(socket, { type: "ack", seq: frame.seq });
      case "heartbeat":
        this.heartbeats.push(frame);
        return;
      case "result":
        this.answers.push({ id: frame.command, answer: { ok: true, value: frame.value } });
        return;
      case "failure":
        this.answers.push({ id: frame.command, answer: { ok: false, code: frame.code, error: frame.error } });
    }
  }

  #send(socket: WebSocket, frame: ToAgent): void {
    socket.send(JSON.stringify(frame));
  }

  async #request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#cut) return void request.socket.destroy();
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const path = (request.url ?? "").split("?")[0]!;
    if (path.startsWith("/store/")) return this.#object(request.method ?? "", path, body, response);
    if (path === "/agent/successor") {
      const { of, token } = this.successor ?? { of: null, token: "" };
      const isOf = request.headers.authorization === `Bearer ${of}`;
      if (!isOf) return answer(response, 409, { code: "stale_generation" });
      return answer(response, 200, { sandbox: this.boot.sandbox, token });
    }
    if (request.headers.authorization !== `Bearer ${this.token}`)
      return answer(response, 401, { code: "unauthorized" });
    if (this.failure) return answer(response, this.failure.status, this.failure);
    const result = this.#route(path, body);
    this.#wake();
    answer(response, "code" in result ? 422 : 200, result);
  }

  #route(path: string, body: Buffer): object {
    const json = (): unknown => JSON.parse(body.toString("utf8"));
    if (path === "/agent/boot") return this.boot;
    if (path === "/agent/downloads") return this.#downloads(DownloadRequest.parse(json()));
    if (path === "/agent/git-credential") {
      GitCredentialRequest.parse(json());
      return this.credential ?? { code: "not_found", detail: "nothing is known for that remote" };
    }
    if (path === "/agent/checkpoints") {
      const begin = BeginCheckpoint.parse(json());
      if (this.refuseParents && begin.parent !== null) return { code: "checkpoint_not_found" };
      this.#begun.set(begin.checkpoint, begin);
      return this.#uploads(
        begin,
        begin.objects.map(({ file }) => file),
      );
    }
    const [, id, action] = /^\/agent\/checkpoints\/([^/]+)\/(urls|commit)$/.exec(path) ?? [];
    const begin = this.#begun.get(id ?? "");
    if (!begin) return { code: "not_found" };
    if (action === "urls") return this.#uploads(begin, RenewUploads.parse(json()).files);
    return this.#commit(begin, CommitCheckpoint.parse(json()));
  }

  #uploads(begin: BeginCheckpoint, files: readonly string[]): { uploads: Record<string, SignedUrl> } {
    const signed = files.map((file) => [file, this.#signed("PUT", begin.checkpoint, file)] as const);
    return { uploads: Object.fromEntries(signed) };
  }

  #downloads({ objects }: DownloadRequest): { downloads: Record<string, SignedUrl> } {
    const signed = objects.map(
      ({ checkpoint, file }) => [`${checkpoint}/${file}`, this.#signed("GET", checkpoint, file)] as const,
    );
    return { downloads: Object.fromEntries(signed) };
  }

  #commit(begin: BeginCheckpoint, request: CommitCheckpoint): object {
    for (const { file, size, sha256 } of [...request.parts.filter(({ from }) => from === undefined), request.meta]) {
      const path = this.object(begin.checkpoint, file);
      const bytes = existsSync(path) ? readFileSync(path) : Buffer.alloc(0);
      if (bytes.length !== size || digest(bytes) !== sha256) return { code: "digest_mismatch", detail: file };
    }
    if (!this.committed.some(({ id }) => id === begin.checkpoint)) {
      this.committed.push({ id: begin.checkpoint, request, reason: begin.reason });
    }
    const { meta, ...rest } = request;
    const checkpoint: Checkpoint = {
      ...rest,
      id: begin.checkpoint,
      ts: new Date().toISOString(),
      reason: begin.reason,
      generation: this.boot.generation,
      parent: begin.parent,
      bytes: 0,
      new_bytes: 0,
      meta_sha256: meta.sha256,
      meta_size: meta.size,
      bad: null,
    };
    return { checkpoint };
  }

  #object(method: string, path: string, body: Buffer, response: ServerResponse): void {
    const file = join(this.#store, path.slice("/store/".length));
    if (method === "GET") {
      if (!existsSync(file)) return answer(response, 404, { code: "not_found" });
      response.writeHead(200, { "content-type": "application/octet-stream" });
      return void response.end(readFileSync(file));
    }
    if (existsSync(file)) {
      response.setHeader("etag", `"sha256:${digest(readFileSync(file))}"`);
      return answer(response, 412, { code: "object_exists" });
    }
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, body);
    answer(response, 201, {});
  }

  #signed(method: "PUT" | "GET", checkpoint: string, file: string): SignedUrl {
    const expires = new Date(Date.now() + 600_000).toISOString();
    return { method, url: `${this.url}/store/${checkpoint}/${file}?signed`, headers: {}, expires_at: expires };
  }

  #wake(): void {
    for (const wake of this.#watchers) wake();
  }
}

const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": status < 400 ? "application/json" : "application/problem+json" });
  response.end(JSON.stringify(body));
}
