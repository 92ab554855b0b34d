/** A home with conversations, checkpoints of it as archives in a folder, and a second home to restore to. */
import { execFile } from "node:child_process";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { extractArchive, writeArchive } from "../../src/checkpoint/archive.ts";
import { rulesOf } from "../../src/checkpoint/extract-rules.ts";
import {
  captureConversations,
  restoreConversations,
  type Capture,
  type CaptureOptions,
  type ConversationRecord,
} from "../../src/checkpoint/conversation.ts";

export const run = promisify(execFile);

export class Homes {
  readonly folder: string;
  readonly home: string;
  #homes = 0;
  constructor(folder: string) {
    this.folder = folder;
    this.home = join(folder, "home");
  }
  static async open(): Promise<Homes> {
    const homes = new Homes(await mkdtemp(join(tmpdir(), "hangar-conversation-")));
    await mkdir(homes.home);
    await mkdir(join(homes.folder, "scratch"));
    return homes;
  }
  async close(): Promise<void> {
    await run("chmod", ["-R", "u+rwx", this.folder]);
    await rm(this.folder, { recursive: true, force: true });
  }
  at(path: string): string {
    return join(this.home, path);
  }
  async write(path: string, content: string | Buffer, mode = 0o600): Promise<string> {
    const at = this.at(path);
    await mkdir(dirname(at), { recursive: true });
    await writeFile(at, content);
    await chmod(at, mode);
    return at;
  }
  /** Captures, and writes the archive where there is something to send. */
  async checkpoint(
    part: string,
    parent: ConversationRecord | null = null,
    more: Partial<CaptureOptions> = {},
  ): Promise<Capture & { sent: number }> {
    const scratch = join(this.folder, "scratch", part);
    await mkdir(scratch);
    const capture = await captureConversations(this.home, { parent, part, scratch, prefix: "edges", ...more });
    if (capture.entries.length > 0) await writeArchive(capture.entries, createWriteStream(join(this.folder, part)));
    await rm(scratch, { recursive: true });
    return { ...capture, sent: capture.entries.reduce((sum, entry) => sum + entry.size, 0) };
  }
  async restore(record: ConversationRecord, home?: string): Promise<string> {
    const target = home ?? join(this.folder, `restored-${this.#homes++}`);
    await mkdir(target, { recursive: true });
    await restoreConversations(target, record, {
      unpack: async (part, folder, rule) => {
        const source = createReadStream(join(this.folder, part));
        await extractArchive(source, folder, { times: "now", replace: true, ...rulesOf(rule) });
      },
    });
    return target;
  }
}

export const names = (capture: Capture): string[] => capture.record.files.map(({ path }) => path);
/** As if it had been looked at long after: so that stamps count. */
export const settled = (record: ConversationRecord): ConversationRecord => ({
  ...record,
  looked_at: record.looked_at + 10_000,
});
