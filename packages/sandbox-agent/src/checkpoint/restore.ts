import { HangarError } from "@hangar/shared";
import type { RestoreOptions, Restored, Workspace } from "./types.ts";

export function restoreCheckpoint(_ws: Workspace, _options: RestoreOptions): Promise<Restored> {
  return Promise.reject(new HangarError("internal", "not built yet"));
}
