/** The token of a warm sandbox's daemon: `hwt1.<warm id>.<mac>`. It is worth as long as the sandbox is on record. */
import { HangarError } from "@hangar/shared";
import type { Vault } from "../session/ports.ts";

export function warmToken(vault: Vault, id: string): string {
  const said = `hwt1.${id}`;
  return `${said}.${vault.mac("warm-token", said)}`;
}

const TOKEN = /^(hwt1\.(wrm-[0-9a-f]{8}))\.([0-9a-f]{64})$/;

export const isWarmToken = (token: string): boolean => TOKEN.test(token);

/** Whose it is; `unauthorized`. */
export function warmIdOf(vault: Vault, token: string): string {
  const [, said, id, mac] = TOKEN.exec(token) ?? [];
  if (said && id && mac && vault.verify("warm-token", said, mac)) return id;
  throw new HangarError("unauthorized", "That is not a warm sandbox's token");
}
