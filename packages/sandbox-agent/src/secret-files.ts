/**
 * Secrets that are files. Each value lies in `~/.hangar/secrets/`, which no checkpoint holds; what is put where it is asked
 * for is a link to it. So a checkpoint of a workspace that has one, tracked by git or not, holds a link and no value, and
 * so does what is committed.
 */
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { HangarError } from "@hangar/shared";
import type { BootSpec } from "@hangar/shared";
import { z } from "zod";
import type { ConversationRoot } from "./checkpoint/conversation-scan.ts";
import { isCode, readJson, replaceFile } from "./durable.ts";

export interface SecretFilesInput {
  readonly home: string;
  /** The repo's folder. */
  readonly cwd: string;
  readonly files: BootSpec["secret_files"];
  /** Where conversations are. */
  readonly roots: readonly ConversationRoot[];
}

const Placed = z.array(z.string());

/**
 * Writes the values and puts the links that lie in the home; takes away those of an earlier start. Idempotent.
 * `invalid_request` names the secret that cannot be put where it is asked for.
 */
export function writeSecretFiles({ home, cwd, files, roots }: SecretFilesInput): void {
  const folder = folderOf(home);
  const wanted = new Set(files.map(({ name }) => name));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(folder))
    if (!wanted.has(name)) rmSync(join(folder, name), { recursive: true, force: true });
  for (const { name, mode, value } of files) {
    const path = join(folder, name);
    rmSync(path, { force: true });
    replaceFile(path, value, Number.parseInt(mode, 8));
  }
  const record = join(home, ".hangar", "secret-files.json");
  const places = files.map(({ path }) => placeOf(path, { home, cwd }).path);
  for (const path of readJson(record, Placed) ?? []) if (!places.includes(path)) removeLink(path, folder);
  replaceFile(record, JSON.stringify(places));
  for (const file of files) if (file.path.startsWith("~/")) put(file, { home, cwd, roots });
}

/** Puts the links that lie in the workspace: after a clone, and again after a restore. */
export function linkSecretFiles({ home, cwd, files, roots }: SecretFilesInput): void {
  for (const file of files) if (!file.path.startsWith("~/")) put(file, { home, cwd, roots });
}

const folderOf = (home: string): string => join(home, ".hangar", "secrets");

function placeOf(path: string, { home, cwd }: { home: string; cwd: string }): { root: string; path: string } {
  const root = path.startsWith("~/") ? home : cwd;
  return { root, path: join(root, path.replace(/^~\//, "")) };
}

function put(file: BootSpec["secret_files"][number], where: Omit<SecretFilesInput, "files">): void {
  const { root, path } = placeOf(file.path, where);
  const refuse = (why: string): never => {
    throw new HangarError("invalid_request", `The secret ${file.name} cannot be the file ${file.path}: ${why}`);
  };
  if (root === where.home && where.roots.some(({ folder }) => `${path}/`.startsWith(`${join(root, folder)}/`)))
    refuse("conversations are kept there");
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  } catch (error) {
    if (isCode(error, "ENOSPC") || isCode(error, "EDQUOT")) throw error;
    refuse("what is to be its folder is none");
  }
  // What a repo has put there must not lead anywhere else.
  const realRoot = realpathSync(root);
  const folder = realpathSync(dirname(path));
  if (folder !== realRoot && !folder.startsWith(`${realRoot}/`)) refuse("its folder is a link that leads elsewhere");
  if (`${folder}/`.includes("/.git/")) refuse("its folder is a link into .git");
  if (lstatSync(path, { throwIfNoEntry: false })?.isDirectory()) refuse("there is a folder");
  const target = join(folderOf(where.home), file.name);
  if (isLinkTo(path, target)) return;
  const temporary = `${path}.${process.pid}.new`;
  rmSync(temporary, { force: true });
  symlinkSync(target, temporary);
  renameSync(temporary, path);
}

function removeLink(path: string, folder: string): void {
  if (linkOf(path)?.startsWith(`${folder}/`)) rmSync(path, { force: true });
}

const isLinkTo = (path: string, target: string): boolean => linkOf(path) === target;

function linkOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    return null;
  }
}
