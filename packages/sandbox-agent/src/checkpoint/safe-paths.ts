/** Folders are made and files removed below a root, never through a link. */
import { mkdirSync, rmdirSync, rmSync, unlinkSync } from "node:fs";
import { fsPath, parentRaw, type Raw, lstatRaw } from "./raw.ts";

/** Makes `path` below `root` a real folder; a file or link that is in the way is removed. */
export function makeFolder(root: Raw, path: Raw): void {
  if (path === "") return;
  makeFolder(root, parentRaw(path));
  const at = `${root}/${path}`;
  const there = lstatRaw(at);
  if (there?.isDirectory()) return;
  if (there) unlinkSync(fsPath(at));
  mkdirSync(fsPath(at));
}

/** Every folder above `path` is a real one. */
export function isReal(root: Raw, path: Raw): boolean {
  const parent = parentRaw(path);
  if (parent === "") return true;
  return isReal(root, parent) && lstatRaw(`${root}/${parent}`)?.isDirectory() === true;
}

/** Removes a file, link or whole folder, and folders above it that this leaves empty. */
export function removeSafely(root: Raw, path: Raw): void {
  if (!isReal(root, path)) return;
  rmSync(fsPath(`${root}/${path}`), { recursive: true, force: true });
  removeEmptyAbove(root, path);
}

export function removeEmptyAbove(root: Raw, path: Raw): void {
  for (let folder = parentRaw(path); folder !== ""; folder = parentRaw(folder)) {
    try {
      rmdirSync(fsPath(`${root}/${folder}`));
    } catch {
      return;
    }
  }
}
