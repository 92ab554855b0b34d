/** `hangar secret …`. A value comes from standard input, a hidden prompt or a variable: never from the command line, which others can see. */
import { HangarError, SecretInfo, VariableName } from "@hangar/shared";
import { z } from "zod";
import { NOTHING } from "../client.ts";
import { type Context, readAll } from "../context.ts";
import { ago, table } from "../ui.ts";
import { askHidden } from "./prompt.ts";

export async function setSecret(
  context: Context,
  name: string,
  options: { fromEnv?: string | true; json?: boolean },
): Promise<void> {
  if (!VariableName.safeParse(name).success)
    throw new HangarError(
      "invalid_request",
      `${name} is no variable's name: use letters, digits and _, not starting with a digit`,
    );
  const value = await valueOf(context, name, options.fromEnv);
  const info = await context.client().call("PUT", `/api/secrets/${encodeURIComponent(name)}`, SecretInfo, { value });
  if (options.json) context.ui.json(info);
  else context.ui.out(`${name} is set; sandboxes of environments that name it get it when they start`);
}

async function valueOf(context: Context, name: string, fromEnv: string | true | undefined): Promise<string> {
  if (fromEnv !== undefined) {
    const variable = fromEnv === true ? name : fromEnv;
    const value = context.config.env[variable];
    if (value) return value;
    throw new HangarError("invalid_request", `${variable} is not set in the environment`);
  }
  const value = context.stdin.isTTY
    ? await askHidden(context, `Value of ${name}: `)
    : (await readAll(context.stdin)).replace(/\r?\n$/, "");
  if (value !== "") return value;
  throw new HangarError("invalid_request", `give the value on standard input, at the prompt, or by --from-env`);
}

export async function listSecrets(context: Context, options: { json?: boolean }): Promise<void> {
  const { secrets } = await context.client().call("GET", "/api/secrets", z.object({ secrets: z.array(SecretInfo) }));
  const { ui } = context;
  if (options.json) return ui.json(secrets);
  if (secrets.length === 0) return ui.note(`No secrets yet. Set one: ${ui.prefix} secret set ANTHROPIC_API_KEY`);
  for (const line of table(
    secrets.map(({ name, updated_at }) => [name, `set ${ago(updated_at, Date.now())}`]),
    ui.columns,
  ))
    ui.out(line);
}

export async function removeSecret(context: Context, name: string): Promise<void> {
  await context.client().call("DELETE", `/api/secrets/${encodeURIComponent(name)}`, NOTHING);
  context.ui.out(`${name} is removed`);
}
