/** Makes a repository's objects, refs, HEAD, configuration and git state those of a checkpoint. Files come later. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { HangarError } from "@hangar/shared";
import { type Bundle, lookUp, PINS_REF, readBundleHeader, unbundle } from "./bundle.ts";
import { type ConfigEntry, isPartialClone, parseConfigList, sortConfig, writeConfig } from "./git-config.ts";
import { findGitDirs, fixedEnv, git, type GitDirs, OFF, tryGit, userEnv } from "./git.ts";
import { removeGitFiles } from "./git-files.ts";
import { Incoming } from "./incoming.ts";
import { bytesOf, fsPath, parentRaw, type Raw, rawOf, stringPath, toText, lstatRaw } from "./raw.ts";
import { makeFolder } from "./safe-paths.ts";
import type { TreeState } from "./state.ts";
import type { Workspace } from "./types.ts";

export interface Target {
  readonly dirs: GitDirs;
  readonly tree: TreeState;
  /** GIT_DIR is the repository's, configuration of the user apart. */
  readonly env: Record<string, string>;
}

export interface RepositoryInput {
  readonly tree: TreeState;
  /** Absolute. */
  readonly worktree: Raw;
  readonly root: Raw;
  readonly repo: Raw;
  /** The main repository, which is there already. */
  readonly main: GitDirs | null;
  /** Of a linked working tree. */
  readonly owner: Target | null;
  /** Linked working trees that belong to this repository. */
  readonly linked: readonly TreeState[];
  readonly bundles: readonly Raw[];
  /** The main repository is not changed before this is done. */
  readonly sound: Promise<unknown>;
  readonly warnings: Set<string>;
  readonly signal?: AbortSignal | undefined;
}

export interface RestoredRepository {
  /** None: a working tree whose folder was gone when the checkpoint was taken; it is listed again, no more. */
  readonly target: Target | null;
  /** Sets refs, HEAD, configuration and git's own files, after those of the repository that it belongs to. Files need none of it. */
  readonly settle: () => Promise<void>;
}

/** Brings the objects, without which nothing is changed; refs and the rest are set by `settle`. */
export async function restoreRepository(ws: Workspace, input: RepositoryInput): Promise<RestoredRepository> {
  const { tree } = input;
  const dirs = input.main ?? (tree.kind === "linked" ? makeLinked(input) : await makeNested(ws, input));
  const env = { ...fixedEnv(ws.home), GIT_DIR: stringPath(dirs.gitDir), GIT_WORK_TREE: stringPath(dirs.worktree) };
  const target: Target = { dirs, tree, env };
  // Read while objects come, which change neither; but a fetch may add to a nested repository's refs of its remote, and what a
  // linked working tree finds is what its repository has set.
  const early = tree.kind === "main" ? listRefs(target, input) : null;
  const config = tree.kind === "main" ? listConfig(ws, target, input) : null;
  for (const reading of [early, config]) reading?.catch(() => {});
  if (tree.kind !== "linked") {
    if (tree.kind === "nested") writeGitFile(dirs.commonDir, "shallow", tree.gitFiles.get("shallow") ?? null);
    await addObjects(ws, target, input);
  }
  const found = await knownObjects(ws, target, input);
  const settle = async (): Promise<void> => {
    if (tree.kind !== "linked") dropLinked(dirs, input);
    const [refs, lists] = await Promise.all([
      early ?? listRefs(target, input),
      config ?? listConfig(ws, target, input),
    ]);
    await setRefs(target, input, refs, found);
    await setHead(target, input.signal);
    setConfig(target, input, lists);
    setGitFiles(target);
  };
  return { target: tree.missing ? null : target, settle };
}

// ---- where it lies -------------------------------------------------------------------------------------------------

