/** Identifiers. Every id is a type prefix and random hex; a checkpoint's id also sorts by time. */
import { z } from "zod";

/** `ses-` + 8 hex (spec §5.1). */
export const SessionId = z.string().regex(/^ses-[0-9a-f]{8}$/);
/** `sbx-` + 8 hex of the session + `-g` + generation: the same start always names the same sandbox, so a retry cannot make two. */
export const SandboxId = z.string().regex(/^sbx-[0-9a-f]{8}-g[0-9]{1,9}$/);
/** `wrm-` + 8 hex: a sandbox that no session has yet. */
export const WarmId = z.string().regex(/^wrm-[0-9a-f]{8}$/);
/** `ckp-` + 11 hex of milliseconds since 1970 + 6 random hex: sorts by time. */
export const CheckpointId = z.string().regex(/^ckp-[0-9a-f]{17}$/);
/** `trn-` + 12 hex. */
export const TurnId = z.string().regex(/^trn-[0-9a-f]{12}$/);
/** `cmd-` + 1 to 40 of [a-z0-9-]: deterministic where a command must not be given twice. */
export const CommandId = z.string().regex(/^cmd-[a-z0-9-]{1,60}$/);

/** What people type: lower-case letters, digits and dashes, 1 to 60, starting with a letter or digit. */
export const Slug = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?$/,
    "use 1 to 60 lower-case letters, digits and dashes, not starting or ending with a dash",
  );

const hex = (bytes: number): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (b) => b.toString(16).padStart(2, "0")).join("");

export const newSessionId = (): string => `ses-${hex(4)}`;
export const newWarmId = (): string => `wrm-${hex(4)}`;
export const newTurnId = (): string => `trn-${hex(6)}`;
export const newCommandId = (): string => `cmd-${hex(8)}`;
/** A fresh nonce for one start of a sandbox: 32 hex. */
export const newNonce = (): string => hex(16);
export const newCheckpointId = (now: number): string => `ckp-${now.toString(16).padStart(11, "0")}${hex(3)}`;
/** Milliseconds since 1970 at which a checkpoint id was drawn. */
export const checkpointTime = (id: string): number => Number.parseInt(id.slice(4, 15), 16);
export const sandboxIdOf = (sessionId: string, generation: number): string =>
  `sbx-${sessionId.slice(4)}-g${generation}`;
