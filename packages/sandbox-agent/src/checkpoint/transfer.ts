/**
 * Moves one object between a file and a signed URL, as a stream, until it is there or cannot get there. Retries lost
 * connections, short bodies, 429 and 5xx with back-off and jitter; renews a URL that has expired (also by the store's
 * clock, whatever the own one says). Everything ends at once with its AbortSignal.
 */
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { HangarError, isErrorCode, type ErrorCode, type SignedUrl } from "@hangar/shared";

export interface Expected {
  readonly size: number;
  /** Hex. */
  readonly sha256: string;
}

export interface TransferOptions {
  /** A fresh URL for the same object and method. Does its own retrying: what it throws ends the transfer. */
  readonly renew: () => Promise<SignedUrl>;
  readonly signal: AbortSignal;
  readonly retry?: RetryPolicy;
}

export interface RetryPolicy {
  /** Failures in a row, without a byte more than before, after which it gives up. */
  readonly attempts: number;
  readonly firstMs: number;
  readonly mostMs: number;
  /** A connection on which nothing moves for this long is lost. */
  readonly silentMs: number;
}

/** Half a minute of trying, all in all. */
export const RETRY: RetryPolicy = { attempts: 8, firstMs: 250, mostMs: 8000, silentMs: 60_000 };

/**
 * Sends a file to a create-only PUT URL.
 * @returns `verified`: the store has said that it holds these very bytes. False where it says only that the object exists
 * after an answer of its was lost: then the check at commit decides.
 * @throws HangarError `object_exists` (other bytes, or not from here), `store_unavailable`, `disk_full`, `digest_mismatch`,
 * `body_too_large`; the signal's reason.
 */
export async function upload(
  file: string,
  url: SignedUrl,
  expected: Expected,
  options: TransferOptions,
): Promise<{ verified: boolean }> {
  let answerLost = false;
  return await persist(url, options, async (url) => {
    const answer = await put(file, url, expected.size, options).catch((cause: unknown) => {
      // Whether the store took the whole body is not known.
      answerLost = true;
      throw cause;
    });
    if (answer.status >= 200 && answer.status < 300) return { verified: true };
    // Amazon's word for two uploads of one name at the same moment: which of them won is known next time.
    if (/<Code>ConditionalRequestConflict</.test(answer.body)) throw new Retry("two uploads at once");
    if (answer.status === 409 || answer.status === 412) {
      if (answer.etag === expected.sha256) return { verified: true };
      if (answer.etag === null && answerLost) return { verified: false };
      throw new HangarError("object_exists");
    }
    if (answer.status >= 500) answerLost = true;
    throw refusal(answer, url);
  });
}

/**
 * Fetches an object into the file `destination`, which then has exactly the expected bytes: it is written beside and
 * renamed. Goes on where a broken connection left off.
 * @throws HangarError `digest_mismatch` (the store holds other bytes), `checkpoint_invalid` (it holds none),
 * `store_unavailable`, `disk_full`; the signal's reason.
 */
