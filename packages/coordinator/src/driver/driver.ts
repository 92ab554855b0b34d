/**
 * The sandbox driver port: `local.ts` (processes), `kubernetes/` (pods).
 *
 * A sandbox's id is a function of session and generation, so `create` is idempotent: called twice for one id, by any
 * replica, it makes one sandbox. Failures throw HangarError; retryable ones may or may not have happened. No call waits for
 * the daemon to be ready; it reports itself.
 */
import type { ErrorCode, KubernetesPod } from "@hangar/shared";

export interface SandboxSpec {
  readonly id: string;
  readonly session: string;
  readonly generation: number;
  /** The folder name under the workspace folder that the repo is checked out in. */
  readonly repoFolder: string;
  /**
   * The session's repo, as its environment names it. Local sandboxes get at what it needs and no more: a path on this
   * machine is bound in, and the SSH agent is offered where it is an ssh remote.
   */
  readonly remote: string | null;
  /** Variables for `hangar-agent run`: see AGENT_ENV. The driver adds the paths. */
  readonly env: Readonly<Record<string, string>>;
  /** The sandbox whose leftover folder is to be taken over, where the driver still has it. */
  readonly adopt: string | null;
  /** The snapshot whose memory it is to go on with, where that can be restored; none: it starts from nothing. */
  readonly snapshot: string | null;
  /** What the environment asks of a cluster; none: the defaults. */
  readonly kubernetes: KubernetesPod | null;
}

/** Of a start that the machine holds up: what it waits for, in words for people, or why it cannot succeed. */
export type StartProgress =
  | { readonly waits: string }
  | {
      readonly failed: string;
      readonly code: Extract<ErrorCode, "image_pull_failed" | "sandbox_crashed" | "cluster_refused">;
    };

export interface SandboxStatus {
  readonly id: string;
  readonly session: string;
  readonly generation: number;
  /**
   * `ending`: it was told to end by others, a node drain say, and takes its last checkpoint; no new work for it. `left`: it
   * runs no more and its folder may still be there.
   */
  readonly state: "running" | "ending" | "left";
  /** Why it ended or ends, where known, for people. */
  readonly detail: string | null;
  /** None: the machine holds nothing up. */
  readonly start: StartProgress | null;
  /** How often its processes were started again in place, with its folder, and why the last time. */
  readonly restarts: { readonly count: number; readonly why: string };
}

export const NO_RESTARTS: SandboxStatus["restarts"] = { count: 0, why: "" };

/** A sandbox without a session. Its id is drawn, and on record before it is made. */
export interface WarmSpec extends Pick<SandboxSpec, "id" | "repoFolder" | "remote" | "env" | "kubernetes"> {}

export type WarmStatus = Pick<SandboxStatus, "id" | "state" | "detail" | "start" | "restarts">;

/** Sandboxes that wait for sessions. Every call may be repeated, by any replica. */
export interface WarmDriver {
  create(spec: WarmSpec): Promise<void>;
  /** Those that no session has. */
  list(): Promise<WarmStatus[]>;
  /** Null also once a session has it. */
  status(id: string): Promise<WarmStatus | null>;
  /** Makes it the session's sandbox, by its id from then on. False: it is not there, or not sound, and nothing was done. */
  claim(id: string, as: Pick<SandboxSpec, "id" | "session" | "generation">): Promise<boolean>;
  /** Of one that is not there, or that a session has: no error, and nothing is done. */
  destroy(id: string): Promise<void>;
}

/** A sandbox's memory, kept beside its checkpoint. Opt-in, best effort: a session never depends on it. */
export interface Snapshots {
  /** Begins one of a sandbox that is stopped, or looks how it is. Repeated, it is the same one. */
  take(id: string): Promise<"pending" | { readonly ready: string } | { readonly failed: string }>;
  /** Of one that is not there: no error. */
  remove(snapshot: string): Promise<void>;
}

export interface Driver {
  readonly name: string;
  /** One line for `status`: how sandboxes are kept apart, or a warning that they are not. */
  readonly isolation: string;
  /** Whether the folder of a sandbox that ended can outlive it. Where not, what ended is of no use and is destroyed. */
  readonly keepsFolders: boolean;
  /** Where the repo's parent folder is inside a sandbox of this session. The same for every generation. */
  workspace(session: string): string;
  /** Whether a leftover folder of that sandbox could be taken over by `create` with `adopt`. */
  canAdopt(id: string): Promise<boolean>;
  create(spec: SandboxSpec): Promise<{ adopted: boolean }>;
  /** Every sandbox of this installation, running or left. */
  list(): Promise<SandboxStatus[]>;
  status(id: string): Promise<SandboxStatus | null>;
  /** Ends every process of it and removes its folder. Of one that is not there: no error. */
  destroy(id: string): Promise<void>;
  /** Ends every process of it and leaves its folder (state `left`). Of one that is not there: no error. */
  stop(id: string): Promise<void>;
  /** What a sandbox would be made of beside its environment, such as the image that is taken where none is named. */
  madeOf(kubernetes: KubernetesPod | null): string;
  /** Calls back when a sandbox's processes ended by themselves, or its status changed else. A hint: `status` is the truth. */
  onChange(callback: (id: string) => void): void;
  /** None: nothing can wait here. */
  readonly warm: WarmDriver | null;
  /** None: memory cannot be kept here. */
  readonly snapshots: Snapshots | null;
  close(): Promise<void>;
}
