/**
 * `hangar-agent git-credential get|store|erase [--state FOLDER]`: git's credential protocol on stdin and stdout.
 *
 * `get` asks the coordinator, which answers for the session's own remote only. Without an answer it prints nothing, and git
 * goes on to its next helper. Nothing is ever stored.
 */
import { join } from "node:path";
import { AGENT_ENV } from "@hangar/shared";
import { z } from "zod";
import { coordinatorHttp } from "./coordinator-http.ts";
import { readJson } from "./durable.ts";

/** In the state folder, 0600: where the coordinator is and the sandbox's token. */
export const LINK_FILE = "link.json";
const Link = z.strictObject({ urls: z.array(z.string()).min(1), token: z.string() });

/** The exit code: always 0 for what git may go on after. */
export async function gitCredential(argv: readonly string[], io: CredentialIo = process): Promise<number> {
  const action = argv.find((argument) => !argument.startsWith("-") && argument !== stateOption(argv));
  const asked = parse(await readAll(io.stdin));
  if (action !== "get") return 0;
  const state = stateOption(argv) ?? io.env[AGENT_ENV.state];
  const link = state === undefined ? null : readJson(join(state, LINK_FILE), Link);
  if (!link || asked.protocol === undefined || asked.host === undefined) return 0;
  try {
    const request = { protocol: asked.protocol, host: asked.host, path: asked.path ?? null };
    const answer = await coordinatorHttp(link.urls, link.token).gitCredential(request, AbortSignal.timeout(30_000));
    // A line break would let an answer say more than it may.
    if (/[\n\r\0]/.test(answer.username + answer.password)) return 0;
    const expiry = answer.password_expiry_utc;
    const until = expiry === undefined ? "" : `password_expiry_utc=${expiry}\n`;
    io.stdout.write(`username=${answer.username}\npassword=${answer.password}\n${until}`);
  } catch (error) {
    io.stderr.write(
      `hangar: no credential for ${asked.host}: ${error instanceof Error ? error.message : String(error)}\n`,
    );
  }
  return 0;
}

export interface CredentialIo {
  readonly stdin: AsyncIterable<string | Uint8Array>;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  readonly env: NodeJS.ProcessEnv;
}

function stateOption(argv: readonly string[]): string | undefined {
  const at = argv.indexOf("--state");
  return at < 0 ? undefined : argv[at + 1];
}

function parse(text: string): Partial<Record<string, string>> {
  const asked: Partial<Record<string, string>> = {};
  for (const line of text.split("\n")) {
    const equals = line.indexOf("=");
    if (equals > 0) asked[line.slice(0, equals)] = line.slice(equals + 1);
  }
  return asked;
}

async function readAll(stream: AsyncIterable<string | Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(typeof chunk === "string" ? Buffer.from(chunk) : chunk);
  return Buffer.concat(chunks).toString("utf8");
}
