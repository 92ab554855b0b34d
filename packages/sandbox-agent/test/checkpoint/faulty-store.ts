/** A store on loopback that fails as it is told, request by request, and is sound when it is told nothing. */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import type { SignedUrl } from "@hangar/shared";

export type Fault = (request: IncomingMessage, response: ServerResponse, store: FaultyStore) => void | Promise<void>;

export class FaultyStore {
  readonly objects = new Map<string, Buffer>();
  /** One for each request to come; an empty place is a sound one. */
  readonly faults: (Fault | undefined)[] = [];
  readonly seen: string[] = [];
  /** Whether it names the digest of an object that it will not overwrite. */
  tag = true;
  #server: Server;
  #port = 0;

  private constructor() {
    this.#server = createServer((request, response) => {
      void this.#answer(request, response).catch(() => request.destroy());
    });
  }

  static async open(): Promise<FaultyStore> {
    const store = new FaultyStore();
    await new Promise<void>((resolve) => {
      store.#server.listen(0, "127.0.0.1", resolve);
    });
    const address = store.#server.address();
    store.#port = typeof address === "object" && address ? address.port : 0;
    return store;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  url(method: "PUT" | "GET", key: string): SignedUrl {
    return { method, url: `http://127.0.0.1:${this.#port}/${key}`, headers: {}, expires_at: new Date().toISOString() };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.seen.push(`${request.method} ${request.url} ${request.headers.range ?? ""}`.trim());
    const fault = this.faults.shift();
    if (fault) await fault(request, response, this);
    else await this.serve(request, response);
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = (request.url ?? "/").slice(1).replace(/\?.*/, "");
    const there = this.objects.get(key);
    if (request.method === "PUT") {
      const body = await buffer(request);
      if (there) {
        const etag = `"sha256:${createHash("sha256").update(there).digest("hex")}"`;
        response.writeHead(409, this.tag ? { etag } : {}).end();
        return;
      }
      this.objects.set(key, body);
      response.writeHead(201).end();
      return;
    }
    if (!there) {
      response.writeHead(404).end();
      return;
    }
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const range = { "content-range": `bytes ${from}-${there.length - 1}/${there.length}` };
    response.writeHead(from > 0 ? 206 : 200, { "content-length": there.length - from, ...(from > 0 && range) });
    response.end(there.subarray(from));
  }
}

export const status =
  (code: number, headers: Record<string, string> = {}, body = ""): Fault =>
  (request, response) => {
    request.resume();
    response.writeHead(code, headers).end(body);
  };

export const reset: Fault = (request) => {
  request.socket.resetAndDestroy();
};

/** Takes the whole body and keeps it, but its answer is lost. */
export const loseAnswer: Fault = async (request, _response, store) => {
  store.objects.set((request.url ?? "/").slice(1), await buffer(request));
  request.socket.resetAndDestroy();
};

/** Begins the object, then breaks off after that many bytes. */
export const breakAfter =
  (bytes: number): Fault =>
  (request, response, store) => {
    const there = store.objects.get((request.url ?? "/").slice(1)) ?? Buffer.alloc(0);
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const range = { "content-range": `bytes ${from}-${there.length - 1}/${there.length}` };
    response.writeHead(from > 0 ? 206 : 200, { "content-length": there.length - from, ...(from > 0 && range) });
    // An end, not a reset, which could overtake the bytes.
    response.write(there.subarray(from, from + bytes), () => request.socket.end());
  };

/** Answers nothing. */
export const hang: Fault = () => {};