async function makeNested(ws: Workspace, input: RepositoryInput): Promise<GitDirs> {
  const { tree, worktree, root, repo, signal } = input;
  makeFolder(root, tree.path);
  const gitDir = tree.gitDir === null ? `${worktree}/.git` : `${repo}/${tree.gitDir}`;
  const found = findGitDirs(worktree);
  if (found && found.gitDir === gitDir && found.commonDir === gitDir) return found;
  rmSync(fsPath(`${worktree}/.git`), { recursive: true, force: true });
  if (tree.gitDir !== null) makeFolder(repo, parentRaw(tree.gitDir));
  if (!existsSync(fsPath(`${gitDir}/HEAD`)))
    await git(["init", "-q", "--bare", "--template=", `--object-format=${tree.objectFormat}`, stringPath(gitDir)], {
      env: fixedEnv(ws.home),
      cwd: "/",
      signal,
    });
  const set = async (key: string, value: string): Promise<void> => {
    await git(["config", "--file", stringPath(`${gitDir}/config`), key, value], {
      env: fixedEnv(ws.home),
      cwd: "/",
      signal,
    });
  };
  await set("core.bare", "false");
  if (tree.gitDir !== null) {
    await set("core.worktree", stringPath(relative(gitDir, worktree)));
    writeFileSync(fsPath(`${worktree}/.git`), bytesOf(`gitdir: ${relative(worktree, gitDir)}\n`));
  }
  return { worktree, gitDir, commonDir: gitDir, gitFile: tree.gitDir !== null };
}

function makeLinked(input: RepositoryInput): GitDirs {
  const { tree, worktree, root, owner } = input;
  if (!owner || tree.id === null) throw new HangarError("internal", "a linked working tree without its repository");
  const { commonDir } = owner.dirs;
  const gitDir = `${commonDir}/worktrees/${tree.id}`;
  mkdirSync(fsPath(gitDir), { recursive: true });
  writeFileSync(fsPath(`${gitDir}/gitdir`), bytesOf(`${worktree}/.git\n`));
  writeFileSync(fsPath(`${gitDir}/commondir`), "../..\n");
  if (!existsSync(fsPath(`${gitDir}/HEAD`))) writeFileSync(fsPath(`${gitDir}/HEAD`), "ref: refs/heads/none\n");
  if (!tree.missing) {
    makeFolder(root, tree.path);
    const dotGit = `${worktree}/.git`;
    if (lstatRaw(dotGit)?.isDirectory()) rmSync(fsPath(dotGit), { recursive: true });
    writeFileSync(fsPath(dotGit), bytesOf(`gitdir: ${gitDir}\n`));
  }
  return { worktree, gitDir, commonDir, gitFile: true };
}

/** Linked working trees that a fresh clone does not have, and the checkpoint neither. */
function dropLinked(dirs: GitDirs, input: RepositoryInput): void {
  const known = new Set(input.linked.map((tree) => tree.id));
  const folder = `${dirs.commonDir}/worktrees`;
  if (!existsSync(fsPath(folder))) return;
  for (const id of readdirSync(fsPath(folder), { encoding: "latin1" }))
    if (!known.has(id)) rmSync(fsPath(`${folder}/${id}`), { recursive: true, force: true });
}

/** From one absolute folder to another place, with `..`. */
function relative(from: Raw, to: Raw): Raw {
  const a = from.split("/");
  const b = to.split("/");
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  return [...a.slice(same).map(() => ".."), ...b.slice(same)].join("/");
}

// ---- objects -------------------------------------------------------------------------------------------------------

/** All of the bundles' objects, or none. */
async function addObjects(ws: Workspace, target: Target, input: RepositoryInput): Promise<void> {
  const { tree, signal } = input;
  const incoming = new Incoming(target.dirs, target.env);
  try {
    await unbundleAll(ws, { ...target, env: incoming.env }, input, incoming);
    await input.sound;
    incoming.accept();
  } finally {
    incoming.remove();
  }
  if (tree.kind === "main") await keepShallow(target, signal);
}

async function unbundleAll(ws: Workspace, target: Target, input: RepositoryInput, incoming: Incoming): Promise<void> {
  const { tree, signal } = input;
  const bundles = input.bundles.map((path) => ({ path, header: readBundleHeader(path) }));
  for (const { path, header } of bundles) {
    if (header.format !== tree.objectFormat)
      throw new HangarError(
        "checkpoint_invalid",
        "The checkpoint's bundle is of another object format than its repository",
      );
    await needCommits(ws, target, input, header.prerequisites);
    const pack = await unbundle(path, header, { env: target.env, cwd: target.dirs.commonDir }, signal);
    // What the pack lacks is then fetched from the remote when it is asked for, as it was before.
    if (isPartial(tree) && pack !== "") incoming.promise(pack);
  }
}

