/**
 * The `git-state` part's files for people: the same state as `state.json`, in the formats that git's plumbing takes on its
 * standard input, so that docs/recover.md needs no program that reads JSON. A restore by Hangar reads none of them.
 */
import type { StateDocument } from "./document.ts";
import { type ConfigEntry, writeConfig } from "./git-config.ts";
import type { Raw } from "./raw.ts";
import { bytesOf } from "./raw.ts";
import { CHANNELS } from "./state.ts";

/** Names in the archive, and their bytes; only what has any. */
export function byHand({ trees, bundles, channels }: StateDocument): Map<Raw, Buffer> {
  const files = new Map<Raw, Buffer>();
  const put = (name: Raw, text: Raw): void => {
    if (text !== "") files.set(`by-hand/${name}`, bytesOf(text));
  };
  for (const channel of CHANNELS) {
    put(`${channel}.parts`, lines(channels[channel].parts));
    put(`${channel}.removed`, listOf(channels[channel].removed));
  }
  for (const [n, tree] of trees.entries()) {
    const entries = tree.index.entries.filter((entry) => !entry.intentToAdd);
    put(`${n}/path`, `${tree.root}\n${tree.path}\n`);
    put(`${n}/bundles`, lines(bundles[n] ?? []));
    put(`${n}/HEAD`, tree.branch === null ? `${tree.head}\n` : `ref: ${tree.branch}\n`);
    put(`${n}/refs`, tree.refs.map(([ref, oid]) => `update ${ref}\0${oid}\0\0`).join(""));
    put(
      `${n}/index`,
      // A path in conflict first leaves the index: its stages would else be put beside its plain entry.
      [
        ...[...tree.index.removed, ...entries.filter(({ stage }) => stage > 0).map(({ path }) => path)].map(
          (path) => `0 ${ZERO[tree.objectFormat]}\t${path}\0`,
        ),
        ...entries.map(({ mode, oid, stage, path }) => `${mode.toString(8)} ${oid} ${stage}\t${path}\0`),
      ].join(""),
    );
    put(`${n}/intent-to-add`, listOf(tree.index.entries.filter((e) => e.intentToAdd).map(({ path }) => path)));
    put(`${n}/deleted`, listOf([...tree.index.removed, ...tree.deleted]));
    const config = tree.config.filter(([scope, key]) => scope === "local" && !key.startsWith("remote.origin."));
    put(`${n}/config`, writeConfig(config.map(([, key, value]): ConfigEntry => [key, value])).toString("latin1"));
  }
  return files;
}

const ZERO = { sha1: "0".repeat(40), sha256: "0".repeat(64) } as const;

const lines = (names: readonly string[]): string => names.map((name) => `${name}\n`).join("");
const listOf = (paths: readonly Raw[]): Raw => paths.map((path) => `${path}\0`).join("");
