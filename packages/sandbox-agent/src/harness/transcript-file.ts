/** Looks at the files that hold conversations. */
import { stat } from "node:fs/promises";

/** Bytes of a regular file, links followed; 0 when there is none. */
export async function fileSize(path: string): Promise<number> {
  try {
    const found = await stat(path);
    return found.isFile() ? found.size : 0;
  } catch {
    return 0;
  }
}
