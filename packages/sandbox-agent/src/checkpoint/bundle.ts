/**
 * Git bundles, made and taken apart by their published format (gitformat-bundle): what a repository's refs, index, stash
 * and operations reach and its remote lacks. Written here and not by `git bundle`, which would need refs in the user's
 * repository for what no ref names, and lists what the receiver must have by its own lights.
 */
import { createHash } from "node:crypto";
import {
  createReadStream,
  createWriteStream,
  mkdirSync,
  openSync,
  readSync,
  closeSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { spawn } from "node:child_process";
import { finished } from "node:stream/promises";
import { deflateSync } from "node:zlib";
import { HangarError, ObjectId } from "@hangar/shared";
import { diskFull, failedForSpace } from "./disk-full.ts";
import { git, gitFailed, type Scratch, tryGit } from "./git.ts";
import { bytesOf, fsPath, type Raw, stringPath } from "./raw.ts";

export const HEAD_REF = "refs/hangar/checkpoint";
export const PINS_REF = "refs/hangar/pins";

export interface BundlePlan {
  /** New tips, by name: HEAD first. */
  readonly heads: readonly (readonly [Raw, string])[];
  /** Commits that the receiver must have. */
  readonly prerequisites: readonly string[];
}

type Format = "sha1" | "sha256";

/** Objects by id, as git names and stores loose ones. */
export function writeLoose(scratch: Scratch, format: Format, type: "tree" | "commit", body: Buffer): string {
  const whole = Buffer.concat([Buffer.from(`${type} ${body.length}\0`), body]);
  const oid = createHash(format).update(whole).digest("hex");
  const folder = `${scratch.dir}/objects/${oid.slice(0, 2)}`;
  mkdirSync(fsPath(folder), { recursive: true });
  writeFileSync(fsPath(`${folder}/${oid.slice(2)}`), deflateSync(whole));
  return oid;
}

export interface Found {
  readonly oid: string;
  readonly type: "commit" | "tree" | "blob" | "tag";
}

/** Which of these names (whole ids or the beginnings of some) are objects here. */
export async function lookUp(
  scratch: Scratch,
  names: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, Found>> {
  const found = new Map<string, Found>();
  if (names.length === 0) return found;
  const output = await git(["cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"], {
    env: scratch.env,
    cwd: scratch.dir,
    input: `${names.join("\n")}\n`,
    signal,
  });
  for (const [i, line] of output.toString("latin1").split("\n").entries()) {
    const [oid = "", type = ""] = line.split(" ");
    const asked = names[i];
    if (asked !== undefined && /^(?:commit|tree|blob|tag)$/.test(type))
      found.set(asked, { oid, type: type as Found["type"] });
  }
  return found;
}

/**
 * One commit that reaches what no ref does: commits as its parents, trees and blobs in its tree. The same for the same
 * things, whenever it is made. None: nothing to pin.
 */
export function pinCommit(scratch: Scratch, format: Format, objects: readonly Found[]): string | null {
  const seen = new Map<string, Found>();
  for (const object of objects) seen.set(object.oid, object);
  const all = [...seen.values()].sort((a, b) => (a.oid < b.oid ? -1 : 1));
  if (all.length === 0) return null;
  const rows: { name: string; row: Buffer }[] = [];
  for (const { oid, type } of all) {
    if (type !== "tree" && type !== "blob") continue;
    const mode = type === "tree" ? "40000" : "100644";
    rows.push({
      name: type === "tree" ? `${oid}/` : oid,
      row: Buffer.concat([Buffer.from(`${mode} ${oid}\0`), Buffer.from(oid, "hex")]),
    });
  }
  rows.sort((a, b) => (a.name < b.name ? -1 : 1));
  const tree = writeLoose(scratch, format, "tree", Buffer.concat(rows.map(({ row }) => row)));
  const parents = all.filter(({ type }) => type === "commit").map(({ oid }) => `parent ${oid}\n`);
  const who = "Hangar <hangar@localhost> 0 +0000";
  const body = `tree ${tree}\n${parents.join("")}author ${who}\ncommitter ${who}\n\nWhat only the index, the stash or an operation in progress reaches\n`;
  return writeLoose(scratch, format, "commit", Buffer.from(body));
}

/**
 * What has to be sent of these tips when the receiver has `have`. None: nothing, the receiver has all of it.
 * @param tips by name, commits and annotated tags and whatever else refs name.
 */
export async function planBundle(
  scratch: Scratch,
  tips: readonly (readonly [Raw, string])[],
  have: readonly string[],
  signal?: AbortSignal,
): Promise<BundlePlan | null> {
  const covered = new Set(have);
  const fresh = tips.filter(([, oid]) => !covered.has(oid));
  if (fresh.length === 0) return null;
  const types = await lookUp(scratch, [...new Set([...fresh.map(([, oid]) => oid), ...have])], signal);
  const missing = fresh.find(([, oid]) => !types.has(oid));
  if (missing)
    throw new HangarError("checkpoint_failed", `${missing[0]} names an object that the repository lacks: run git fsck`);
  const wants = fresh.map(([, oid]) => oid);
  const known = have.filter((oid) => ["commit", "tag"].includes(types.get(oid)?.type ?? ""));
  const output = await git(["rev-list", "--boundary", "--stdin"], {
    env: scratch.env,
    cwd: scratch.dir,
    input: `${[...wants.filter((oid) => ["commit", "tag"].includes(types.get(oid)?.type ?? "")), ...known.map((oid) => `^${oid}`)].join("\n")}\n`,
    signal,
  });
  const boundary: string[] = [];
  const inside = new Set<string>();
  for (const line of output.toString("latin1").split("\n")) {
    if (line.startsWith("-")) boundary.push(line.slice(1));
    else if (line !== "") inside.add(line);
  }
  // A tip in the receiver's history needs no object; a tag object or a lone tree or blob does.
  const heads = fresh.filter(([, oid]) => types.get(oid)?.type !== "commit" || inside.has(oid));
  if (heads.length === 0) return null;
  // Heads that are not commits may lean on commits that are not in the boundary: a tag of an old commit.
  const tags = heads.filter(([, oid]) => types.get(oid)?.type === "tag").map(([, oid]) => oid);
  const peeled = tags.length === 0 ? [] : await peel(scratch, tags, signal);
  const more = peeled.filter((oid) => !inside.has(oid));
  return { heads, prerequisites: [...new Set([...boundary, ...more])] };
}

async function peel(scratch: Scratch, tags: readonly string[], signal?: AbortSignal): Promise<string[]> {
  const found = await lookUp(
    scratch,
    tags.map((oid) => `${oid}^{commit}`),
    signal,
  );
  return [...found.values()].map(({ oid }) => oid);
}

/**
 * Writes the bundle file. A partial clone's (`partial`) leaves out what its remote has promised and was never fetched;
 * another's has deltas against objects of the prerequisites, which the receiver then needs whole.
 */
export async function writeBundle(
  scratch: Scratch,
  format: Format,
  plan: BundlePlan,
  options: { path: Raw; partial: boolean; signal?: AbortSignal | undefined },
): Promise<void> {
  const out = createWriteStream(fsPath(options.path), { flags: "wx", mode: 0o600 });
  out.write(bytesOf(headerOf(format, plan)));
  const how = options.partial ? [ALLOW_MISSING] : plan.prerequisites.length > 0 ? ["--thin"] : [];
  const args = ["pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q", ...how];
  const child = spawn("git", args, {
    env: scratch.env,
    cwd: stringPath(scratch.dir),
    stdio: ["pipe", "pipe", "pipe"],
    ...(options.signal && { signal: options.signal }),
  });
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += stderr.length < 8192 ? chunk.toString("utf8") : ""));
  child.stdin.on("error", () => {});
  child.stdin.end(
    `${[...plan.heads.map(([, oid]) => oid), ...plan.prerequisites.map((oid) => `^${oid}`)].join("\n")}\n`,
  );
  const code = new Promise<number>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve(status ?? 1));
  });
  child.stdout.pipe(out);
  const [status] = await Promise.all([code, finished(out)]);
  if (status !== 0) throw gitFailed(args, { code: status, stdout: Buffer.alloc(0), stderr }, scratch.dir);
}

