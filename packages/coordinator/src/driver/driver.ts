/**
 * The sandbox driver port: `local.ts` (processes), later `kubernetes.ts` (pods).
 *
 * A sandbox's id is a function of session and generation, so `create` is idempotent: called twice for one id, by any
 * replica, it makes one sandbox. Failures throw HangarError. No call waits for the daemon to be ready; it reports itself.
 */
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
}

export interface SandboxStatus {
  readonly id: string;
  readonly session: string;
  readonly generation: number;
  /** `left`: it runs no more and its folder is still there. */
  readonly state: "running" | "left";
  /** Exit of the daemon where known, for people. */
  readonly detail: string | null;
}

export interface Driver {
  readonly name: string;
  /** One line for `status`: how sandboxes are kept apart, or a warning that they are not. */
  readonly isolation: string;
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
  /** Calls back when a sandbox's processes ended by themselves. A hint: `list` is the truth. */
  onExit(callback: (id: string) => void): void;
  close(): Promise<void>;
}
