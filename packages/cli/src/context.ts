/** What every command works with. */
import type { Readable } from "node:stream";
import type { Client } from "./client.ts";
import type { CliConfig } from "./config.ts";
import type { Ui } from "./ui.ts";

export interface Context {
  readonly config: CliConfig;
  readonly ui: Ui;
  readonly cwd: string;
  readonly stdin: Readable & { isTTY?: boolean; setRawMode?(on: boolean): unknown };
  /** Finds the running Hangar, at first use. HangarError `not_running`. */
  client(): Client;
  /** Fires at the first Ctrl-C; a command that does not listen is ended by it. */
  onInterrupt(callback: () => void): () => void;
}

export const readAll = async (stream: Readable): Promise<string> => (await readAllBytes(stream)).toString("utf8");

export async function readAllBytes(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk as Uint8Array));
  return Buffer.concat(chunks);
}
