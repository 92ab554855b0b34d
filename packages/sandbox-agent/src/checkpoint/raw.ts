/**
 * File names are bytes. In here a name is a `Raw`: a string with one character per byte (Latin-1), so that it sorts, joins and
 * keys a Map as bytes do. Text for JSON and for people is made at the edges.
 */
import { lstatSync, type Stats } from "node:fs";

export type Raw = string;

export const rawOf = (bytes: Buffer): Raw => bytes.toString("latin1");
/** From a JavaScript string such as a configured path. */
export const rawFrom = (text: string): Raw => (isAscii(text) ? text : Buffer.from(text, "utf8").toString("latin1"));
export const bytesOf = (raw: Raw): Buffer => Buffer.from(raw, "latin1");

/** What node:fs takes. A plain string is the faster way. */
export const fsPath = (raw: Raw): string | Buffer => (isAscii(raw) ? raw : Buffer.from(raw, "latin1"));
/** For places that take strings only (cwd, environment): exact for UTF-8 names. */
export const stringPath = (raw: Raw): string => (isAscii(raw) ? raw : Buffer.from(raw, "latin1").toString("utf8"));

export const joinRaw = (folder: Raw, name: Raw): Raw => (folder === "" ? name : `${folder}/${name}`);
export const parentRaw = (path: Raw): Raw => path.slice(0, Math.max(0, path.lastIndexOf("/")));
export const byBytes = (a: Raw, b: Raw): number => (a < b ? -1 : a > b ? 1 : 0);

const HEX = "hex:";
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The name as text; `hex:` and digits where it is not UTF-8 or would be taken for that. Reversible. */
export function toText(raw: Raw): string {
  if (isAscii(raw)) return raw.startsWith(HEX) ? HEX + bytesOf(raw).toString("hex") : raw;
  try {
    return strict.decode(bytesOf(raw));
  } catch {
    return HEX + bytesOf(raw).toString("hex");
  }
}

export function fromText(text: string): Raw {
  if (text.startsWith(HEX) && /^(?:[0-9a-f]{2})*$/.test(text.slice(HEX.length)))
    return Buffer.from(text.slice(HEX.length), "hex").toString("latin1");
  return rawFrom(text);
}

/** Pieces between NULs, as `-z` prints them; the last is ended by a NUL too. */
export function splitZ(output: Buffer): Raw[] {
  if (output.length === 0) return [];
  const pieces = output.toString("latin1").split("\0");
  if (pieces.at(-1) === "") pieces.pop();
  return pieces;
}

// oxlint-disable-next-line no-control-regex -- ASCII is meant
const isAscii = (text: string): boolean => /^[\x00-\x7f]*$/.test(text);

/** None: nothing is there, or something above it is no folder. */
export function lstatRaw(path: Raw): Stats | undefined {
  try {
    return lstatSync(fsPath(path), { throwIfNoEntry: false });
  } catch (error) {
    if (["ENOTDIR", "ENOENT", "ELOOP", "ENAMETOOLONG"].includes((error as NodeJS.ErrnoException).code ?? ""))
      return undefined;
    throw error;
  }
}
