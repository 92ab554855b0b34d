import { HangarError } from "@hangar/shared";
import type { Workspace } from "./types.ts";

export function fingerprintWorkspace(_ws: Workspace, _signal?: AbortSignal): Promise<string> {
  return Promise.reject(new HangarError("internal", "not built yet"));
}
