/** Whether the refs of a repository are those of an earlier look, by the files that git keeps them in. */
import { type BigIntStats, lstatSync, readdirSync } from "node:fs";
import type { GitDirs } from "./git.ts";
import { fsPath, type Raw } from "./raw.ts";

const MOST = 2000;
/** The clock of files is coarse: what changed this shortly ago may change again under the same stamp. */
const RACY_NS = 100_000_000n;

/** None: no stamp can tell (another ref store, too many loose refs, links, or a change just now). */
export function refsStamp(dirs: GitDirs): string | null {
  const stamps: string[] = [];
  const now = BigInt(Date.now()) * 1_000_000n;
  const add = (path: Raw, stat: BigIntStats): boolean => {
    stamps.push(`${path} ${stat.ino} ${stat.size} ${stat.mtimeNs} ${stat.ctimeNs}`);
    return stamps.length <= MOST && now - stat.ctimeNs > RACY_NS;
  };
  const walk = (path: Raw): boolean => {
    const stat = statOf(path);
    if (stat === undefined) return true;
    if (!add(path, stat)) return false;
    if (stat.isFile()) return true;
    if (!stat.isDirectory()) return false;
    return readdirSync(fsPath(path), { encoding: "latin1" }).every((name) => walk(`${path}/${name}`));
  };
  if (statOf(`${dirs.commonDir}/reftable`) !== undefined) return null;
  const places = new Set([dirs.commonDir, dirs.gitDir]);
  for (const place of places) if (!walk(`${place}/refs`)) return null;
  return walk(`${dirs.commonDir}/packed-refs`) ? stamps.join("\n") : null;
}

const statOf = (path: Raw): BigIntStats | undefined => lstatSync(fsPath(path), { bigint: true, throwIfNoEntry: false });
