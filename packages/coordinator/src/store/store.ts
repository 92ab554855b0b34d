/**
 * The checkpoint store port. Adapters: `volume.ts`, `s3.ts`, `gcs.ts`. One contract suite runs over all.
 *
 * Keys are `/`-separated, each piece of [A-Za-z0-9._-], none `.` or `..`: `sessions/<session>/<checkpoint>/<file>`.
 * Objects are written once and never changed. Every call may be retried by its caller and called twice; none retries
 * inside (a decorator does). Failures throw HangarError: `store_unavailable` (retry helps), `object_exists`,
 * `digest_mismatch`, `disk_full`, or they are a bug.
 */
import type { SignedUrl } from "@hangar/shared";

export interface ObjectInfo {
  readonly key: string;
  readonly size: number;
  /** Hex; of the stored bytes. Computed when the object was written or, where the store keeps none, when asked. */
  readonly sha256: string;
}

export interface PutIntent {
  readonly key: string;
  /** Exact length in bytes: a longer or shorter body is refused. */
  readonly size: number;
  /** Hex: a body with another digest is refused, now or at `head`. */
  readonly sha256: string;
}

export interface Store {
  /** For people and logs: `volume:/path`, `gs://bucket/prefix`. */
  readonly name: string;
  /** A create-only upload URL. Signing makes no object and needs no network. */
  signPut(intent: PutIntent, expiresAt: Date): Promise<SignedUrl>;
  signGet(key: string, expiresAt: Date): Promise<SignedUrl>;
  /** None: no such object. */
  head(key: string): Promise<ObjectInfo | null>;
  /** Small objects only (markers, wrapped keys): at most 1 MiB. None: no such object. */
  read(key: string): Promise<Uint8Array | null>;
  /** Create-only and atomic: whole and durable when it returns, or not there. `object_exists` when it is. */
  create(key: string, bytes: Uint8Array): Promise<void>;
  /**
   * Small objects only: another content under a name that is there, in one step, whole and durable when it returns. For what
   * is sealed anew after the vault's rotation and says the same as before; nothing else is ever changed.
   */
  replace(key: string, bytes: Uint8Array): Promise<void>;
  /** Every key under the prefix, in no order. A prefix that is not there gives none. */
  list(prefix: string): AsyncIterable<string>;
  /** Of an object that is not there: no error. */
  delete(key: string): Promise<void>;
}

export const sessionPrefix = (session: string): string => `sessions/${session}/`;
export const checkpointKey = (session: string, checkpoint: string, file: string): string =>
  `sessions/${session}/${checkpoint}/${file}`;
export const MARKER_FILE = "commit.json";
export const markerKey = (session: string, checkpoint: string): string =>
  checkpointKey(session, checkpoint, MARKER_FILE);
/** The session's own age identity, sealed to the vault. */
export const identityKey = (session: string): string => `sessions/${session}/identity.age`;
