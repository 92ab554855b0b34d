/**
 * Serves the volume store's signed URLs: `/store/<key>`, PUT once and GET. The URL itself is the permission, so this is
 * mounted before authentication. Answers carry `ETag: "sha256:<hex>"`, by which a sender whose answer was lost learns
 * whether the object there is its own.
 */
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { ERRORS, HangarError } from "@hangar/shared";
import { granted, STORE_PATH } from "./signing.ts";
import type { VolumeStore } from "./volume.ts";

export interface VolumeRoutes {
  /** `/store`: every path below it belongs here. */
  readonly prefix: string;
  /** Never throws. */
  handle(request: Request): Promise<Response>;
}

/** `report` is told what is no one's mistake (a failing disk), once each. */
export function volumeRoutes(store: VolumeStore, report: (error: Error) => void = () => {}): VolumeRoutes {
  return {
    prefix: STORE_PATH,
    async handle(request) {
      try {
        const grant = granted(store.signer, request.method, new URL(request.url), store.now());
        return grant.method === "PUT" ? await put(store, grant, request) : await get(store, grant.key, request);
      } catch (thrown) {
        const error =
          thrown instanceof HangarError ? thrown : new HangarError("internal", undefined, { cause: thrown });
        if (error.status >= 500) report(error);
        return problem(error);
      }
    },
  };
}

async function put(
  store: VolumeStore,
  grant: { key: string; size: number; sha256: string },
  request: Request,
): Promise<Response> {
  const announced = request.headers.get("content-length");
  if (announced !== null && Number(announced) !== grant.size)
    throw new HangarError("digest_mismatch", `The URL is for a body of ${grant.size} bytes`);
  try {
    await store.put(grant, bodyOf(request));
  } catch (error) {
    if (!(error instanceof HangarError) || error.code !== "object_exists") throw error;
    const there = await store.head(grant.key);
    return problem(error, there ? { etag: etag(there.sha256) } : {});
  }
  return new Response(null, { status: 201, headers: { etag: etag(grant.sha256) } });
}

async function get(store: VolumeStore, key: string, request: Request): Promise<Response> {
  // Only "from here to the end", which is what a broken download asks for; anything else gets the whole.
  const from = /^bytes=(\d{1,15})-$/.exec(request.headers.get("range") ?? "")?.[1];
  const start = from === undefined ? 0 : Number(from);
  const found = await store.stream(key, start);
  if (found === null) throw new HangarError("not_found", "There is no such object");
  const headers = new Headers({
    "content-type": "application/octet-stream",
    "content-length": String(found.size - start),
    "accept-ranges": "bytes",
    "cache-control": "no-store",
  });
  if (from !== undefined) headers.set("content-range", `bytes ${start}-${found.size - 1}/${found.size}`);
  const body = Readable.toWeb(found.bytes, { type: "bytes" }) as unknown as ConstructorParameters<typeof Response>[0];
  return new Response(body, { status: from === undefined ? 200 : 206, headers });
}

async function* bodyOf(request: Request): AsyncGenerator<Uint8Array> {
  if (request.body === null) return;
  try {
    yield* request.body as unknown as ReadableStream<Uint8Array>;
  } catch (cause) {
    throw new HangarError("digest_mismatch", "The body broke off", { cause });
  }
}

function problem(error: HangarError, more: Record<string, string> = {}): Response {
  const body = {
    type: `urn:hangar:error:${error.code}`,
    title: ERRORS[error.code].title,
    status: error.status,
    detail: error.message,
    code: error.code,
  };
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store", ...more };
  return new Response(JSON.stringify(body), { status: error.status, headers });
}

const etag = (sha256: string): string => `"sha256:${sha256}"`;
