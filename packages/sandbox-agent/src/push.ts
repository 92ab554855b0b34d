/** Brings one made checkpoint to the coordinator: begin, objects to their signed URLs, commit. */
import { HangarError } from "@hangar/shared";
import type { SignedUrl } from "@hangar/shared";
import { upload } from "./checkpoint/transfer.ts";
import type { Coordinator } from "./coordinator-http.ts";
import { inParallel } from "./parallel.ts";
import type { Pending } from "./pending.ts";

const AT_ONCE = 4;

/** When it returns, the checkpoint is committed. May be called again after any failure, also by a later process. */
export async function push(coordinator: Coordinator, pending: Pending, signal: AbortSignal): Promise<void> {
  const { begin, commit, uploaded } = pending;
  const { uploads } = await coordinator.begin(begin, signal);
  const waiting = begin.objects.filter(({ file }) => !uploaded.has(file));
  await inParallel(AT_ONCE, waiting, signal, async (object, signal) => {
    const url = uploads[object.file] ?? (await renewed(coordinator, begin.checkpoint, object.file, signal));
    const renew = (): Promise<SignedUrl> => renewed(coordinator, begin.checkpoint, object.file, signal);
    await upload(pending.paths[object.file]!, url, object, { renew, signal });
    uploaded.add(object.file);
  });
  try {
    await coordinator.commit(begin.checkpoint, commit, signal);
  } catch (error) {
    // The store has lost something since, or what was taken for it was not it: everything is sent again next time.
    uploaded.clear();
    throw error;
  }
}

async function renewed(
  coordinator: Coordinator,
  checkpoint: string,
  file: string,
  signal: AbortSignal,
): Promise<SignedUrl> {
  const url = (await coordinator.renew(checkpoint, [file], signal)).uploads[file];
  if (url) return url;
  throw new HangarError("internal", `The coordinator gave no URL for ${file}`);
}
