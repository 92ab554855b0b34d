/**
 * The vault over its key file. Everything else is derived from the identities in it, so this file and the store are all that
 * recovery needs, and all that has to be kept safe. A rotation by another process shows at the next use.
 */
import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { Decrypter, Encrypter, generateX25519Identity, identityToRecipient } from "age-encryption";
import {
  type Key,
  makeKeyFile,
  readIdentities,
  readKeys,
  retiredIdentities,
  retireOldKeys,
  stampOf,
} from "./key-file.ts";
import type { Vault } from "./vault.ts";

/**
 * Opens the vault, making its key first where there is none.
 * @returns `created`: the key is new, and the operator is to be told to back it up.
 * @throws HangarError as `readKeys` does.
 */
export async function openVault(file: string): Promise<{ vault: Vault; created: boolean }> {
  // Another coordinator may have been quicker: then its key counts.
  const created = (await readKeys(file)) === null && (await makeKeyFile(file));
  return { vault: await FileVault.open(file), created };
}

type Purpose = Parameters<Vault["mac"]>[0];

class FileVault implements Vault {
  readonly #file: string;
  #stamp = "";
  #keys: readonly [Key, ...Key[]];
  #macKeys = new Map<string, Buffer>();

  static async open(file: string): Promise<FileVault> {
    const stamp = stampOf(file);
    const keys = await readKeys(file);
    if (keys === null) throw new HangarError("not_found", `${file} is not there`);
    return new FileVault(file, keys, stamp);
  }

  private constructor(file: string, keys: readonly [Key, ...Key[]], stamp: string) {
    this.#file = file;
    this.#keys = keys;
    this.#stamp = stamp;
  }

  get recipient(): string {
    return this.#keys[0].recipient;
  }

  get rotated(): boolean {
    return this.#keys.length > 1;
  }

  mac(purpose: Purpose, data: string): string {
    return this.#macWith(this.#keys[0].identity, purpose, data);
  }

  verify(purpose: Purpose, data: string, given: string): boolean {
    const said = Buffer.from(given);
    const isBy = (identity: string): boolean => {
      const right = Buffer.from(this.#macWith(identity, purpose, data));
      return said.length === right.length && timingSafeEqual(said, right);
    };
    if (this.#keys.some(({ identity }) => isBy(identity))) return true;
    // Another replica may know of a rotation that shows here at the next use.
    if (stampOf(this.#file) !== this.#stamp && (readIdentities(this.#file) ?? []).some(isBy)) return true;
    // A sandbox that runs on keeps the token that it was given; what is kept for ever was made anew.
    return purpose !== "marker" && retiredIdentities(this.#file).some(isBy);
  }

  isCurrent(purpose: Purpose, data: string, given: string): boolean {
    return this.mac(purpose, data) === given;
  }

  async seal(plain: Uint8Array): Promise<Uint8Array> {
    await this.refresh();
    return await this.sealTo(this.recipient, plain);
  }

  async sealTo(recipient: string, plain: Uint8Array): Promise<Uint8Array> {
    const encrypter = new Encrypter();
    encrypter.addRecipient(recipient);
    return await encrypter.encrypt(plain);
  }

  recipientOf(identity: string): Promise<string> {
    return identityToRecipient(identity);
  }

  async open(sealed: Uint8Array): Promise<Uint8Array> {
    try {
      return await decrypt(this.#keys, sealed);
    } catch (cause) {
      if (await this.refresh()) return await this.open(sealed);
      throw new HangarError("checkpoint_invalid", "This was not sealed to this vault, or it is damaged", { cause });
    }
  }

  async reseal(sealed: Uint8Array): Promise<Uint8Array | null> {
    const isNew = await decrypt([this.#keys[0]], sealed).then(
      () => true,
      () => false,
    );
    return isNew ? null : await this.seal(await this.open(sealed));
  }

  async retire(now: Date): Promise<string | null> {
    const retired = await retireOldKeys(this.#file, now);
    await this.refresh();
    return retired;
  }

  async newIdentity(): Promise<{ identity: string; recipient: string }> {
    const identity = await generateX25519Identity();
    return { identity, recipient: await identityToRecipient(identity) };
  }

  /** True: the file is another one by now, and was read. One that is gone or damaged changes nothing here. */
  async refresh(): Promise<boolean> {
    const stamp = stampOf(this.#file);
    if (stamp === this.#stamp || stamp === "") return false;
    this.#keys = (await readKeys(this.#file)) ?? this.#keys;
    this.#stamp = stamp;
    return true;
  }

  #macWith(identity: string, purpose: Purpose, data: string): string {
    const name = `${purpose} ${identity}`;
    const key =
      this.#macKeys.get(name) ?? Buffer.from(hkdfSync("sha256", identity, "hangar-vault-1", `mac:${purpose}`, 32));
    this.#macKeys.set(name, key);
    return createHmac("sha256", key).update(data).digest("hex");
  }
}

function decrypt(keys: readonly Key[], sealed: Uint8Array): Promise<Uint8Array> {
  const decrypter = new Decrypter();
  for (const { identity } of keys) decrypter.addIdentity(identity);
  return decrypter.decrypt(sealed);
}
