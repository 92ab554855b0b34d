/** `hangar secret …`. A value comes from standard input, a hidden prompt or a variable: never from the command line, which others can see. */
import { readFileSync } from "node:fs";
import { HangarError, SecretInfo, SecretPath, VariableName } from "@hangar/shared";
import { z } from "zod";
import { NOTHING } from "../client.ts";
import { type Context, readAllBytes } from "../context.ts";
import { ago, table } from "../ui.ts";
import { askHidden } from "./prompt.ts";

export interface SetOptions {
  readonly fromEnv?: string | true;
  readonly file?: string;
  readonly as?: string;
  readonly mode?: string;
  readonly env?: string;
  readonly json?: boolean;
}

export async function setSecret(context: Context, name: string, options: SetOptions): Promise<void> {
  if (!VariableName.safeParse(name).success)
    throw new HangarError(
      "invalid_request",
      `${name} is no variable's name: use letters, digits and _, not starting with a digit`,
    );
  if (options.as !== undefined && !SecretPath.safeParse(options.as).success)
    throw new HangarError(
      "invalid_request",
      `--as ${options.as}: give ~/PATH (in quotes: it is the sandbox's home) or a path inside the repo, outside of .git and ~/.hangar`,
    );
  const value = await valueOf(context, name, options);
  const body = {
    value,
    ...(options.as !== undefined && { file: options.as }),
    ...(options.mode !== undefined && { mode: options.mode }),
  };
  const info = await context.client().call("PUT", pathOf(name, options.env), SecretInfo, body);
  if (options.json) return context.ui.json(info);
  const whose = options.env === undefined ? "environments that name it" : `the environment ${options.env}`;
  const what = info.file === null ? "it" : `it as the file ${info.file}`;
  context.ui.out(`${name} is set; sandboxes of ${whose} get ${what} when they start`);
}

const pathOf = (name: string, environment: string | undefined): string =>
  `/api/secrets/${encodeURIComponent(name)}${environment === undefined ? "" : `?environment=${encodeURIComponent(environment)}`}`;

async function valueOf(context: Context, name: string, { fromEnv, file, as }: SetOptions): Promise<string> {
  if (fromEnv !== undefined && file !== undefined)
    throw new HangarError("invalid_request", "give the value by --from-env or by --file, not by both");
  if (fromEnv !== undefined) {
    const variable = fromEnv === true ? name : fromEnv;
    const value = context.config.env[variable];
    if (value) return value;
    throw new HangarError("invalid_request", `${variable} is not set in the environment`);
  }
  // A file is kept byte for byte; of a variable, the line's end that editors and echo add is none of it.
  const trimmed = (text: string): string => (as === undefined ? text.replace(/\r?\n$/, "") : text);
  if (file !== undefined) return notEmpty(trimmed(textOf(readBytes(file), file)), file);
  const value = context.stdin.isTTY
    ? await askHidden(context, `Value of ${name}: `)
    : trimmed(textOf(await readAllBytes(context.stdin), "standard input"));
  if (value !== "") return value;
  throw new HangarError(
    "invalid_request",
    `give the value on standard input, at the prompt, by --file or by --from-env`,
  );
}

function readBytes(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no such file" : (error as Error).message;
    throw new HangarError("invalid_request", `${path}: ${why}`, { cause: error });
  }
}

function textOf(bytes: Buffer, what: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new HangarError("invalid_request", `${what} is not UTF-8 text: encode it first, such as with base64`);
  }
}

function notEmpty(value: string, what: string): string {
  if (value !== "") return value;
  throw new HangarError("invalid_request", `${what} is empty: a secret has a value; to remove one: hangar secret rm`);
}

export async function listSecrets(context: Context, options: { json?: boolean }): Promise<void> {
  const { secrets } = await context.client().call("GET", "/api/secrets", z.object({ secrets: z.array(SecretInfo) }));
  const { ui } = context;
  if (options.json) return ui.json(secrets);
  if (secrets.length === 0) return ui.note(`No secrets yet. Set one: ${ui.prefix} secret set ANTHROPIC_API_KEY`);
  for (const line of table(
    secrets.map(({ name, environment, file, updated_at }) => [
      environment === null ? name : `${name} (${environment})`,
      file ?? "variable",
      `set ${ago(updated_at, Date.now())}`,
    ]),
    ui.columns,
  ))
    ui.out(line);
}

export async function removeSecret(context: Context, name: string, options: { env?: string }): Promise<void> {
  await context.client().call("DELETE", pathOf(name, options.env), NOTHING);
  context.ui.out(`${name} is removed; the next start of a sandbox that needs it says so`);
}
