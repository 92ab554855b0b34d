/** Which objects of each repository have to travel: what its refs, index, stash and operations reach and its remote lacks. */
import { HangarError } from "@hangar/shared";
import { type Found, HEAD_REF, lookUp, pinCommit, PINS_REF, planBundle, type BundlePlan } from "./bundle.ts";
import { namesObjects } from "./git-files.ts";
import { OFF, tryGit, userEnv } from "./git.ts";
import type { HeldBundles } from "./parent.ts";
import { type Raw, rawOf, stringPath } from "./raw.ts";
import type { Scan } from "./scan.ts";
import type { TreeScan } from "./scan-tree.ts";
import type { TreeState } from "./state.ts";
import type { Workspace } from "./types.ts";

export interface ObjectsPlan {
  /** By place of the repository's tree. */
  readonly tree: number;
  readonly key: Raw;
  /** None: nothing new. */
  readonly plan: BundlePlan | null;
  /** Parts of the parent that stay in use. */
  readonly keep: readonly string[];
  /** What is held once the new bundle is there. */
  readonly tips: readonly string[];
  readonly prerequisites: readonly string[];
}

/**
 * Names a repository across checkpoints, together with where its history is cut off: what a tip reached before it was deepened
 * is less than what it reaches now, so nothing counts as held then.
 */
export function bundleKey({ root, path, gitFiles }: Pick<TreeState, "root" | "path" | "gitFiles">): Raw {
  const cut = rawOf(gitFiles.get("shallow") ?? Buffer.alloc(0)).split("\n");
  return [root, path, ...cut.filter((line) => line !== "").sort()].join(" ");
}

const MOST_BUNDLES = 16;

/** What the remote says of itself now: null where it does not answer. */
export interface RemoteTips {
  /** The default branch's commit. */
  readonly head: string | null;
  readonly branches: ReadonlyMap<Raw, string>;
  readonly tags: ReadonlyMap<Raw, string>;
}

export async function planObjects(
  ws: Workspace,
  scan: Scan,
  held: ReadonlyMap<string, HeldBundles>,
  remote: () => Promise<RemoteTips | null>,
  signal?: AbortSignal,
): Promise<ObjectsPlan[]> {
  const plans: ObjectsPlan[] = [];
  for (const [n, tree] of scan.trees.entries()) {
    const own = scan.scans[n];
    if (tree.kind === "linked" || !own) continue;
    plans.push(await planRepository(ws, scan, n, own, held.get(bundleKey(tree)), remote, signal));
  }
  return plans;
}

async function planRepository(
  ws: Workspace,
  scan: Scan,
  n: number,
  own: TreeScan,
  held: HeldBundles | undefined,
  remote: () => Promise<RemoteTips | null>,
  signal?: AbortSignal,
): Promise<ObjectsPlan> {
  const tree = scan.trees[n] as TreeState;
  const tips = await tipsOf(scan, n, own, signal);
  const key = bundleKey(tree);
  const all = tips.map(([, oid]) => oid);
  const heldTips = new Set(held?.tips ?? []);
  const nothing = all.every((oid) => heldTips.has(oid));
  if (all.length === 0) return { tree: n, key, plan: null, keep: [], tips: [], prerequisites: [] };
  if (held && nothing)
    return { tree: n, key, plan: null, keep: held.parts, tips: held.tips, prerequisites: held.prerequisites };
  const have = tree.kind === "main" ? haveOfRemote(ws, own, await remote()) : [];
  const goesOn = held && held.parts.length < MOST_BUNDLES && (await isOf(held, tree, own, signal));
  const chain = goesOn ? held : undefined;
  const plan = await planBundle(own.scratch, tips, [...have, ...(chain?.tips ?? [])], signal);
  const keep = chain?.parts ?? [];
  const before = new Set(chain?.tips ?? []);
  const prerequisites = (plan?.prerequisites ?? []).filter((oid) => !before.has(oid));
  return {
    tree: n,
    key,
    plan,
    keep,
    tips: [...new Set([...before, ...all])],
    prerequisites: [...new Set([...(chain?.prerequisites ?? []), ...prerequisites])],
  };
}

/** False: another repository lies there now, which lacks what these bundles build on. */
async function isOf(held: HeldBundles, tree: TreeState, own: TreeScan, signal?: AbortSignal): Promise<boolean> {
  const length = tree.objectFormat === "sha1" ? 40 : 64;
  if (held.tips.some((oid) => oid.length !== length)) return false;
  const here = await lookUp(own.scratch, held.prerequisites, signal);
  return held.prerequisites.every((oid) => here.has(oid));
}

/** Every ref, HEAD first, and one commit that reaches the rest. */
async function tipsOf(scan: Scan, n: number, own: TreeScan, signal?: AbortSignal): Promise<[Raw, string][]> {
  const tree = scan.trees[n] as TreeState;
  const tips: [Raw, string][] = [];
  if (tree.head !== null) tips.push([HEAD_REF, tree.head]);
  for (const [name, oid] of tree.refs) tips.push([name, oid]);
  const names = new Set<string>();
  for (const [i, other] of scan.trees.entries()) {
    if (i !== n && other.owner !== n) continue;
    pinsOf(other, scan.scans[i] ?? null, names);
  }
  for (const [, oid] of tips) names.delete(oid);
  if (names.size > 0) {
    const found = await lookUp(own.scratch, [...names], signal);
    const lost = [...names].filter((name) => !found.has(name) && isIndexBlob(scan, n, name));
    if (lost.length > 0 && !own.partial)
      throw new HangarError(
        "checkpoint_failed",
        `The index names ${lost[0]}, which the repository lacks: run git fsck`,
      );
    const pins = pinCommit(own.scratch, tree.objectFormat, [...found.values()].filter(pinned(tips)));
    if (pins !== null) tips.push([PINS_REF, pins]);
  }
  return tips;
}

