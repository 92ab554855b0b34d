/**
 * The checkpoint engine: an exact, proved copy of a workspace (repository and conversation), and its restore.
 *
 * A checkpoint is a folder of objects: parts, and `meta.json` that names them. A part that did not change is referenced
 * from an earlier checkpoint of the same session. Nothing here talks to the coordinator: the caller moves objects.
 * Nothing here writes into the user's repository or home to take a checkpoint.
 */
export type * from "./types.ts";
export type { Part } from "@hangar/shared";
export { DEFAULT_LIMITS } from "./types.ts";
export type { Meta, MetaObject } from "./meta.ts";
export { META_FILE, parseMeta } from "./meta.ts";
/** `parseParent` gives null for bytes of another version or that are damaged: the next checkpoint is then whole. */
export { type ParentState, parseParent, serializeParent } from "./parent.ts";
export { type Memory, createMemory } from "./memory.ts";
/** `createCheckpoint(ws: Workspace, options: CreateOptions): Promise<CreateResult>` */
export { createCheckpoint } from "./create.ts";
/** `restoreCheckpoint(ws: Workspace, options: RestoreOptions): Promise<Restored>` */
export { restoreCheckpoint } from "./restore.ts";
/** `fingerprintWorkspace(ws: Workspace, signal?: AbortSignal): Promise<string>`: 64 hex; what is there now, untracked limits apart. */
export { fingerprintWorkspace } from "./fingerprint.ts";
