/** Puts together what there is in a sandbox once its workspace is ready. */
import { join } from "node:path";
import type { BootSpec, Redactor } from "@hangar/shared";
import type { ActivityWatch } from "./activity.ts";
import { createMemory } from "./checkpoint/engine.ts";
import type { Workspace } from "./checkpoint/engine.ts";
import { rootsWith } from "./conversation-roots.ts";
import { Checkpointer } from "./checkpointer.ts";
import type { Sandbox } from "./commands.ts";
import type { Config } from "./config.ts";
import type { Conversation } from "./conversation-state.ts";
import type { Coordinator } from "./coordinator-http.ts";
import { Freezer } from "./freeze.ts";
import type { Harnesses } from "./harness/registry.ts";
import type { Log } from "./log.ts";
import { pushBranch } from "./push-branch.ts";
import type { Environment } from "./sandbox-env.ts";
import type { Spool } from "./spool.ts";
import { Terminals } from "./terminal/terminals.ts";
import { Turns } from "./turns.ts";

export interface SandboxInput {
  readonly config: Config;
  readonly boot: BootSpec;
  readonly harnesses: Harnesses;
  readonly env: Environment;
  readonly redact: Redactor;
  readonly coordinator: Coordinator;
  readonly log: Log;
  readonly spool: Spool;
  readonly conversation: Conversation;
  readonly activity: ActivityWatch;
  readonly linked: () => boolean;
  readonly nextLink: (signal: AbortSignal) => Promise<void>;
  readonly onSuperseded: () => void;
  readonly onChange: () => void;
}

export function makeSandbox(input: SandboxInput): Sandbox & { readonly workspace: Workspace } {
  const { config, boot, env, redact, log, spool, conversation, activity } = input;
  const workspace: Workspace = {
    repo: boot.cwd,
    home: config.home,
    // A turn may be of another harness than the start was.
    get harness() {
      return conversation.current?.harness ?? boot.harness;
    },
    keepIgnored: boot.keep_ignored,
    scratch: join(config.state, "scratch"),
    memory: createMemory(),
    baseBranch: boot.base_branch,
    networkEnv: env,
    conversationRoots: rootsWith(boot.harnesses),
  };
  const checkpointer = new Checkpointer({
    state: config.state,
    coordinator: input.coordinator,
    workspace,
    conversation,
    log,
    session: boot.session,
    generation: boot.generation,
    recipients: boot.recipients,
    limits: { maxUntrackedBytes: boot.settings.max_untracked_bytes, maxPartBytes: boot.settings.max_part_bytes },
    linked: input.linked,
    nextLink: input.nextLink,
    onFailed: (reason, error) => spool.add({ type: "checkpoint_failed", reason, error }),
    onSuperseded: input.onSuperseded,
  });
  const turns: Turns = new Turns({
    state: config.state,
    home: config.home,
    spool,
    log,
    redact,
    conversation,
    harnesses: input.harnesses,
    place: () => ({ cwd: boot.cwd, env }),
    // A turn that ran has a checkpoint of its own, also where one at an interval was just ahead of it.
    checkpoint: (turn, ran) =>
      freezer.running ??
      checkpointer.take({ reason: "turn", ifChanged: !ran, turn, patienceMs: 120_000, waitForLink: true }),
    onChange: input.onChange,
  });
  const terminals = new Terminals({
    token: config.token,
    state: config.state,
    home: config.home,
    cwd: boot.cwd,
    shell: config.shell,
    env,
    harnesses: input.harnesses,
    conversation,
    activity,
    turnRunning: () => turns.active,
  });
  const freezer = new Freezer({
    mark: config.mark,
    state: config.state,
    turns,
    terminals,
    checkpointer,
    log,
    push: async () => {
      if (boot.repo === null) return;
      const why = await pushBranch(boot.cwd, boot.branch, env, redact);
      if (why !== null) spool.add({ type: "notice", text: `The branch ${boot.branch} could not be pushed: ${why}` });
    },
    onChange: input.onChange,
  });
  return { cwd: boot.cwd, env, turns, terminals, checkpointer, freezer, workspace };
}
