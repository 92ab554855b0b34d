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
  /** Calls back when a sandbox's processes ended by themselves, or its status changed else. A hint: `status` is the truth. */
  onChange(callback: (id: string) => void): void;
  close(): Promise<void>;
}
