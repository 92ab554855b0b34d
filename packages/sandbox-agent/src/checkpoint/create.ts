import { HangarError } from "@hangar/shared";
import type { CreateOptions, CreateResult, Workspace } from "./types.ts";

export function createCheckpoint(_ws: Workspace, _options: CreateOptions): Promise<CreateResult> {
  return Promise.reject(new HangarError("internal", "not built yet"));
}