/** Which of the commits that refs are to have are here; HEAD's is, or is brought, and others where the remote gives them. */
async function knownObjects(ws: Workspace, target: Target, input: RepositoryInput): Promise<ReadonlySet<string>> {
  const { head, refs, kind } = target.tree;
  const all = [...new Set([...refs.map(([, oid]) => oid), ...(head === null ? [] : [head])])];
  const look = async (): Promise<Set<string>> => new Set((await lookUp(scratchLike(target), all, input.signal)).keys());
  const found = await look();
  if (kind === "linked" || all.every((oid) => found.has(oid))) return found;
  if (head !== null && !found.has(head)) await needCommits(ws, target, input, [head]);
  // A shallow clone lacks what lies in the remote's history, and a remote may have forced a branch but still have its commits.
  const lacking = await missingOf(target, all, input.signal);
  await bring(ws, target, input, lacking, MOST_FETCHES);
  return await look();
}

const isPartial = (tree: TreeState): boolean =>
  isPartialClone(tree.config.map(([, key, value]): ConfigEntry => [key, value]));

/** Commits at which the checkpoint's history was cut off: where their parents are not here either, it stays cut off there. */
async function keepShallow(target: Target, signal?: AbortSignal): Promise<void> {
  const oids =
    (target.tree.gitFiles.get("shallow") ?? Buffer.alloc(0)).toString("latin1").match(/^[0-9a-f]{40,64}$/gm) ?? [];
  if (oids.length === 0) return;
  const path = `${target.dirs.commonDir}/shallow`;
  const now = new Set(existsSync(fsPath(path)) ? readFileSync(fsPath(path), "latin1").split("\n") : []);
  const here = await lookUp(scratchLike(target), oids, signal);
  const cut: string[] = [];
  for (const oid of oids) {
    if (!here.has(oid) || now.has(oid)) continue;
    const commit = await git(["cat-file", "commit", oid], { env: target.env, cwd: target.dirs.commonDir, signal });
    const head = commit.toString("latin1").split("\n\n")[0] ?? "";
    const parents = [...head.matchAll(/^parent ([0-9a-f]+)$/gm)].map(([, parent = ""]) => parent);
    const found = await lookUp(scratchLike(target), parents, signal);
    if (found.size < new Set(parents).size) cut.push(oid);
  }
  if (cut.length > 0) writeFileSync(fsPath(path), `${[...now, ...cut].filter((line) => line !== "").join("\n")}\n`);
}

async function missingOf(target: Target, oids: readonly string[], signal?: AbortSignal): Promise<string[]> {
  const found = await lookUp(scratchLike(target), oids, signal);
  return oids.filter((oid) => !found.has(oid));
}

const isShallow = ({ dirs }: Target): boolean => existsSync(fsPath(`${dirs.commonDir}/shallow`));

/** Fetches from the remote, no ref changes. Answers git's last word where it fails. */
async function fetch(
  ws: Workspace,
  target: Target,
  { signal }: RepositoryInput,
  options: readonly string[],
  refspecs: readonly string[],
): Promise<string> {
  const args = ["fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", ...options, "--stdin", "origin"];
  const result = await tryGit([...OFF, ...args], {
    env: { ...userEnv(ws.home, ws.networkEnv), GIT_DIR: target.env["GIT_DIR"] ?? "" },
    cwd: target.dirs.worktree,
    input: refspecs.map((refspec) => `${refspec}\n`).join(""),
    signal,
    timeout: 600_000,
  });
  return result.code === 0 ? "" : (result.stderr.trim().split("\n").at(-1) ?? "");
}

const MOST_FETCHES = 24;

/** Brings what the remote has of these. It refuses all of them for one that it lacks: they are then asked for by halves. */
async function bring(
  ws: Workspace,
  target: Target,
  input: RepositoryInput,
  oids: readonly string[],
  tries: number,
): Promise<void> {
  if (oids.length === 0 || tries === 0) return;
  const words = await fetch(ws, target, input, isShallow(target) ? ["--depth=1"] : [], oids);
  if (words === "" || oids.length === 1) return;
  const half = Math.ceil(oids.length / 2);
  const left = tries - 1;
  await bring(ws, target, input, oids.slice(0, half), Math.ceil(left / 2));
  await bring(ws, target, input, oids.slice(half), Math.floor(left / 2));
}

