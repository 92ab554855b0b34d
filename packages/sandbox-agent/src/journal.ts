/**
 * Which commands were begun and how they ended, on disk: a command delivered twice is done once and answered twice.
 *
 * The order is the order of arrival. Of the finished ones the newest are kept, large answers of old ones are forgotten.
 */
import { join } from "node:path";
import { CommandId } from "@hangar/shared";
import { z } from "zod";
import { LineFile } from "./durable.ts";

export const Reply = z.discriminatedUnion("ok", [
  z.strictObject({ ok: z.literal(true), value: z.unknown() }),
  z.strictObject({ ok: z.literal(false), code: z.string(), error: z.string() }),
]);
export type Reply = z.infer<typeof Reply>;

const Line = z.union([
  z.strictObject({ begun: CommandId }),
  z.strictObject({ finished: CommandId, at: z.number(), reply: Reply }),
]);

export type CommandState =
  | { readonly state: "new" }
  | { readonly state: "running" }
  /** Begun by a daemon that ended before it finished: whether it took effect is not known. */
  | { readonly state: "abandoned" }
  | { readonly state: "finished"; readonly reply: Reply };

interface Entry {
  readonly id: string;
  running: boolean;
  finished: { at: number; reply: Reply } | null;
}

const KEEP = 300;
const LARGE = 64 * 1024;
const COMPACT_AT = 32 * 1024 * 1024;

export class Journal {
  readonly #file: LineFile;
  readonly #warn: (message: string) => void;
  readonly #entries = new Map<string, Entry>();
  #written = 0;

  constructor(folder: string, warn: (message: string) => void) {
    this.#file = new LineFile(join(folder, "commands.jsonl"));
    this.#warn = warn;
    for (const line of this.#file.read()) {
      const parsed = Line.safeParse(line);
      if (!parsed.success) continue;
      if ("begun" in parsed.data) this.#entry(parsed.data.begun);
      else this.#entry(parsed.data.finished).finished = { at: parsed.data.at, reply: parsed.data.reply };
    }
    this.#compact();
  }

  state(id: string): CommandState {
    const entry = this.#entries.get(id);
    if (!entry) return { state: "new" };
    if (entry.finished) return { state: "finished", reply: entry.finished.reply };
    return { state: entry.running ? "running" : "abandoned" };
  }

  /** On disk when it returns, so that a command is never begun twice without knowing it. */
  begin(id: string): void {
    this.#entry(id).running = true;
    this.#write({ begun: id });
  }

  finish(id: string, reply: Reply): void {
    const at = Date.now();
    const entry = this.#entry(id);
    entry.running = false;
    entry.finished = { at, reply };
    this.#write({ finished: id, at, reply });
    if (this.#written > COMPACT_AT || this.#entries.size > 2 * KEEP) this.#compact();
  }

  /** The newest command before which every one is finished; none: there is none. */
  get lastFinished(): string | null {
    let last: string | null = null;
    for (const entry of this.#entries.values()) {
      if (!entry.finished) break;
      last = entry.id;
    }
    return last;
  }

  /** Answers given at or after `since` (milliseconds since 1970), oldest first. */
  repliesSince(since: number): Array<{ id: string; reply: Reply }> {
    const replies: Array<{ id: string; reply: Reply }> = [];
    for (const { id, finished } of this.#entries.values()) {
      if (finished && finished.at >= since) replies.push({ id, reply: finished.reply });
    }
    return replies;
  }

  close(): void {
    this.#file.close();
  }

  #entry(id: string): Entry {
    const known = this.#entries.get(id);
    if (known) return known;
    const entry: Entry = { id, running: false, finished: null };
    this.#entries.set(id, entry);
    return entry;
  }

  #compact(): void {
    const entries = [...this.#entries.values()];
    const old = entries.slice(0, Math.max(0, entries.length - KEEP));
    for (const entry of old) if (entry.finished) this.#entries.delete(entry.id);
    for (const entry of entries.slice(0, -20)) this.#forgetLarge(entry);
    const lines = [...this.#entries.values()].flatMap(({ id, finished }) =>
      finished ? [{ begun: id }, { finished: id, at: finished.at, reply: finished.reply }] : [{ begun: id }],
    );
    try {
      this.#file.rewrite(lines);
      this.#written = 0;
    } catch (error) {
      this.#warn(`the journal of commands could not be compacted: ${String(error)}`);
    }
  }

  #forgetLarge(entry: Entry): void {
    if (!entry.finished || JSON.stringify(entry.finished.reply).length <= LARGE) return;
    const error = "This command was done earlier; its answer was large and is no longer kept";
    entry.finished = { at: entry.finished.at, reply: { ok: false, code: "internal", error } };
  }

  #write(line: unknown): void {
    try {
      this.#file.append(line, true);
      this.#written += JSON.stringify(line).length;
    } catch (error) {
      this.#warn(`a command could not be written to the journal: ${String(error)}`);
    }
  }
}
