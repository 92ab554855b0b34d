/** Which object keys there may be: every store takes the same ones, so that a key can never leave a store's root. */
import { HangarError } from "@hangar/shared";

const KEY = /^[A-Za-z0-9._-]{1,200}(?:\/[A-Za-z0-9._-]{1,200}){0,9}$/;

/** @throws HangarError `invalid_request` */
export function checkKey(key: string): void {
  if (!KEY.test(key) || key.split("/").some((piece) => piece === "." || piece === ".."))
    throw new HangarError("invalid_request", `${JSON.stringify(key.slice(0, 200))} is no key of the checkpoint store`);
}

/** A prefix is a key, or the beginning of one; the empty one is that of all. */
export function checkPrefix(prefix: string): void {
  if (prefix !== "") checkKey(prefix.endsWith("/") ? prefix.slice(0, -1) : prefix);
}
