/** `hangar vault …`: the key file of the Hangar on this machine, which opens every checkpoint. */
import { execFile } from "node:child_process";
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { HangarError, Resealed } from "@hangar/shared";
import { z } from "zod";
import type { Context } from "../context.ts";
import { onlyHere, program } from "./up.ts";

const Initialized = z.object({ file: z.string(), created: z.boolean(), recipient: z.string() });
const Rotated = z.object({ file: z.string(), recipient: z.string(), older: z.number() });

export async function initVault(context: Context, options: { json?: boolean }): Promise<void> {
  onlyHere(context, "vault init");
  const done = Initialized.parse(await keyFile(context, "init"));
  const { ui } = context;
  if (options.json) return ui.json(done);
  ui.out(done.created ? `The vault's key is made: ${done.file}` : `There is a vault already: ${done.file}`);
  ui.out(`Its recipient: ${done.recipient}`);
  if (done.created) ui.note(`Back it up now, outside this machine: ${ui.prefix} vault export --out FILE`);
}

export async function rotateVault(context: Context, options: { reseal?: boolean; json?: boolean }): Promise<void> {
  onlyHere(context, "vault rotate");
  const { ui } = context;
  // Sealing anew needs the store: asked for without it, nothing is begun.
  const client = options.reseal ? context.client() : null;
  if (client) await client.call("GET", "/api/status", z.unknown());
  const rotated = Rotated.parse(await keyFile(context, "rotate"));
  if (!client) {
    if (options.json) return ui.json(rotated);
    ui.out(`New checkpoints are sealed to ${rotated.recipient}`);
    ui.note(
      `Older identities (${rotated.older}) stay in use for what is there. To seal that anew: ${ui.prefix} vault reseal`,
    );
    return ui.note(`Back up ${rotated.file} again: it has changed.`);
  }
  await resealVault(context, options);
}

export async function resealVault(context: Context, options: { json?: boolean }): Promise<void> {
  const { ui } = context;
  const client = context.client();
  ui.progress("sealing anew what older identities hold");
  let done: Resealed;
  try {
    done = await client.call("POST", "/api/vault/reseal", Resealed);
  } finally {
    ui.done();
  }
  if (options.json) return ui.json(done);
  const { identities, markers, secrets } = done;
  ui.out(`Sealed anew to ${done.recipient}: ${identities} sessions, ${markers} checkpoint markers, ${secrets} secrets`);
  if (done.retired !== null) {
    ui.out(`The older identities open nothing that Hangar needs any more; they are kept in ${done.retired}`);
    ui.note(
      "Sandboxes that run use them until they are opened again, and parts from before open with them: delete that file then.",
    );
  }
  ui.note("Back up the vault again: it has changed.");
}

/** The key itself, for a backup: into a new file that only its owner reads, or to a pipe. */
export async function exportVault(context: Context, options: { out?: string; yes?: boolean }): Promise<void> {
  onlyHere(context, "vault export");
  const { ui, config } = context;
  const file = join(config.dataDir, "vault", "identity.txt");
  const text = read(file, ui.prefix);
  if (options.out === undefined) {
    if (ui.isTerminal && !options.yes)
      throw new HangarError(
        "invalid_request",
        "the key would be shown on the screen: give --out FILE, pipe it, or say --yes",
      );
    return ui.out(text.trimEnd());
  }
  writeNew(resolve(context.cwd, options.out), text);
  ui.out(`The vault's key is in ${options.out}: whoever has it and the store can open every checkpoint`);
}

function read(file: string, prefix: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    throw new HangarError(
      "not_found",
      `${file} is not there: \`${prefix} vault init\` makes it, \`${prefix} up\` too`,
      {
        cause,
      },
    );
  }
}

function writeNew(file: string, text: string): void {
  let fd: number;
  try {
    fd = openSync(file, "wx", 0o600);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    const why = code === "EEXIST" ? "it exists, and is not overwritten" : String(code);
    throw new HangarError("invalid_request", `${file} cannot be written: ${why}`, { cause });
  }
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** By the coordinator's own code, whether or not one runs. */
async function keyFile({ config }: Context, what: "init" | "rotate"): Promise<unknown> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [program("hangar-coordinator"), "vault", what], {
      env: { ...config.env, HANGAR_DATA_DIR: config.dataDir },
    });
    return JSON.parse(stdout);
  } catch (error) {
    const { stderr = "" } = error as { stderr?: string };
    const line = stderr.split("\n").findLast((one) => one.startsWith("hangar: "));
    if (line === undefined) throw error;
    throw new HangarError("invalid_request", line.slice("hangar: ".length), { cause: error });
  }
}
