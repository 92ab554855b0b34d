/**
 * The vault's key file: age identities, one a line, that `age -i` takes as it is. The first is the present one; the others
 * are from before a rotation and still open what was sealed to them. Always replaced whole, so that a kill leaves one or the
 * other.
 */
import {
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { HangarError } from "@hangar/shared";
import { generateX25519Identity, identityToRecipient } from "age-encryption";

export const vaultKeyFile = (dataDir: string): string => join(dataDir, "vault", "identity.txt");

/** One line for the operator, the first time. */
export const backUpMessage = (file: string): string =>
  `Back up ${file} now, outside this machine: without it no checkpoint can be opened again.`;

export interface Key {
  readonly identity: string;
  readonly recipient: string;
}

/** Equal stamps: the same file. Empty: not there. */
export function stampOf(file: string): string {
  const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stat ? `${stat.ino} ${stat.size} ${stat.mtimeNs}` : "";
}

/**
 * The present key first. None: there is no file.
 * @throws HangarError `forbidden` when others may read the file, `checkpoint_invalid` when it holds no age identity.
 */
export async function readKeys(file: string): Promise<readonly [Key, ...Key[]] | null> {
  const identities = readIdentities(file);
  if (identities === null) return null;
  const keys: Key[] = [];
  for (const identity of identities) {
    const recipient = await identityToRecipient(identity).catch(() => null);
    if (recipient === null) throw noIdentity(file);
    keys.push({ identity, recipient });
  }
  const [first, ...rest] = keys;
  if (!first) throw noIdentity(file);
  return [first, ...rest];
}

/** The lines that look like identities, the present one first. None: there is no file. Throws as `readKeys` for its rights. */
export const readIdentities = (file: string): string[] | null =>
  readPrivate(file)
    ?.split("\n")
    .map((line) => line.trim())
    .filter((line) => line.startsWith("AGE-SECRET-KEY-1")) ?? null;

/** Identities that were taken out of use and whose files still lie beside. */
export function retiredIdentities(file: string): string[] {
  const folder = dirname(file);
  return readdirSync(folder)
    .filter((name) => /^retired-.*\.txt$/.test(name))
    .flatMap((name) => readIdentities(join(folder, name)) ?? []);
}

/** Makes the file with a new key. False: there is one, which is left alone. */
export async function makeKeyFile(file: string): Promise<boolean> {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const temporary = writeBeside(file, await entryOf(await generateX25519Identity()));
  try {
    linkSync(temporary, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    unlinkSync(temporary);
  }
  syncFolder(dirname(file));
  return true;
}

/** Puts a new key in front of those that are there. */
export async function addKey(file: string): Promise<Key> {
  const text = readPrivate(file);
  if (text === null) throw new HangarError("not_found", `${file} is not there: hangar vault init makes it`);
  const identity = await generateX25519Identity();
  replace(file, (await entryOf(identity)) + text);
  return { identity, recipient: await identityToRecipient(identity) };
}

/**
 * Takes all keys but the first out of the file, into one beside it.
 * @returns that one's path; none: there were no others.
 */
export async function retireOldKeys(file: string, now: Date): Promise<string | null> {
  const keys = await readKeys(file);
  if (keys === null || keys.length === 1) return null;
  const [first, ...old] = keys;
  const retired = join(dirname(file), `retired-${now.toISOString().replace(/[-:]|\..*/g, "")}.txt`);
  replace(retired, (await Promise.all(old.map(({ identity }) => entryOf(identity)))).join(""));
  replace(file, await entryOf(first.identity));
  return retired;
}

const entryOf = async (identity: string): Promise<string> =>
  `# written: ${new Date().toISOString()}\n# public key: ${await identityToRecipient(identity)}\n${identity}\n`;

function replace(file: string, text: string): void {
  const temporary = writeBeside(file, text);
  try {
    renameSync(temporary, file);
  } catch (error) {
    unlinkSync(temporary);
    throw error;
  }
  syncFolder(dirname(file));
}

function writeBeside(file: string, text: string): string {
  const temporary = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  let fd: number;
  try {
    fd = openSync(temporary, "wx", 0o600);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EROFS") throw cause;
    const where = `${dirname(file)} is read-only`;
    throw new HangarError(
      "invalid_request",
      `${where}: put the new identity in front of the others where it comes from`,
      {
        cause,
      },
    );
  }
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  return temporary;
}

function readPrivate(file: string): string | null {
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

function syncFolder(folder: string): void {
  const fd = openSync(folder, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

const noIdentity = (file: string): HangarError =>
  new HangarError("checkpoint_invalid", `${file} holds no age identity: put the backed-up key file there`);