/** Makes sure that these commits are here: the clone may be shallow, or older than the checkpoint. */
async function needCommits(
  ws: Workspace,
  target: Target,
  input: RepositoryInput,
  oids: readonly string[],
): Promise<void> {
  const { signal, tree } = input;
  let lacking = await missingOf(target, oids, signal);
  const shallow = isShallow(target);
  const tries = [
    () => fetch(ws, target, input, shallow ? ["--depth=1"] : [], lacking),
    () => fetch(ws, target, input, shallow ? ["--unshallow"] : [], ["+refs/heads/*:refs/remotes/origin/*"]),
  ];
  let words = "";
  for (const attempt of tries) {
    if (lacking.length === 0) return;
    words = (await attempt()) || words;
    lacking = await missingOf(target, oids, signal);
  }
  if (lacking.length === 0) return;
  throw new HangarError(
    "checkpoint_invalid",
    `The checkpoint builds on commit ${lacking[0]?.slice(0, 12)} of ${tree.path === "" ? "the repository" : toText(tree.path)}, which the remote no longer gives${words === "" ? "" : ` (${words.slice(0, 200)})`}`,
  );
}

const scratchLike = (target: Target): { dir: Raw; env: Record<string, string> } => ({
  dir: target.dirs.commonDir,
  env: target.env,
});

// ---- refs and HEAD -------------------------------------------------------------------------------------------------

type RefsNow = ReadonlyMap<Raw, { readonly oid: string; readonly symref: Raw }>;

/** What the target has of the refs that are a checkpoint's to say. */
async function listRefs(target: Target, { tree, signal }: RepositoryInput): Promise<RefsNow> {
  const options = { env: target.env, cwd: target.dirs.commonDir, signal };
  const output = await git([...OFF, "for-each-ref", "--format=%(objectname) %(refname)%00%(symref)"], options);
  const now = new Map<Raw, { oid: string; symref: Raw }>();
  for (const line of rawOf(output).split("\n")) {
    const space = line.indexOf(" ");
    const nul = line.indexOf("\0");
    if (space < 0 || nul < 0) continue;
    const name = line.slice(space + 1, nul);
    const isOwn = /^refs\/(?:bisect|worktree|rewritten)\//.test(name);
    if (tree.kind === "linked" ? !isOwn : name.startsWith("refs/hangar/")) continue;
    if (tree.kind === "main" && name.startsWith("refs/remotes/")) continue;
    now.set(name, { oid: line.slice(0, space), symref: line.slice(nul + 1) });
  }
  return now;
}

async function setRefs(
  target: Target,
  input: RepositoryInput,
  now: RefsNow,
  found: ReadonlySet<string>,
): Promise<void> {
  const { tree, signal, warnings } = input;
  const options = { env: target.env, cwd: target.dirs.commonDir, signal };
  const wanted = new Map(tree.refs);
  for (const [name, oid] of wanted) {
    if (found.has(oid)) continue;
    wanted.delete(name);
    warnings.add(`${toText(name)} is not put back: the remote no longer has ${oid.slice(0, 12)}`);
  }
  const symrefs = new Map(tree.symrefs);
  const gone = [...now].filter(([name, { symref }]) => !wanted.has(name) && symrefs.get(name) !== symref);
  // Away from a branch that is about to go, so that no reflog line or check of HEAD stands in the way.
  writeFileSync(fsPath(`${target.dirs.gitDir}/HEAD`), "ref: refs/heads/hangar-restoring\n");
  await updateRefs(
    gone.map(([name, { symref }]) => (symref === "" ? `delete ${name}\0\0` : `option no-deref\0delete ${name}\0\0`)),
    options,
  );
  const pins =
    tree.kind === "linked"
      ? undefined
      : input.bundles.map((path) => pinsOf(readBundleHeader(path))).findLast((oid) => oid !== undefined);
  if (pins !== undefined) wanted.set(PINS_REF, pins);
  await updateRefs(
    [...wanted].filter(([name, oid]) => now.get(name)?.oid !== oid).map(([name, oid]) => `update ${name}\0${oid}\0\0`),
    options,
  );
  for (const [name, symref] of symrefs)
    if (now.get(name)?.symref !== symref)
      await git([...OFF, "symbolic-ref", stringPath(name), stringPath(symref)], options);
}

const pinsOf = (bundle: Bundle): string | undefined => bundle.heads.find(([name]) => name === PINS_REF)?.[1];

async function updateRefs(
  commands: readonly Raw[],
  options: { env: Record<string, string>; cwd: Raw; signal?: AbortSignal | undefined },
): Promise<void> {
  if (commands.length === 0) return;
  await git(
    [
      ...OFF,
      "-c",
      "user.name=Hangar",
      "-c",
      "user.email=hangar@localhost",
      // Each of thousands would wait for the disk; what a crash leaves half restored is restored again.
      "-c",
      "core.fsync=none",
      "update-ref",
      "-m",
      "hangar: restore",
      "--stdin",
      "-z",
    ],
    {
      ...options,
      input: bytesOf(commands.join("")),
    },
  );
}

