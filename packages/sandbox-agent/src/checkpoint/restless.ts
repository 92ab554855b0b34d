/** A workspace that never holds still can be kept all the same: by copies that do. */
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sha256, Vanished } from "./digest.ts";
import { fsPath, lstatRaw, type Raw, rawFrom } from "./raw.ts";
import type { Scan } from "./scan.ts";
import { type Channel, CHANNELS, channelsOf } from "./state.ts";

/** What changed as shortly before as this does not hold still either (ms). */
const RECENT = 60_000;

/** Files that change while they are copied: what they are is decided by a copy. */
export class Restless {
  /** Absolute. */
  readonly seen = new Set<Raw>();
  /** Absolute path → copy. */
  readonly copies = new Map<Raw, Raw>();
  readonly #scratch: string;
  #copied = 0;
  constructor(scratch: string) {
    this.#scratch = scratch;
  }

  /** What never holds still is copied first, and the copy is what the checkpoint says and holds. */
  copy(scan: Scan): void {
    this.copies.clear();
    for (const channel of CHANNELS)
      for (const [path, file] of scan.files[channel]) {
        const abs = `${rootOf(scan, channel)}/${path}`;
        if (file.kind === "symlink") continue;
        const now = lstatRaw(abs);
        const recent = (now?.ctimeMs ?? 0) > Date.now() - RECENT;
        if (now && !recent && !this.seen.has(abs)) continue;
        const copy = rawFrom(join(this.#scratch, `copy-${this.#copied++}`));
        try {
          if (!now?.isFile()) throw new Vanished(abs);
          copyFileSync(fsPath(abs), fsPath(copy));
        } catch (error) {
          if (!(error instanceof Vanished) && (error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
          drop(scan, channel, path);
          continue;
        }
        const bytes = readFileSync(fsPath(copy));
        scan.files[channel].set(path, { ...file, size: bytes.length, sha256: sha256(bytes) });
        this.copies.set(abs, copy);
      }
  }
}

/** A file that went away since the look: it is not there, and where it was tracked that is what its tree says. */
function drop(scan: Scan, channel: Channel, path: Raw): void {
  scan.files[channel].delete(path);
  const holders = scan.trees.filter(
    (tree) => channelsOf(tree.root).tracked === channel && (tree.path === "" || path.startsWith(`${tree.path}/`)),
  );
  const tree = holders.sort((a, b) => b.path.length - a.path.length)[0];
  const own = scan.scans[tree ? scan.trees.indexOf(tree) : -1];
  if (!tree || !own) return;
  const inside = tree.path === "" ? path : path.slice(tree.path.length + 1);
  if (own.entries.some((entry) => entry.path === inside && !entry.skipWorktree)) (tree.deleted as Raw[]).push(inside);
}

export function rootOf(scan: Pick<Scan, "roots">, channel: Channel): Raw {
  if (channel === "worktree.parent") return scan.roots.parent;
  if (channel === "worktree.home") return scan.roots.home;
  return scan.roots.repo;
}
