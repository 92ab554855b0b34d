/** Files that no checkpoint holds: a sandbox that has them is not let go for idleness alone. Pure. */
import type { LeftOut } from "@hangar/shared";
import { iso, MINUTE } from "./machine.ts";
import type { Settings } from "./ports.ts";
import type { CheckpointRecord, SessionRecord } from "./record.ts";

type HoldSettings = Pick<Settings, "left_out_hold_hours">;

/** What the newest checkpoint left out. Not what was lost before: a restored workspace goes on naming that. */
export function atRisk(
  record: Pick<SessionRecord, "restored_from">,
  checkpoints: readonly CheckpointRecord[],
): readonly LeftOut[] {
  const from = checkpoints.find(({ id }) => id === record.restored_from?.checkpoint);
  const lost = new Set(from?.left_out.map(({ path, size }) => `${size} ${path}`));
  return (checkpoints.at(-1)?.left_out ?? []).filter(({ path, size }) => !lost.has(`${size} ${path}`));
}

/** Until when such files keep the session from being suspended for idleness, ms since 1970. */
export const heldUntil = (
  record: Pick<SessionRecord, "last_active_at" | "idle_minutes">,
  settings: HoldSettings,
): number =>
  Date.parse(record.last_active_at) + Math.max(record.idle_minutes, settings.left_out_hold_hours * 60) * MINUTE;

export const isHolding = (settings: HoldSettings): boolean => settings.left_out_hold_hours > 0;

/** `big.bin (80.0 MB), b.iso (60.1 MB) and 3 more`. */
export function named(files: readonly LeftOut[]): string {
  const shown = files.slice(0, 3).map(({ path, size }) => `${path.slice(0, 200)} (${(size / 1e6).toFixed(1)} MB)`);
  const more = files.length > 3 ? ` and ${files.length - 3} more` : "";
  return `${shown.join(", ")}${more}`;
}

/** The status of a session that stays up for them. */
export const heldStatus = (name: string, files: readonly LeftOut[], until: number): string =>
  `Held until ${iso(until)}: ${named(files)} ${files.length === 1 ? "is" : "are"} in no checkpoint; ` +
  `to let go: hangar session suspend ${name} --accept-loss`;

/** Why a suspend that somebody asked for was not done. */
export const refusedFor = (name: string, files: readonly LeftOut[]): string =>
  `${named(files)} ${files.length === 1 ? "is" : "are"} in no checkpoint and would be lost: commit or remove ` +
  `${files.length === 1 ? "it" : "them"}, raise HANGAR_SESSION_MAX_UNTRACKED_MB, or: hangar session suspend ${name} --accept-loss`;
