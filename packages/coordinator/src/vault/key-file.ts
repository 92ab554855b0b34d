/**
 * The vault over one key file: an age identity that `age -i` takes as it is. Everything else is derived from it, so this
 * file and the store are all that recovery needs, and all that has to be kept safe.
 */
import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import {
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { HangarError } from "@hangar/shared";
import { Decrypter, Encrypter, generateX25519Identity, identityToRecipient } from "age-encryption";
import type { Vault } from "./vault.ts";

export const vaultKeyFile = (dataDir: string): string => join(dataDir, "vault", "identity.txt");

/**
 * Opens the vault, making its key first where there is none.
 * @returns `created`: the key is new, and the operator is to be told to back it up.
 * @throws HangarError `forbidden` when others may read the file, `checkpoint_invalid` when it holds no age identity.
 */
export async function openVault(file: string): Promise<{ vault: Vault; created: boolean }> {
  const found = readKey(file);
  if (found !== null) return { vault: await vaultOf(found, file), created: false };
  const identity = await generateX25519Identity();
  const created = await makeKey(file, identity);
  // Another coordinator may have been quicker: then its key counts.
  return { vault: await vaultOf(readKey(file) ?? "", file), created };
}

/** One line for the operator, the first time. */
export const backUpMessage = (file: string): string =>
  `Back up ${file} now, outside this machine: without it no checkpoint can be opened again.`;

async function vaultOf(text: string, file: string): Promise<Vault> {
  const identity = text
    .split("\n")
    .find((line) => line.startsWith("AGE-SECRET-KEY-1"))
    ?.trim();
  const recipient = identity && (await identityToRecipient(identity).catch(() => undefined));
  if (!identity || !recipient)
    throw new HangarError("checkpoint_invalid", `${file} holds no age identity: put the backed-up key file there`);
  const decrypter = new Decrypter();
  decrypter.addIdentity(identity);

  const keys = new Map<string, Buffer>();
  const keyOf = (purpose: string): Buffer => {
    const key = keys.get(purpose) ?? Buffer.from(hkdfSync("sha256", identity, "hangar-vault-1", `mac:${purpose}`, 32));
    keys.set(purpose, key);
    return key;
  };
  const mac: Vault["mac"] = (purpose, data) => createHmac("sha256", keyOf(purpose)).update(data).digest("hex");

  return {
    recipient,
    mac,
    verify(purpose, data, given) {
      const right = Buffer.from(mac(purpose, data));
      const said = Buffer.from(given);
      return said.length === right.length && timingSafeEqual(said, right);
    },
    async seal(plain) {
      const encrypter = new Encrypter();
      encrypter.addRecipient(recipient);
      return await encrypter.encrypt(plain);
    },
    async open(sealed) {
      try {
        return await decrypter.decrypt(sealed);
      } catch (cause) {
        throw new HangarError("checkpoint_invalid", "This was not sealed to this vault, or it is damaged", { cause });
      }
    },
    async newIdentity() {
      const identity = await generateX25519Identity();
      return { identity, recipient: await identityToRecipient(identity) };
    },
  };
}

function readKey(file: string): string | null {
  let fd: number;
  try {
    fd = openSync(file, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  try {
    const { mode } = fstatSync(fd);
    if ((mode & 0o077) !== 0)
      throw new HangarError(
        "forbidden",
        `Others may read the vault's key: run chmod 600 ${file}, and think of the key as known to them`,
      );
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

/** Whole under its name or not there; never over one that is. False: there was one. */
async function makeKey(file: string, identity: string): Promise<boolean> {
  const folder = dirname(file);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const temporary = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  const fd = openSync(temporary, "wx", 0o600);
  try {
    const recipient = await identityToRecipient(identity);
    writeSync(fd, `# created: ${new Date().toISOString()}\n# public key: ${recipient}\n${identity}\n`);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  try {
    linkSync(temporary, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    unlinkSync(temporary);
  }
  const folderFd = openSync(folder, "r");
  try {
    fsyncSync(folderFd);
  } finally {
    closeSync(folderFd);
  }
  return true;
}
