/**
 * Keeps up with one kind of object: a list, then a watch from the list's version on. A watch that ends goes on from the last
 * version seen; only where the API server has forgotten it (410) is everything listed again. Nothing is ever polled.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Watch } from "@kubernetes/client-node";
import { z } from "zod";

export interface FollowOptions<T> {
  readonly watch: Watch;
  readonly path: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly list: () => Promise<{ readonly version: string; readonly items: readonly unknown[] }>;
  /** Throws where it is not what it should be; it is then passed over. */
  readonly parse: (object: unknown) => T;
  readonly listed: (items: readonly T[]) => void;
  readonly changed: (kind: "ADDED" | "MODIFIED" | "DELETED", item: T) => void;
  /** The first failure in a row, and that it is over. */
  readonly troubled: (error: unknown) => void;
  readonly recovered: () => void;
  readonly signal: AbortSignal;
  /** Milliseconds before the first retry, doubled up to the last; tests shorten it. */
  readonly backoff?: readonly [number, number];
}

const Versioned = z.object({ metadata: z.object({ resourceVersion: z.string() }) });
const Failure = z.object({ code: z.number().optional(), message: z.string().optional() });

/** Resolves when the signal fires. */
export async function follow<T>(options: FollowOptions<T>): Promise<void> {
  const { signal } = options;
  const [first, most] = options.backoff ?? [250, 5000];
  let version: string | null = null;
  for (let failures = 0; !signal.aborted;) {
    try {
      if (version === null) {
        const { version: listed, items } = await options.list();
        options.listed(items.flatMap((item) => parsed(options, item)));
        version = listed;
      }
      const before: string = version;
      version = await watchOnce(options, version, () => {
        if (failures > 0) options.recovered();
        failures = 0;
      });
      // A server that ends every watch at once must not be asked in a tight loop.
      if (version === before) await pause(first, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Lost) version = error.version;
      else {
        if (error instanceof Interrupted) version = error.version;
        if (failures === 0) options.troubled(error instanceof Interrupted ? error.cause : error);
        failures++;
        await pause(Math.min(first * 2 ** (failures - 1), most), signal);
      }
    }
  }
}

/** The server does not know that version any more: list again. */
class Lost extends Error {
  readonly version = null;
}
/** The connection failed; what was seen counts. */
class Interrupted extends Error {
  readonly version: string;
  constructor(version: string, cause: unknown) {
    super("the watch was interrupted", { cause });
    this.version = version;
  }
}

/** The last version seen, when the server ends the watch. */
async function watchOnce<T>(options: FollowOptions<T>, from: string, connected: () => void): Promise<string> {
  let version = from;
  let lost = false;
  let over = false;
  const ended = Promise.withResolvers<void>();
  const connection = await options.watch.watch(
    options.path,
    {
      resourceVersion: from,
      allowWatchBookmarks: true,
      ...(options.labelSelector !== undefined && { labelSelector: options.labelSelector }),
      ...(options.fieldSelector !== undefined && { fieldSelector: options.fieldSelector }),
    },
    (kind: string, object: unknown) => {
      if (kind === "ERROR") {
        const failure = Failure.safeParse(object);
        if (failure.success && failure.data.code === 410) lost = true;
        else ended.reject(new Error(failure.data?.message ?? "the watch failed"));
        return;
      }
      const versioned = Versioned.safeParse(object);
      if (versioned.success) version = versioned.data.metadata.resourceVersion;
      if (kind !== "ADDED" && kind !== "MODIFIED" && kind !== "DELETED") return;
      for (const item of parsed(options, object)) options.changed(kind, item);
    },
    (error: unknown) => {
      over = true;
      if (isGone(error)) lost = true;
      if (error && !isGone(error) && !isTimeout(error)) ended.reject(error);
      else ended.resolve();
    },
  );
  const stop = (): void => {
    connection.abort();
    ended.resolve();
  };
  options.signal.addEventListener("abort", stop, { once: true });
  if (options.signal.aborted) stop();
  // It answers when the server has, or has failed to.
  if (!over) connected();
  try {
    await ended.promise;
  } catch (error) {
    if (!lost) throw new Interrupted(version, error);
  } finally {
    options.signal.removeEventListener("abort", stop);
    connection.abort();
  }
  if (lost) throw new Lost("the version is too old");
  return version;
}

const isGone = (error: unknown): boolean =>
  error instanceof Error && "statusCode" in error && (error as { statusCode?: unknown }).statusCode === 410;
/** The client library gives up a connection that is silent for 30 s, since it may be dead; the next one goes on from there. */
const isTimeout = (error: unknown): boolean => error instanceof Error && error.name === "TimeoutError";

function parsed<T>(options: Pick<FollowOptions<T>, "parse">, object: unknown): T[] {
  try {
    return [options.parse(object)];
  } catch {
    return [];
  }
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  sleep(ms, undefined, { signal }).catch(() => undefined);
