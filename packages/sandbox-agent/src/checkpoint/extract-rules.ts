/** Which members an archive of a checkpoint may hold, and which of them are taken: as data, so that any thread can obey. */
import { HangarError } from "@hangar/shared";
import { encodePath } from "./path-text.ts";
import { type Raw, rawOf } from "./raw.ts";
import type { Root } from "./state.ts";
import type { ExtractOptions } from "./tar-extract.ts";

export type ExtractRule =
  | {
      readonly of: "files";
      readonly root: Root;
      /** Bytes that the members may hold in all. */
      readonly bytes: number;
      /** Made void by later parts. */
      readonly removed: ReadonlySet<Raw>;
      /** Working trees below this root; of those that are not put back, nothing is taken. */
      readonly trees: readonly { readonly path: Raw; readonly wanted: boolean }[];
    }
  | {
      readonly of: "conversations";
      /** By a file's path as it is in JSON: offsets and sizes of the segments that count. What a later part made void is skipped. */
      readonly live: ReadonlyMap<string, ReadonlyMap<number, number>>;
    };

type Rules = Required<Pick<ExtractOptions, "check" | "want">> & {
  /** Of all members so far. */
  readonly bytes: () => number;
};

export function rulesOf(rule: ExtractRule): Rules {
  let bytes = 0;
  const count = (size: number): number => (bytes += size);
  if (rule.of === "conversations") {
    return {
      check: ({ size }) => void count(size),
      want: (entry) => {
        const size = rule.live.get(encodePath(entry.path))?.get(entry.segment ?? 0);
        if (size !== undefined && size !== entry.size) throw forged("a conversation holds more or less than it says");
        return size !== undefined;
      },
      bytes: () => bytes,
    };
  }
  const { root, removed, trees } = rule;
  const isIn = (path: Raw, tree: { path: Raw }): boolean => path.startsWith(`${tree.path}/`);
  return {
    check: (entry) => {
      if (count(entry.size) > rule.bytes) throw forged("an archive holds more than it says");
      const path = rawOf(entry.path);
      if (path.split("/").some((piece) => piece.toLowerCase() === ".git"))
        throw forged("an archive writes into a git folder");
      if (root !== "repo" && !trees.some((tree) => isIn(path, tree)))
        throw forged("an archive writes beside the workspace");
    },
    want: (entry) => {
      const path = rawOf(entry.path);
      return !removed.has(path) && (root === "repo" || trees.some((tree) => tree.wanted && isIn(path, tree)));
    },
    bytes: () => bytes,
  };
}

const forged = (why: string): HangarError => new HangarError("checkpoint_invalid", `The checkpoint is forged: ${why}`);
