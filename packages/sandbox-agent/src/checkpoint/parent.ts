/** What a committed checkpoint leaves for the next one: what its parts hold, so that only what is new is made. */
import { z } from "zod";
import { ObjectId, Sha256 } from "@hangar/shared";
import { encodeMeta, Meta } from "./meta.ts";
import { fromText, type Raw, toText } from "./raw.ts";
import { CHANNELS, type Channel, type Files } from "./state.ts";

export interface ParentState {
  readonly meta: Meta;
  readonly channels: Readonly<Record<Channel, HeldChannel>>;
  /** By `bundleKey` of a repository. */
  readonly bundles: ReadonlyMap<string, HeldBundles>;
  /** Digests of the plaintext of parts that are made whole each time, by their kind. */
  readonly whole: Readonly<Record<string, { readonly part: string; readonly sha256: string }>>;
}

export interface HeldChannel {
  /** Names of parts, oldest first. */
  readonly parts: readonly string[];
  /** What is there once they are unpacked, files that are no more included. */
  readonly held: Files;
  /** Bytes of content in all members, also of those that a later one replaced. */
  readonly written: number;
}
export interface HeldBundles {
  readonly parts: readonly string[];
  /** Everything that these objects reach is held, or is the remote's. */
  readonly tips: readonly string[];
  readonly prerequisites: readonly string[];
}

export const noChannel = (): HeldChannel => ({ parts: [], held: new Map(), written: 0 });

const VERSION = 1;
const Stored = z.strictObject({
  version: z.literal(VERSION),
  meta: Meta,
  channels: z.array(
    z.strictObject({
      name: z.enum(CHANNELS),
      parts: z.array(z.string()),
      held: z.array(
        z.tuple([z.string(), z.enum(["file", "symlink"]), z.number(), z.number(), Sha256, z.string().nullable()]),
      ),
      written: z.number(),
    }),
  ),
  bundles: z.array(
    z.strictObject({
      key: z.string(),
      parts: z.array(z.string()),
      tips: z.array(ObjectId),
      prerequisites: z.array(ObjectId),
    }),
  ),
  whole: z.record(z.string(), z.strictObject({ part: z.string(), sha256: Sha256 })),
});

/** For a file of the caller's: it holds no content, but names. */
export function serializeParent(parent: ParentState): Uint8Array {
  const stored: z.input<typeof Stored> = {
    version: VERSION,
    meta: encodeMeta(parent.meta),
    channels: CHANNELS.map((name) => {
      const { parts, held, written } = parent.channels[name];
      return {
        name,
        parts: [...parts],
        held: [...held].map(([path, f]) => [
          toText(path),
          f.kind,
          f.mode,
          f.size,
          f.sha256,
          f.link === undefined ? null : toText(f.link),
        ]),
        written,
      };
    }),
    bundles: [...parent.bundles].map(([key, b]) => ({
      key: toText(key),
      parts: [...b.parts],
      tips: [...b.tips],
      prerequisites: [...b.prerequisites],
    })),
    whole: { ...parent.whole },
  };
  return Buffer.from(JSON.stringify(stored));
}

/** None: of another version, or damaged; the next checkpoint is then made whole. */
export function parseParent(bytes: Uint8Array): ParentState | null {
  let json: unknown;
  try {
    json = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    return null;
  }
  const parsed = Stored.safeParse(json);
  if (!parsed.success) return null;
  const { meta, channels, bundles, whole } = parsed.data;
  const result = Object.fromEntries(CHANNELS.map((name) => [name, noChannel()])) as Record<Channel, HeldChannel>;
  for (const { name, parts, held, written } of channels) {
    const files: Files = new Map();
    for (const [path, kind, mode, size, sha256, link] of held)
      files.set(fromText(path), { kind, mode, size, sha256, ...(link !== null && { link: fromText(link) }) });
    result[name] = { parts, held: files, written };
  }
  return {
    meta,
    channels: result,
    bundles: new Map(bundles.map((b): [Raw, HeldBundles] => [fromText(b.key), b])),
    whole,
  };
}
