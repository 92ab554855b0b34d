/**
 * The vault port: the operator's age identities, the sessions' own ones, secrets, and the MAC and signing keys.
 * Implemented in this folder over a key file (0600). Nothing here is ever logged.
 */
export interface Vault {
  /** The vault's public recipient, `age1…`. */
  readonly recipient: string;
  /** Older identities are there too: what was sealed before a rotation is not all sealed anew. */
  readonly rotated: boolean;
  /** Seal a small value to the vault: armoured-free age bytes. */
  seal(plain: Uint8Array): Promise<Uint8Array>;
  /** Seal a small value to somebody else, `age1…`. Throws where that is no recipient. */
  sealTo(recipient: string, plain: Uint8Array): Promise<Uint8Array>;
  /** The public half of an identity. Throws where that is none. */
  recipientOf(identity: string): Promise<string>;
  /** HangarError `checkpoint_invalid` when it is not sealed to this vault or damaged. */
  open(sealed: Uint8Array): Promise<Uint8Array>;
  /** The same value sealed to the present identity; none: it is. `checkpoint_invalid` as `open`. */
  reseal(sealed: Uint8Array): Promise<Uint8Array | null>;
  /**
   * Takes the older identities out of use, once nothing is sealed to them any more. They are kept in a file beside.
   * @returns its path; none: there were none.
   */
  retire(now: Date): Promise<string | null>;
  /** Looks whether another process has rotated it. True: it had. */
  refresh(): Promise<boolean>;
  /** A fresh age identity pair for a session. */
  newIdentity(): Promise<{ identity: string; recipient: string }>;
  /** HMAC-SHA256 with a key derived from the present identity for that purpose; hex. */
  mac(purpose: "marker" | "agent-token" | "warm-token" | "url", data: string): string;
  /** Constant-time check of a `mac` by the present identity or an older one. */
  verify(purpose: "marker" | "agent-token" | "warm-token" | "url", data: string, mac: string): boolean;
  /** Whether the present identity made it. Of MACs that `verify` took. */
  isCurrent(purpose: "marker", data: string, mac: string): boolean;
}
