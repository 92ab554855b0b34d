/** One digest over all of a workspace that a checkpoint keeps, and the facts it is made of, to say what differs. */
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { captureConversations, conversationDigest, type ConversationRecord } from "./conversation.ts";
import { sha256 } from "./digest.ts";
import { byBytes, type Raw, toText } from "./raw.ts";
import { memoryOf, scanWorkspace } from "./scan.ts";
import { CHANNELS, type TreeState, type WorkspaceState } from "./state.ts";
import type { Workspace } from "./types.ts";

/**
 * What is there now, untracked files of any size included.
 * @param parent conversations as an earlier checkpoint recorded them: makes the look at them cheap, and two looks comparable.
 */
export async function fingerprintWorkspace(
  ws: Workspace,
  options: { parent?: ConversationRecord | null; signal?: AbortSignal } = {},
): Promise<string> {
  const memory = memoryOf(ws);
  const scan = await scanWorkspace(ws, memory, Number.POSITIVE_INFINITY, options.signal);
  const { record } = await lookAtConversations(ws, options.parent ?? null, "edges", options.signal);
  return fingerprintOf({ trees: scan.trees, files: scan.files, conversations: conversationDigest(record) });
}

/** A capture whose bytes are not written anywhere. */
export async function lookAtConversations(
  ws: Workspace,
  parent: ConversationRecord | null,
  prefix: "edges" | "full",
  signal?: AbortSignal,
): Promise<{ record: ConversationRecord; changed: boolean; warnings: string[] }> {
  mkdirSync(ws.scratch, { recursive: true });
  const scratch = mkdtempSync(join(ws.scratch, "look-"));
  try {
    return await captureConversations(ws.home, {
      parent,
      part: "look",
      scratch,
      prefix,
      roots: ws.conversationRoots,
      ...(signal && { signal }),
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

export const fingerprintOf = (state: WorkspaceState): string => {
  const facts = factsOf(state);
  const hash = createHash("sha256");
  for (const key of [...facts.keys()].sort(byBytes)) hash.update(`${key.length} ${key} ${facts.get(key)}\n`, "latin1");
  return hash.digest("hex");
};

/** Facts of `expected` that `found` does not have in the same way, and the other way round; for people. */
export function differences(expected: WorkspaceState, found: WorkspaceState): string[] {
  const a = factsOf(expected);
  const b = factsOf(found);
  const differs: string[] = [];
  for (const [key, value] of a) {
    const there = b.get(key);
    if (there === undefined) differs.push(`${toText(key)}: missing`);
    else if (there !== value) differs.push(`${toText(key)}: differs`);
  }
  for (const key of b.keys()) if (!a.has(key)) differs.push(`${toText(key)}: not in the checkpoint`);
  return differs.sort();
}

/** Keys name a thing as people would; values are what must be equal. */
function factsOf(state: WorkspaceState): Map<Raw, string> {
  const facts = new Map<Raw, string>();
  for (const tree of state.trees) treeFacts(facts, tree);
  for (const channel of CHANNELS)
    for (const [path, file] of state.files[channel])
      facts.set(
        `file ${channel === "untracked" ? "worktree" : channel} ${path}`,
        `${file.kind} ${file.mode} ${file.size} ${file.sha256}`,
      );
  facts.set("conversations", state.conversations);
  return facts;
}

function treeFacts(facts: Map<Raw, string>, tree: TreeState): void {
  const place = tree.root === "repo" ? tree.path : `${tree.root} ${tree.path}`;
  const of = (what: Raw): Raw => (place === "" ? what : `${place}: ${what}`);
  const put = (what: Raw, value: unknown): void =>
    void facts.set(of(what), typeof value === "string" ? value : JSON.stringify(value));
  put("tree", [tree.kind, tree.id, tree.gitDir, tree.objectFormat, tree.missing]);
  put("HEAD", [tree.branch, tree.head]);
  for (const [name, oid] of tree.refs) if (!name.startsWith("refs/remotes/")) put(`ref ${name}`, oid);
  for (const [name, target] of tree.symrefs) put(`ref ${name}`, target);
  const byPath = new Map<Raw, string>();
  for (const e of tree.index.entries)
    byPath.set(e.path, `${byPath.get(e.path) ?? ""}${e.stage} ${e.mode} ${e.oid} ${e.intentToAdd};`);
  for (const [path, value] of byPath) put(`index ${path}`, value);
  for (const path of tree.index.removed) put(`index ${path}`, "removed");
  put("index flags", [tree.index.count, tree.index.assumeUnchanged, tree.index.skipWorktree]);
  for (const path of tree.deleted) put(`deleted ${path}`, "deleted");
  for (const [path, mode] of tree.modes) put(`permissions ${path}`, String(mode));
  put("permissions", tree.usualModes);
  for (const [path, size] of tree.filtered) put(`filtered ${path}`, String(size));
  for (const [name, bytes] of tree.gitFiles) if (name !== "shallow") put(`.git/${name}`, sha256(bytes));
  const config = tree.config.filter(
    ([, key]) => !/^(?:remote\.origin\.|core\.(?:filemode|symlinks|ignorecase|precomposeunicode)$)/.test(key),
  );
  for (const [scope, key, value] of config) {
    const name = `config ${scope} ${key}`;
    facts.set(of(name), `${facts.get(of(name)) ?? ""}${value}\0`);
  }
}
