/** Restores a workspace from the newest checkpoint that is whole and verifies. */
import { mkdirSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { Part, RestoreCandidate, SignedUrl } from "@hangar/shared";
import { backoff, pause } from "./backoff.ts";
import { restoreCheckpoint } from "./checkpoint/engine.ts";
import type { Restored, Workspace } from "./checkpoint/engine.ts";
import { download } from "./checkpoint/transfer.ts";
import type { Coordinator } from "./coordinator-http.ts";
import type { Log } from "./log.ts";
import { inParallel } from "./parallel.ts";

export interface RestoreDeps {
  readonly coordinator: Coordinator;
  readonly workspace: Workspace;
  readonly identity: string | null;
  readonly state: string;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export interface Bad {
  readonly checkpoint: string;
  readonly why: string;
}

export interface Fetched {
  readonly candidate: RestoreCandidate;
  readonly folder: string;
}

const AT_ONCE = 6;

/**
 * Every object of a candidate, on disk and with the announced digests. A store that cannot be reached is waited for: an older
 * checkpoint must not be taken in its stead. Rejects with what is wrong with this candidate, or `disk_full`.
 */
export async function fetchCandidate(deps: RestoreDeps, candidate: RestoreCandidate): Promise<Fetched> {
  const folder = join(deps.state, "restore", candidate.checkpoint);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const objects = [
    { ...candidate.meta, checkpoint: candidate.checkpoint },
    ...candidate.parts.map((part) => ({ ...part, checkpoint: part.from ?? candidate.checkpoint })),
  ];
  const done = new Set<string>();
  for (let attempt = 0; ; attempt++) {
    try {
      const waiting = objects.filter((object) => !done.has(keyOf(object)));
      const urls = await urlsOf(deps, waiting);
      await inParallel(AT_ONCE, waiting, deps.signal, async (object, signal) => {
        const key = keyOf(object);
        const renew = async (): Promise<SignedUrl> => one(await urlsOf(deps, [object]), key);
        await download(one(urls, key), object, pathOf(folder, object.checkpoint, object.file), { renew, signal });
        done.add(key);
      });
      return { candidate, folder };
    } catch (error) {
      deps.signal.throwIfAborted();
      if (!(error instanceof HangarError && error.retryable)) throw error;
      deps.log.warn(`the checkpoint store is waited for: ${error.message}`);
      await pause(backoff(attempt), deps.signal);
    }
  }
}

/**
 * Into the clone, which may still be in the making. Throws what is wrong with it; `checkpoint_invalid` where it does not verify.
 * The fetched objects are gone afterwards.
 */
export async function restoreFetched(
  deps: RestoreDeps,
  { candidate, folder }: Fetched,
  cloned: Promise<unknown>,
): Promise<Restored> {
  try {
    const restored = await restoreCheckpoint(deps.workspace, {
      meta: await readFile(pathOf(folder, candidate.checkpoint, candidate.meta.file)),
      source: (part: Part) => ({ path: pathOf(folder, part.from ?? candidate.checkpoint, part.file) }),
      identities: deps.identity === null ? null : [deps.identity],
      force: true,
      cloned,
      signal: deps.signal,
    });
    if (restored.report.verified) return restored;
    const differs = restored.report.differs.slice(0, 5).join(", ");
    throw new HangarError("checkpoint_invalid", `it does not verify: ${differs || "the fingerprint differs"}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What of a restored workspace is not as it was, for people and for the agent. */
export function missingFrom({ meta, report }: Restored, bad: readonly Bad[]): string[] {
  const missing: string[] = [];
  if (bad.length > 0) {
    const count = bad.length === 1 ? "A newer checkpoint was damaged" : `${bad.length} newer checkpoints were damaged`;
    missing.push(`${count}: this is the state of ${meta.ts}, and work done after it is not here`);
  }
  if (!meta.paired)
    missing.push("Files changed while the checkpoint was taken: files and conversation may differ slightly");
  for (const { path, size } of report.left_out.slice(0, 50)) {
    missing.push(`${path} (${megabytes(size)}) was over the limit for untracked files and is not here`);
  }
  if (report.left_out.length > 50) missing.push(`${report.left_out.length - 50} more untracked files are not here`);
  return missing;
}

const megabytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`;

interface StoredObject {
  readonly checkpoint: string;
  readonly file: string;
}
const keyOf = ({ checkpoint, file }: StoredObject): string => `${checkpoint}/${file}`;
const pathOf = (folder: string, checkpoint: string, file: string): string => join(folder, `${checkpoint}.${file}`);

async function urlsOf(deps: RestoreDeps, objects: readonly StoredObject[]): Promise<Record<string, SignedUrl>> {
  if (objects.length === 0) return {};
  const request = { objects: objects.map(({ checkpoint, file }) => ({ checkpoint, file })) };
  return (await deps.coordinator.downloads(request, deps.signal)).downloads;
}

function one(urls: Record<string, SignedUrl>, key: string): SignedUrl {
  const url = urls[key];
  if (url) return url;
  throw new HangarError("checkpoint_invalid", `the coordinator gave no URL for ${key}`);
}
