/** Looks at the files that hold conversations. */
import { stat } from "node:fs/promises";
import type { Transcript } from "./harness.ts";

/** Bytes of a regular file, links followed; 0 when there is none. */
export async function fileSize(path: string): Promise<number> {
  try {
    const found = await stat(path);
    return found.isFile() ? found.size : 0;
  } catch {
    return 0;
  }
}

/** An append-only file; none when there is none, or an empty one. */
export async function transcriptAt(path: string): Promise<Transcript | null> {
  const size = await fileSize(path);
  return size > 0 ? { path, size } : null;
}

/** A SQLite store, its log beside it included; none when there is none. */
export async function storeAt(path: string): Promise<Transcript | null> {
  const [store, log] = await Promise.all(
    [path, `${path}-wal`].map((file) => stat(file, { bigint: true }).catch(() => null)),
  );
  if (!store?.isFile() || store.size === 0n) return null;
  const stamp = [store, log].map((file) => (file ? `${file.size}:${file.mtimeNs}` : "-")).join(" ");
  return { path, size: Number(store.size + (log?.size ?? 0n)), stamp };
}