const ALLOW_MISSING = "--missing=allow-any";

function headerOf(format: Format, plan: BundlePlan): Raw {
  const first = format === "sha256" ? "# v3 git bundle\n@object-format=sha256\n" : "# v2 git bundle\n";
  const needs = plan.prerequisites.map((oid) => `-${oid} \n`).join("");
  return `${first}${needs}${plan.heads.map(([name, oid]) => `${oid} ${name}\n`).join("")}\n`;
}

export interface Bundle extends BundlePlan {
  readonly format: Format;
  /** Where the pack begins. */
  readonly packAt: number;
}

const MAX_HEADER = 64 * 1024 * 1024;

/** Throws `checkpoint_invalid` for what is not a bundle. */
export function readBundleHeader(path: Raw): Bundle {
  const fd = openSync(fsPath(path), "r");
  let head = Buffer.alloc(0);
  let end = -1;
  try {
    while (end < 0 && head.length < MAX_HEADER) {
      const piece = Buffer.alloc(Math.max(64 * 1024, head.length));
      const n = readSync(fd, piece, 0, piece.length, head.length);
      if (n === 0) break;
      head = Buffer.concat([head, piece.subarray(0, n)]);
      end = head.indexOf("\n\n", 0, "latin1");
    }
  } finally {
    closeSync(fd);
  }
  if (end < 0) throw badBundle("it has no end of its header");
  const lines = head.toString("latin1", 0, end).split("\n");
  const first = lines.shift();
  let format: Format = "sha1";
  if (first === "# v3 git bundle") {
    while (lines[0]?.startsWith("@")) {
      const line = lines.shift();
      if (line === "@object-format=sha256") format = "sha256";
      else if (line !== "@object-format=sha1") throw badBundle("it needs what this version does not know");
    }
  } else if (first !== "# v2 git bundle") throw badBundle("it does not begin as one");
  const prerequisites: string[] = [];
  const heads: [Raw, string][] = [];
  for (const line of lines) {
    const needed = line.startsWith("-");
    const text = needed ? line.slice(1) : line;
    const space = text.indexOf(" ");
    const oid = space < 0 ? text : text.slice(0, space);
    if (!ObjectId.safeParse(oid).success) throw badBundle("a line of its header is malformed");
    if (needed) prerequisites.push(oid);
    else heads.push([text.slice(space + 1), oid]);
  }
  return { format, prerequisites, heads, packAt: end + 2 };
}

