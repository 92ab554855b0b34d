/** What a committed checkpoint leaves for the next one. */
import type { Meta } from "./meta.ts";

export interface ParentState {
  readonly meta: Meta;
}
export const serializeParent = (parent: ParentState): Uint8Array => Buffer.from(JSON.stringify(parent));
export const parseParent = (bytes: Uint8Array): ParentState | null =>
  JSON.parse(Buffer.from(bytes).toString()) as ParentState;