async function setHead(target: Target, signal?: AbortSignal): Promise<void> {
  const { tree, dirs } = target;
  const text = tree.branch === null ? `${tree.head}\n` : `ref: ${tree.branch}\n`;
  writeFileSync(fsPath(`${dirs.gitDir}/HEAD`), bytesOf(text));
  signal?.throwIfAborted();
}

// ---- configuration -------------------------------------------------------------------------------------------------

const SCOPES = ["local", "worktree"] as const;
type Scope = (typeof SCOPES)[number];

const configFile = ({ dirs }: Target, scope: Scope): Raw =>
  scope === "local" ? `${dirs.commonDir}/config` : `${dirs.gitDir}/config.worktree`;

/** What the target's files of configuration say. */
async function listConfig(
  ws: Workspace,
  target: Target,
  { tree, signal }: RepositoryInput,
): Promise<Record<Scope, ConfigEntry[]>> {
  const lists: Record<Scope, ConfigEntry[]> = { local: [], worktree: [] };
  for (const scope of SCOPES) {
    const path = configFile(target, scope);
    if ((scope === "local" && tree.kind === "linked") || !existsSync(fsPath(path))) continue;
    const args = ["config", "--file", stringPath(path), "--no-includes", "--list", "-z"];
    lists[scope] = parseConfigList(await git(args, { env: fixedEnv(ws.home), cwd: "/", signal }));
  }
  return lists;
}

function setConfig(target: Target, input: RepositoryInput, lists: Record<Scope, ConfigEntry[]>): void {
  const { tree } = target;
  for (const scope of SCOPES) {
    if (scope === "local" && tree.kind === "linked") continue;
    const path = configFile(target, scope);
    const list = lists[scope];
    const wanted = tree.config.filter(([of]) => of === scope).map(([, key, value]): ConfigEntry => [key, value]);
    const { allowed, refused } = sortConfig(wanted);
    if (refused.length > 0)
      throw new HangarError(
        "checkpoint_invalid",
        `The checkpoint is forged: it sets ${refused.map(toText).join(", ")}`,
      );
    const carries = new Set(allowed.map(([key]) => key));
    // The clone decides where it came from; what else it was given goes.
    const kept = list.filter(([key, value]) => {
      if (tree.kind === "main" && key.startsWith("remote.origin.")) return true;
      return sortConfig([[key, value]]).allowed.length === 0 && !carries.has(key);
    });
    const added =
      tree.kind === "main" ? allowed.filter(([key]) => !key.startsWith("remote.origin.") || !hasOrigin(list)) : allowed;
    if (tree.kind === "main" && scope === "local") warnOfOrigin(list, allowed, input.warnings);
    const text = writeConfig([...kept, ...added]);
    if (kept.length + added.length === 0) rmSync(fsPath(path), { force: true });
    else writeFileSync(fsPath(path), text);
  }
}

const hasOrigin = (list: readonly ConfigEntry[]): boolean => list.some(([key]) => key === "remote.origin.url");

function warnOfOrigin(now: readonly ConfigEntry[], then: readonly ConfigEntry[], warnings: Set<string>): void {
  const of = (list: readonly ConfigEntry[]): Raw | null | undefined =>
    list.find(([key]) => key === "remote.origin.url")?.[1];
  const a = of(now);
  const b = of(then);
  if (a && b && a !== b) warnings.add(`the remote origin was ${toText(b)}; the clone's own, ${toText(a)}, stays`);
}

// ---- git's own files -----------------------------------------------------------------------------------------------

function setGitFiles(target: Target): void {
  const { tree, dirs } = target;
  removeGitFiles(dirs.gitDir, dirs.commonDir);
  for (const [name, bytes] of tree.gitFiles) if (name !== "shallow") writeGitFile(dirs.gitDir, name, bytes);
}

function writeGitFile(gitDir: Raw, name: Raw, bytes: Buffer | null): void {
  const path = `${gitDir}/${name}`;
  if (bytes === null) {
    rmSync(fsPath(path), { force: true });
    return;
  }
  mkdirSync(fsPath(parentRaw(path)), { recursive: true });
  if (lstatRaw(path)?.isSymbolicLink()) unlinkSync(fsPath(path));
  writeFileSync(fsPath(path), bytes);
}
