/**
 * The vault port: the operator's age identity, the sessions' own ones, secrets, and the MAC and signing keys.
 * Implemented in this folder over a key file (0600) and the store. Nothing here is ever logged.
 */
export interface Vault {
  /** The vault's public recipient, `age1…`. */
  readonly recipient: string;
  /** Seal a small value to the vault: armoured-free age bytes. */
  seal(plain: Uint8Array): Promise<Uint8Array>;
  /** HangarError `checkpoint_invalid` when it is not sealed to this vault or damaged. */
  open(sealed: Uint8Array): Promise<Uint8Array>;
  /** A fresh age identity pair for a session. */
  newIdentity(): Promise<{ identity: string; recipient: string }>;
  /** HMAC-SHA256 with a key derived from the vault's for that purpose; hex. */
  mac(purpose: "marker" | "agent-token" | "url", data: string): string;
  /** Constant-time check of `mac`. */
  verify(purpose: "marker" | "agent-token" | "url", data: string, mac: string): boolean;
}
