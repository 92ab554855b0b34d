/**
 * Events on their way to the coordinator: numbered, kept on disk until acknowledged, in memory as well.
 *
 * No secret reaches the disk or the link: every event passes the redactor here, but for what a turn says, which passed it
 * as a stream, so that a value that is split over two pieces is found.
 *
 * Bounded: over the bound the oldest `turn_output` events go, the newest of them replaced by a line that says so;
 * lifecycle events are never dropped. Numbers never go back, also over restarts; gaps are allowed.
 */
import { join } from "node:path";
import { AgentEvent, redactEvent } from "@hangar/shared";
import type { Redactor } from "@hangar/shared";
import { z } from "zod";
import { LineFile } from "./durable.ts";

export interface Spooled {
  readonly seq: number;
  readonly event: AgentEvent;
}

const Line = z.union([
  /** Everything up to here was acknowledged; the next number is higher. */
  z.strictObject({ acked: z.number().int().nonnegative() }),
  z.strictObject({ seq: z.number().int().positive(), event: AgentEvent }),
]);

interface Kept extends Spooled {
  readonly bytes: number;
}

export class Spool {
  readonly #file: LineFile;
  readonly #bound: number;
  readonly #warn: (message: string) => void;
  readonly #redact: () => Redactor;
  /** Oldest first; those before `#head` are acknowledged, and are cut off now and then. */
  #kept: Kept[] = [];
  #head = 0;
  #bytes = 0;
  #acked = 0;
  #last = 0;
  #garbage = 0;
  #listener: () => void = () => {};

  /** `bound`: bytes of unacknowledged events. */
  constructor(folder: string, warn: (message: string) => void, redact: () => Redactor, bound = 32 * 1024 * 1024) {
    this.#file = new LineFile(join(folder, "spool.jsonl"));
    this.#bound = bound;
    this.#warn = warn;
    this.#redact = redact;
    this.#load();
  }

  /** The number that the next `add` gives. */
  get next(): number {
    return this.#last + 1;
  }

  get acked(): number {
    return this.#acked;
  }

  /** Numbers the event and keeps it. A full disk keeps it in memory alone. */
  add(said: AgentEvent): number {
    const event = said.type === "turn_output" ? said : redactEvent(said, this.#redact());
    const seq = ++this.#last;
    this.#keep({ seq, event });
    this.#write({ seq, event }, event.type !== "turn_output");
    if (this.#bytes > this.#bound) this.#shed();
    this.#listener();
    return seq;
  }

  /** Events after `seq`, oldest first, up to `bytes` of them. */
  after(seq: number, bytes: number): Spooled[] {
    const from = this.#indexAfter(seq);
    const events: Spooled[] = [];
    for (let at = from, sum = 0; at < this.#kept.length && sum < bytes; at++) {
      const kept = this.#kept[at]!;
      events.push({ seq: kept.seq, event: kept.event });
      sum += kept.bytes;
    }
    return events;
  }

  /** The coordinator has stored everything up to `seq`. */
  ack(seq: number): void {
    if (seq > this.#last) this.#last = seq;
    if (seq <= this.#acked) return;
    this.#acked = seq;
    this.#garbage += this.#forget(seq);
    // Rewriting costs what is kept, so it is done when that is little beside what it frees.
    if (this.#garbage > 64 * 1024 + this.#bytes) this.#compact();
    else this.#write({ acked: seq }, false);
    this.#listener();
  }

  /** Called after every `add` and `ack`. */
  onChange(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.#file.close();
  }

  #load(): void {
    for (const line of this.#file.read()) {
      const parsed = Line.safeParse(line);
      if (!parsed.success) continue;
      if ("acked" in parsed.data) {
        this.#acked = Math.max(this.#acked, parsed.data.acked);
        this.#last = Math.max(this.#last, this.#acked);
      } else if (parsed.data.seq > this.#last) {
        this.#last = parsed.data.seq;
        this.#keep(parsed.data);
      }
    }
    this.#forget(this.#acked);
    this.#compact();
  }

  /** The bytes that this freed. */
  #forget(seq: number): number {
    let freed = 0;
    for (; this.#head < this.#kept.length && this.#kept[this.#head]!.seq <= seq; this.#head++) {
      freed += this.#kept[this.#head]!.bytes;
    }
    this.#bytes -= freed;
    // Cutting off moves the rest, so it is done when that is little.
    if (this.#head > this.#kept.length / 2) this.#cut();
    return freed;
  }

  #cut(): void {
    this.#kept = this.#kept.slice(this.#head);
    this.#head = 0;
  }

  #keep(spooled: Spooled): void {
    const bytes = Buffer.byteLength(JSON.stringify(spooled.event));
    this.#kept.push({ ...spooled, bytes });
    this.#bytes += bytes;
  }

  #shed(): void {
    this.#cut();
    let dropped = 0;
    let newest: Kept | null = null;
    const goal = this.#bound * 0.75;
    this.#kept = this.#kept.filter((kept) => {
      if (this.#bytes <= goal || kept.event.type !== "turn_output") return true;
      this.#bytes -= kept.bytes;
      this.#garbage += kept.bytes;
      dropped++;
      newest = kept;
      return false;
    });
    if (newest !== null) this.#mark(newest, dropped);
    this.#compact();
  }

  #mark(newest: Kept, dropped: number): void {
    if (newest.event.type !== "turn_output") return;
    const text = `[hangar: ${dropped} pieces of output were dropped here while the coordinator could not be reached]`;
    const event: AgentEvent = { ...newest.event, output: { kind: "stderr", text } };
    const bytes = Buffer.byteLength(JSON.stringify(event));
    this.#kept.splice(this.#indexAfter(newest.seq), 0, { seq: newest.seq, event, bytes });
    this.#bytes += bytes;
  }

  #compact(): void {
    try {
      this.#file.rewrite([
        { acked: Math.max(this.#acked, this.#head === this.#kept.length ? this.#last : 0) },
        ...this.#lines(),
      ]);
      this.#garbage = 0;
    } catch (error) {
      this.#warn(`the event spool could not be compacted: ${String(error)}`);
    }
  }

  *#lines(): Generator<Spooled> {
    for (let at = this.#head; at < this.#kept.length; at++) {
      const { seq, event } = this.#kept[at]!;
      yield { seq, event };
    }
  }

  #write(line: unknown, sync: boolean): void {
    try {
      this.#file.append(line, sync);
    } catch (error) {
      this.#warn(`an event could not be written to the spool and is kept in memory alone: ${String(error)}`);
    }
  }

  #indexAfter(seq: number): number {
    let low = this.#head;
    let high = this.#kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#kept[middle]!.seq <= seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