const pinned =
  (tips: readonly (readonly [Raw, string])[]) =>
  (found: Found): boolean =>
    found.type !== "tag" && !tips.some(([, oid]) => oid === found.oid);

function isIndexBlob(scan: Scan, n: number, name: string): boolean {
  return scan.trees.some(
    (tree, i) => (i === n || tree.owner === n) && tree.index.entries.some((entry) => entry.oid === name),
  );
}

const OID = /\b[0-9a-f]{7,64}\b/g;
const GITLINK = 0o160000;
const MOST_NAMES = 20_000;

/** Names of objects that only this working tree's index, HEAD, stash or operation holds. */
function pinsOf(tree: TreeState, scan: TreeScan | null, names: Set<string>): void {
  if (tree.kind === "linked") {
    if (tree.head !== null) names.add(tree.head);
    for (const [, oid] of tree.refs) names.add(oid);
  }
  const inHead = new Set((scan?.changes ?? []).map((change) => change.headOid));
  for (const entry of tree.index.entries)
    if (entry.mode !== GITLINK && !entry.intentToAdd && !inHead.has(entry.oid)) names.add(entry.oid);
  for (const [file, bytes] of tree.gitFiles) {
    if (!namesObjects(file) && file !== "logs/refs/stash") continue;
    if (bytes.length > 4 * 1024 * 1024) continue;
    const text = rawOf(bytes);
    if (file === "logs/refs/stash") {
      // Old and new id of each entry; the old one of the first is all zeros.
      for (const line of text.split("\n")) {
        const oid = line.split(" ")[1];
        if (oid) names.add(oid);
      }
      continue;
    }
    for (const match of text.matchAll(OID)) if (names.size < MOST_NAMES && !/^0+$/.test(match[0])) names.add(match[0]);
  }
}

// Branches that outlive a piece of work, by the names that people give them. Others may be gone before a restore.
const LONG_LIVED = /^(?:main|master|trunk|develop|development|dev|next|staging|stable|production)$/;

/** What a fresh clone will have for certain: the default branch, long-lived ones, and tags. */
function haveOfRemote(ws: Workspace, own: TreeScan, remote: RemoteTips | null): string[] {
  const have = new Set<string>();
  const tracking = (name: Raw): string | undefined => own.remoteRefs.get(`refs/remotes/origin/${name}`);
  const names = new Set<Raw>();
  if (ws.baseBranch) names.add(ws.baseBranch);
  const known = remote
    ? remote.branches.keys()
    : [...own.remoteRefs.keys()].map((ref) => ref.replace(/^refs\/remotes\/origin\//, ""));
  for (const name of known) if (LONG_LIVED.test(name)) names.add(name);
  if (!remote) {
    if (own.remoteHead !== null) have.add(own.remoteRefs.get(own.remoteHead) ?? "");
    for (const name of names) have.add(tracking(name) ?? "");
  } else {
    if (remote.head !== null) {
      have.add(remote.head);
      // It moved on: what was fetched of it is taken to be in its history.
      for (const [name, oid] of remote.branches) if (oid === remote.head) have.add(tracking(name) ?? "");
    }
    for (const name of names) {
      const oid = remote.branches.get(name);
      if (oid === undefined) continue;
      have.add(oid);
      have.add(tracking(name) ?? "");
    }
    for (const oid of remote.tags.values()) have.add(oid);
  }
  have.delete("");
  return [...have];
}

/** Asks the remote; none: there is none, or it does not answer in time. */
export async function askRemote(ws: Workspace, own: TreeScan, signal?: AbortSignal): Promise<RemoteTips | null> {
  if (own.remoteUrl === null) return { head: null, branches: new Map(), tags: new Map() };
  const result = await tryGit([...OFF, "ls-remote", "--quiet", "origin", "HEAD", "refs/heads/*", "refs/tags/*"], {
    env: { ...userEnv(ws.home, ws.networkEnv), GIT_DIR: stringPath(own.dirs.gitDir) },
    cwd: own.dirs.worktree,
    signal,
    timeout: 15_000,
  }).catch(() => null);
  if (!result || result.code !== 0) return null;
  let head: string | null = null;
  const branches = new Map<Raw, string>();
  const tags = new Map<Raw, string>();
  for (const line of rawOf(result.stdout).split("\n")) {
    const [oid = "", name = ""] = line.split("\t");
    if (name === "HEAD") head = oid;
    else if (name.startsWith("refs/heads/")) branches.set(name.slice(11), oid);
    else if (name.startsWith("refs/tags/") && !name.endsWith("^{}")) tags.set(name, oid);
  }
  return { head, branches, tags };
}
