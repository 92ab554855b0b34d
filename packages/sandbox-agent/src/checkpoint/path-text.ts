/** Names of files in JSON. */

/** A path in JSON: as text where its bytes are UTF-8, else `hex:` and the bytes. */
export function encodePath(path: Buffer): string {
  const text = path.toString("utf8");
  return Buffer.from(text).equals(path) && !text.startsWith("hex:") ? text : `hex:${path.toString("hex")}`;
}

export const decodePath = (text: string): Buffer =>
  text.startsWith("hex:") ? Buffer.from(text.slice(4), "hex") : Buffer.from(text);
