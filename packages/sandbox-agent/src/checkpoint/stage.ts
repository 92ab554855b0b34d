/**
 * Files unpacked beside a repository, and moved into their places once all of them are whole. Beside it, since a file can be
 * moved at no cost within one filesystem only.
 */
import { accessSync, constants, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fsPath, lstatRaw, parentRaw, type Raw, rawFrom } from "./raw.ts";
import { makeFolder } from "./safe-paths.ts";

export class Stage {
  readonly #path: string;

  /** @param otherwise where no folder can be made beside the repository. */
  constructor(repo: string, otherwise: string) {
    let above = dirname(repo);
    while (!statSync(above, { throwIfNoEntry: false })?.isDirectory()) above = dirname(above);
    this.#path = join(isWritable(above) ? above : otherwise, `.${basename(repo)}.restoring`);
  }

  /** An empty folder; what a kill left behind there is gone. */
  make(name: string): string {
    const folder = join(this.#path, name);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return folder;
  }

  /** Each takes the place of whatever is there. False: the two lie on different filesystems, and nothing was moved. */
  moveInto(name: string, root: Raw, paths: Iterable<Raw>): boolean {
    const folders = new Set<Raw>();
    for (const path of paths) {
      const from = `${rawFrom(join(this.#path, name))}/${path}`;
      const staged = lstatRaw(from);
      // A later part has put a folder in its place.
      if (!staged || staged.isDirectory()) continue;
      const folder = parentRaw(path);
      if (!folders.has(folder)) makeFolder(root, folder);
      folders.add(folder);
      const to = `${root}/${path}`;
      if (lstatRaw(to)?.isDirectory()) rmSync(fsPath(to), { recursive: true, force: true });
      try {
        renameSync(fsPath(from), fsPath(to));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "EXDEV") return false;
        throw error;
      }
    }
    return true;
  }

  remove(): void {
    rmSync(this.#path, { recursive: true, force: true });
  }
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