export async function download(
  url: SignedUrl,
  expected: Expected,
  destination: string,
  options: TransferOptions,
): Promise<void> {
  const partial = `${destination}.part`;
  const progress: Progress = { received: 0, hash: createHash("sha256") };
  try {
    await persist(
      url,
      options,
      async (url) => {
        await get(url, expected, partial, progress, options);
        if (progress.hash.copy().digest("hex") === expected.sha256) return;
        progress.received = 0;
        progress.hash = createHash("sha256");
        throw new HangarError("digest_mismatch", "The store's bytes are not the ones that were recorded");
      },
      () => progress.received,
    );
    await rename(partial, destination);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

/** What one attempt came to, when it is worth another. */
class Retry extends Error {
  readonly renew: boolean;
  readonly unanswered: boolean;
  readonly afterMs: number;
  constructor(
    message: string,
    options: { renew?: boolean; unanswered?: boolean; afterMs?: number } & ErrorOptions = {},
  ) {
    super(message, options);
    this.renew = options.renew ?? false;
    this.unanswered = options.unanswered ?? false;
    this.afterMs = options.afterMs ?? 0;
  }
}

async function persist<T>(
  url: SignedUrl,
  options: TransferOptions,
  attempt: (url: SignedUrl) => Promise<T>,
  progress: () => number = () => 0,
): Promise<T> {
  const policy = options.retry ?? RETRY;
  let current = url;
  let failures = 0;
  let mismatches = 0;
  let most = 0;
  for (;;) {
    options.signal.throwIfAborted();
    try {
      return await attempt(current);
    } catch (error) {
      options.signal.throwIfAborted();
      const again = retryOf(error);
      if (again === null) throw error;
      if (error instanceof HangarError && error.code === "digest_mismatch" && ++mismatches >= 3) throw error;
      if (progress() > most) failures = 0;
      most = Math.max(most, progress());
      if (++failures >= policy.attempts)
        throw new HangarError(
          "store_unavailable",
          `The checkpoint store at ${hostOf(current)} cannot be reached, tried ${failures} times: ${again.message}`,
          { cause: error },
        );
      // The first renewal is free of waiting: an expired URL is no sign of trouble.
      if (!(again.renew && failures === 1)) {
        const most = Math.min(policy.mostMs, policy.firstMs * 2 ** (failures - 1));
        await sleep(Math.max(again.afterMs, most / 2 + (Math.random() * most) / 2), undefined, {
          signal: options.signal,
        });
      }
      // A replica that is gone answers nothing: a fresh URL leads to one that is there.
      if (again.renew || (again.unanswered && failures > 2)) current = await options.renew();
    }
  }
}

/** None: trying again cannot help. */
function retryOf(error: unknown): Retry | null {
  if (error instanceof Retry) return error;
  if (error instanceof HangarError) {
    return error.code === "digest_mismatch" || error.retryable ? new Retry(error.message) : null;
  }
  const code = (error as NodeJS.ErrnoException).code;
  return typeof code === "string" && NETWORK.has(code) ? new Retry(code, { cause: error, unanswered: true }) : null;
}

const NETWORK = new Set([
  "ECONNRESET",
  "ECONNREFUSED",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENETDOWN",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ERR_STREAM_PREMATURE_CLOSE",
  "HPE_INVALID_CONSTANT",
  "HPE_INVALID_EOF_STATE",
  "HPE_CLOSED_CONNECTION",
]);

interface Progress {
  received: number;
  hash: Hash;
}

interface Answer {
  readonly status: number;
  /** A digest that the store gives for the object there: `"sha256:<hex>"`. None: it gives none. */
  readonly etag: string | null;
  readonly retryAfterMs: number;
  /** The beginning of the body. */
  readonly body: string;
}

async function put(file: string, url: SignedUrl, size: number, options: TransferOptions): Promise<Answer> {
  const request = send(url, { "content-length": String(size) }, options);
  const content = createReadStream(file, { highWaterMark: 256 * 1024 });
  // A store may answer, and refuse, before it has taken the body: the answer counts, not the broken pipe.
  const sent = pipeline(content, request).then(
    () => null,
    (error: unknown) => error,
  );
  try {
    const response = await responseOf(request, sent);
    return await answerOf(response);
  } finally {
    content.destroy();
    request.destroy();
    await sent;
  }
}

async function responseOf(request: ClientRequest, sent: Promise<unknown>): Promise<IncomingMessage> {
  const answered = once(request, "response") as Promise<[IncomingMessage]>;
  // Sending that failed without an answer on its heels is a failure of the whole.
  const failed = sent.then(async (error) => {
    if (error !== null) throw error;
    return await answered;
  });
  const [response] = await Promise.race([answered, failed]);
  return response;
}

async function get(
  url: SignedUrl,
  expected: Expected,
  partial: string,
  progress: Progress,
  options: TransferOptions,
): Promise<void> {
  const from = progress.received;
  if (from > 0 && from === expected.size) return;
  const request = send(url, from > 0 ? { range: `bytes=${from}-` } : {}, options);
  try {
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    const status = response.statusCode ?? 0;
    const body = status === 200 || status === 206 ? arriving(response) : null;
    if (body === null) throw refusal(await answerOf(response), url);
    if (status === 200 || !(response.headers["content-range"] ?? "").startsWith(`bytes ${from}-`)) {
      if (status === 206) throw new Retry("the store answered another range than asked for");
      progress.received = 0;
      progress.hash = createHash("sha256");
    }
    await keep(body, partial, expected.size, progress);
  } finally {
    request.destroy();
  }
  if (progress.received < expected.size) throw new Retry("the body was cut short");
}

/** What is counted and hashed is what reached the file, so that a broken connection leaves all three in step. */
async function keep(body: AsyncIterable<Buffer>, partial: string, size: number, progress: Progress): Promise<void> {
  const handle = await open(partial, progress.received === 0 ? "w" : "r+", 0o600);
  try {
    for await (const piece of body) {
      if (progress.received + piece.length > size)
        throw new HangarError("digest_mismatch", "The store holds more bytes than were recorded");
      for (let at = 0; at < piece.length;)
        at += (await handle.write(piece, at, piece.length - at, progress.received + at)).bytesWritten;
      progress.hash.update(piece);
      progress.received += piece.length;
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOSPC")
      throw new HangarError("disk_full", "The sandbox's disk is full: free some space and try again", { cause });
    throw cause;
  } finally {
    await handle.close();
  }
}

/**
 * The body as it arrives. Iterating over the response itself would throw away what had arrived and was not taken yet when
 * the connection broke: on a bad line that can be everything, time after time.
 */
function arriving(response: IncomingMessage): AsyncGenerator<Buffer> {
  const pieces: Buffer[] = [];
  let over = response.closed;
  let failure: unknown = response.errored;
  let wake = (): void => {};
  response.on("data", (piece: Buffer) => {
    pieces.push(piece);
    if (pieces.length >= MOST_WAITING) response.pause();
    wake();
  });
  response.once("error", (error) => {
    failure = error;
  });
  response.once("close", () => {
    over = true;
    wake();
  });
  // Listening begins at once, not with the first piece that is asked for: the connection may break before.
  return (async function* () {
    for (;;) {
      for (let piece = pieces.shift(); piece; piece = pieces.shift()) yield piece;
      if (over) break;
      const more = new Promise<void>((resolve) => {
        wake = resolve;
      });
      response.resume();
      await more;
    }
    if (failure !== null) throw failure;
  })();
}

/** Pieces of up to 64 KiB that wait for the disk. */
const MOST_WAITING = 16;

function send(url: SignedUrl, headers: Record<string, string>, options: TransferOptions): ClientRequest {
  const start = url.url.startsWith("https:") ? httpsRequest : httpRequest;
  const silentMs = (options.retry ?? RETRY).silentMs;
  const request = start(url.url, {
    method: url.method,
    headers: { ...url.headers, ...headers },
    signal: options.signal,
    timeout: silentMs,
  });
  // Its errors reach whoever awaits the response; one that comes after that has no reader.
  request.on("error", () => {});
  request.on("timeout", () =>
    request.destroy(Object.assign(new Error("nothing moved on the connection"), { code: "ETIMEDOUT" })),
  );
  return request;
}

async function answerOf(response: IncomingMessage): Promise<Answer> {
  let body = "";
  try {
    for await (const piece of response) {
      if (body.length < 4096) body += (piece as Buffer).toString("utf8");
      else break;
    }
  } catch {
    // The status has been said; the rest of the body adds only words.
  }
  const after = Number(response.headers["retry-after"]);
  return {
    status: response.statusCode ?? 0,
    etag: /^"sha256:([0-9a-f]{64})"$/.exec(response.headers.etag ?? "")?.[1] ?? null,
    retryAfterMs: Number.isFinite(after) ? Math.min(after * 1000, 30_000) : 0,
    body,
  };
}

/** What a status that is no success means: an error to throw, or a Retry. */
function refusal(answer: Answer, url: SignedUrl): Error {
  const { status } = answer;
  const said = `HTTP ${status} from ${hostOf(url)}`;
  const expired = status === 400 && /ExpiredToken|has expired/.test(answer.body);
  if (status === 401 || status === 403 || status === 410 || expired) return new Retry(said, { renew: true });
  const code = problemCode(answer.body);
  if (code === "disk_full" || status === 507)
    return new HangarError("disk_full", "The disk of the checkpoint store is full: free some space there");
  if (code === "digest_mismatch") return new HangarError("digest_mismatch");
  if (status === 404)
    return new HangarError("checkpoint_invalid", "The checkpoint store does not hold an object that was recorded");
  if (status === 413) return new HangarError("body_too_large", "The checkpoint store takes no object of that size");
  if (status === 408 || status === 429 || status >= 500) return new Retry(said, { afterMs: answer.retryAfterMs });
  return new HangarError(code ?? "internal", `The checkpoint store refused an object: ${said}`);
}

function problemCode(body: string): ErrorCode | null {
  try {
    const { code } = JSON.parse(body) as { code?: unknown };
    return typeof code === "string" && isErrorCode(code) ? code : null;
  } catch {
    return null;
  }
}

/** A signed URL is a secret: only its host is ever shown. */
const hostOf = (url: SignedUrl): string => new URL(url.url).host;
