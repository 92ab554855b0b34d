/** The user's face of this folder, assembled from the use cases; the others beside it. */
import { SessionState } from "@hangar/shared";
import { check } from "./check.ts";
import { checkpointNow, restore } from "./checkpoint.ts";
import { archive, remove } from "./end.ts";
import { exportSession } from "./export.ts";
import { beginImport, cancelImport, commitImport } from "./import.ts";
import { fork } from "./fork.ts";
import { keep } from "./keep.ts";
import type { Sessions } from "./faces.ts";
import { find, listItem, sandboxInfo, show, toCheckpoint, toTurn } from "./lookup.ts";
import { create } from "./new.ts";
import { open } from "./open.ts";
import type { Deps } from "./ports.ts";
import { exec, openTerminal, touch } from "./sandbox-use.ts";
import { send } from "./send.ts";
import { suspend } from "./suspend.ts";
import { cancelTurn } from "./turn.ts";

export { makeAgentSide } from "./agent-side.ts";
export type { AgentIdentity, AgentSide, Loops, Sessions, Welcome } from "./faces.ts";
export { makeLoops } from "./loops.ts";

export function makeSessions(deps: Deps): Sessions {
  const located = async (owner: string, ref: string): Promise<string> => (await find(deps, owner, ref)).id;
  return {
    create: async (owner, input) => show(deps, await create(deps, owner, input)),
    async list(owner, { all }) {
      const records = await deps.sessions.list(owner);
      const shown = records.filter(({ state, ending }) => ending !== "remove" && (all || state !== "ARCHIVED"));
      return Promise.all(shown.map((record) => listItem(deps, record)));
    },
    get: async (owner, ref) => show(deps, await find(deps, owner, ref)),
    open: async (owner, ref, input) => show(deps, await open(deps, await located(owner, ref), input)),
    async send(owner, ref, input) {
      const { record, turn } = await send(deps, await located(owner, ref), input);
      return { session: await show(deps, record), turn: toTurn(turn) };
    },
    suspend: async (owner, ref, input) => show(deps, await suspend(deps, await located(owner, ref), input)),
    keep: async (owner, ref, input) => show(deps, await keep(deps, await located(owner, ref), input)),
    archive: async (owner, ref) => show(deps, await archive(deps, await located(owner, ref))),
    remove: async (owner, ref, options) => remove(deps, await located(owner, ref), options),
    checkpointNow: async (owner, ref) => checkpointNow(deps, await find(deps, owner, ref)),
    check: async (owner, ref, input, signal) => check(deps, await find(deps, owner, ref), input, signal),
    async checkpoints(owner, ref) {
      const checkpoints = await deps.sessions.checkpoints(await located(owner, ref));
      return checkpoints.map(toCheckpoint);
    },
    restore: async (owner, ref, { checkpoint }) =>
      show(deps, await restore(deps, await located(owner, ref), checkpoint)),
    async fork(owner, ref, input) {
      const records = await fork(deps, await find(deps, owner, ref), input);
      return Promise.all(records.map((record) => show(deps, record)));
    },
    cancelTurn: async (owner, ref, turn) => toTurn(await cancelTurn(deps, await located(owner, ref), turn)),
    async *events(owner, ref, from, signal) {
      yield* deps.events.follow(await located(owner, ref), from, signal);
    },
    async sandboxes(owner) {
      const records = await deps.sessions.list(owner);
      return records.flatMap((record) =>
        record.sandbox_id === null ? [] : [sandboxInfo(deps, record, record.sandbox_id)],
      );
    },
    exec: async (owner, ref, input, signal) => exec(deps, await find(deps, owner, ref), input, signal),
    openTerminal: async (owner, ref, input, signal) => openTerminal(deps, await find(deps, owner, ref), input, signal),
    export: async (owner, ref, request) => exportSession(deps, await find(deps, owner, ref), request),
    beginImport: (owner, input) => beginImport(deps, owner, input),
    commitImport: async (owner, id, input) => show(deps, await commitImport(deps, owner, id, input)),
    cancelImport: (owner, id) => cancelImport(deps, owner, id),
    touch: async (owner, ref) => touch(deps, await find(deps, owner, ref)),
    async countByState() {
      const counts = Object.fromEntries(SessionState.options.map((state) => [state, 0]));
      for (const id of await deps.sessions.ids()) {
        const record = await deps.sessions.get(id);
        if (record && record.importing_until === 0) counts[record.state] = (counts[record.state] ?? 0) + 1;
      }
      return counts as Record<SessionState, number>;
    },
  };
}
