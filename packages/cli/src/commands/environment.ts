/** `hangar env …`: environments, from YAML or JSON files. */
import { readFileSync } from "node:fs";
import { Environment, EnvironmentRecord, HangarError, WarmPoolStatus } from "@hangar/shared";
import { type Document, isNode, LineCounter, parseAllDocuments, stringify } from "yaml";
import { z } from "zod";
import { NOTHING } from "../client.ts";
import { type Context, readAll } from "../context.ts";
import { ago, firstLine, safe, table } from "../ui.ts";

export async function listEnvironments(context: Context, options: { json?: boolean }): Promise<void> {
  const answer = z.object({ environments: z.array(EnvironmentRecord) });
  const { environments } = await context.client().call("GET", "/api/environments", answer);
  const { ui } = context;
  if (options.json) return ui.json(environments);
  if (environments.length === 0)
    return ui.note(
      `No environments yet. Make one: ${ui.prefix} env apply -f FILE (an example: ${ui.prefix} env apply --help)`,
    );
  const head = ["NAME", "HARNESS", "SESSIONS", "CHANGED", "REPO"].map((title) => ui.color.dim(title));
  const rows = environments.map((one) => [
    one.name,
    one.harness,
    String(one.sessions),
    ago(one.updated_at, Date.now()),
    one.repo ?? "-",
  ]);
  for (const line of table([head, ...rows], ui.columns)) ui.out(line);
}

/** As a file that can be applied again. */
export async function showEnvironment(context: Context, name: string, options: { json?: boolean }): Promise<void> {
  const record = await context.client().call("GET", `/api/environments/${encodeURIComponent(name)}`, EnvironmentRecord);
  if (options.json) return context.ui.json(record);
  const { created_at: _created, updated_at: _updated, sessions: _sessions, ...environment } = record;
  context.ui.write(stringify(environment));
  if (environment.warm_pool > 0) {
    const path = `/api/environments/${encodeURIComponent(name)}/warm`;
    context.ui.write(describePool(await context.client().call("GET", path, WarmPoolStatus)));
  }
}

/** A comment, so that the file stays one that can be applied. */
function describePool({ wanted, ready, starting, phase, changes_at, problem }: WarmPoolStatus): string {
  const until = changes_at === null ? "" : `, until ${changes_at}`;
  const detail = phase === null || phase === "starting" ? "" : ` (${safe(firstLine(phase))})`;
  const now = wanted === 0 ? "none are kept now" : `${ready} of ${wanted} ready, ${starting} starting${detail}`;
  const lines = [`Warm sandboxes: ${now}${until}`, ...(problem === null ? [] : problem.split("\n"))];
  return lines.map((line) => `# ${line}\n`).join("");
}

export async function applyEnvironments(context: Context, options: { file: string; json?: boolean }): Promise<void> {
  const text = options.file === "-" ? await readAll(context.stdin) : readFile(options.file);
  const environments = parseEnvironments(text, options.file === "-" ? "standard input" : options.file);
  const applied: EnvironmentRecord[] = [];
  for (const { name, ...rest } of environments) {
    const record = await context
      .client()
      .call("PUT", `/api/environments/${encodeURIComponent(name)}`, EnvironmentRecord, { name, ...rest });
    applied.push(record);
    if (!options.json)
      context.ui.out(`${record.name} is applied: ${context.ui.prefix} session new NAME --env ${record.name}`);
  }
  if (options.json) context.ui.json(applied.length === 1 ? applied[0] : applied);
}

export async function removeEnvironment(context: Context, name: string): Promise<void> {
  await context.client().call("DELETE", `/api/environments/${encodeURIComponent(name)}`, NOTHING);
  context.ui.out(`${name} is removed`);
}

function readFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no such file" : (error as Error).message;
    throw new HangarError("invalid_request", `${path}: ${why}`, { cause: error });
  }
}

type Written = { name: string } & Record<string, unknown>;

/**
 * The environments of a file, YAML documents or JSON, as written (what they leave out is the coordinator's to fill in).
 * HangarError `invalid_request` with `file:line: field: what is wrong`.
 */
export function parseEnvironments(text: string, file: string): Written[] {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, { lineCounter: lines, prettyErrors: false });
  if (!Array.isArray(documents) || documents.length === 0)
    throw new HangarError("invalid_request", `${file}: it holds no environment`);
  return documents.map((document) => {
    const [error] = document.errors;
    if (error)
      throw new HangarError(
        "invalid_request",
        `${file}:${lines.linePos(error.pos[0]).line}: ${error.message.split("\n")[0]}`,
      );
    const written: unknown = document.toJS();
    const parsed = Environment.safeParse(written);
    if (parsed.success) return Object.assign({}, written as object, { name: parsed.data.name });
    const issue = parsed.error.issues[0];
    const keys = issue?.code === "unrecognized_keys" ? issue.keys : [];
    const path = [...(issue?.path ?? []), ...keys.slice(0, 1)];
    const line = lineOf(document, path, lines);
    const field = path.length > 0 ? `${path.join(".")}: ` : "";
    const what =
      keys.length > 0
        ? `there is no such field; the fields are ${Object.keys(Environment.shape).join(", ")}`
        : issue?.message;
    throw new HangarError("invalid_request", `${file}:${line}: ${field}${what}`);
  });
}

/** Where the field is, or the nearest that is there of what holds it. */
function lineOf(document: Document.Parsed, path: readonly PropertyKey[], lines: LineCounter): number {
  for (let length = path.length; length >= 0; length--) {
    const node = length === 0 ? document.contents : document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
  }
  return 1;
}