const badBundle = (why: string): HangarError =>
  new HangarError("checkpoint_invalid", `The checkpoint's bundle is damaged or forged: ${why}`);

/** Puts the bundle's pack into a repository. Objects only: no ref changes. Answers the pack's name. */
export async function unbundle(
  path: Raw,
  bundle: Bundle,
  repo: { readonly env: Readonly<Record<string, string>>; readonly cwd: Raw },
  signal?: AbortSignal,
): Promise<string> {
  const args = ["index-pack", "--stdin", "--fix-thin"];
  const child = spawn("git", args, {
    env: repo.env,
    cwd: stringPath(repo.cwd),
    stdio: ["pipe", "pipe", "pipe"],
    ...(signal && { signal }),
  });
  let stderr = "";
  let stdout = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += stderr.length < 8192 ? chunk.toString("utf8") : ""));
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString("latin1")));
  child.stdin.on("error", () => {});
  const source = createReadStream(fsPath(path), { start: bundle.packAt });
  source.on("error", (error) => child.stdin.destroy(error));
  source.pipe(child.stdin);
  const code = await new Promise<number>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve(status ?? 1));
  });
  if (code !== 0 && failedForSpace(stderr, stringPath(repo.cwd))) throw diskFull(stringPath(repo.cwd));
  if (code !== 0)
    throw badBundle(
      `its pack is broken (${stderr.trim().split("\n").slice(-2).join("; ").slice(0, 300) || `exit ${code}`})`,
    );
  return /([0-9a-f]{40,64})/.exec(stdout)?.[1] ?? "";
}

/**
 * Proves a bundle: every object that its heads reach and its prerequisites do not is in its pack, whole and of the right id;
 * of a partial clone, every one that is there. Rebuilt in a repository of its own that borrows the user's objects only for what the bundle leaves out.
 */
export async function proveBundle(
  path: Raw,
  plan: BundlePlan,
  proof: Scratch,
  options: { partial: boolean; signal?: AbortSignal | undefined },
): Promise<void> {
  const { partial, signal } = options;
  const bundle = readBundleHeader(path);
  const pack = await unbundle(path, bundle, { env: proof.env, cwd: proof.dir }, signal);
  const index = `${proof.dir}/objects/pack/pack-${pack}.idx`;
  const [list, listing] = await Promise.all([
    git(["rev-list", "--objects", "--no-object-names", ...(partial ? [ALLOW_MISSING] : []), "--stdin"], {
      env: proof.env,
      cwd: proof.dir,
      input: `${[...plan.heads.map(([, oid]) => oid), ...plan.prerequisites.map((oid) => `^${oid}`)].join("\n")}\n`,
      signal,
    }),
    git(["show-index", `--object-format=${bundle.format}`], {
      env: proof.env,
      cwd: proof.dir,
      input: readAll(index),
      signal,
    }),
  ]);
  const there = new Set<string>();
  for (const line of listing.toString("latin1").split("\n")) there.add(line.split(" ")[1] ?? "");
  for (const oid of list.toString("latin1").split("\n"))
    if (oid !== "" && !there.has(oid)) throw new HangarError("checkpoint_failed", `The bundle lacks the object ${oid}`);
}

function readAll(path: Raw): Buffer {
  const size = statSync(fsPath(path)).size;
  const fd = openSync(fsPath(path), "r");
  try {
    const all = Buffer.allocUnsafe(size);
    for (let at = 0; at < size;) {
      const n = readSync(fd, all, at, size - at, at);
      if (n === 0) break;
      at += n;
    }
    return all;
  } finally {
    closeSync(fd);
  }
}

/** The newest commit of `head`'s history among these and what they reach; none where there is none. */
export async function mergeBase(
  scratch: Scratch,
  head: string,
  prerequisites: readonly string[],
  signal?: AbortSignal,
): Promise<string | null> {
  if (prerequisites.length === 0) return null;
  const result = await tryGit(["merge-base", head, ...prerequisites.slice(0, 100)], {
    env: scratch.env,
    cwd: scratch.dir,
    signal,
  });
  return result.code === 0 ? (result.stdout.toString("latin1").trim().split("\n")[0] ?? null) : null;
}
