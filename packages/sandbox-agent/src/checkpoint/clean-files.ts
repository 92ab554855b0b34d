/**
 * The files of a working tree that git finds unchanged. Their numbers lie in columns, by their entries' places in the index:
 * of a large repository that is nearly every file, and an object for each would be most of the memory that a scan takes.
 */
import type { IndexEntry } from "./index-file.ts";

/** Of `lstat`. */
interface Looked {
  /** The type too. */
  readonly mode: number;
  readonly size: number;
  readonly mtimeMs: number;
}

/** One of them, by itself. */
export interface Clean extends Looked {
  readonly place: number;
  readonly entry: IndexEntry;
}

const isFile = (mode: number): boolean => (mode & 0o170000) === 0o100000;

export class CleanFiles {
  readonly #entries: readonly IndexEntry[];
  /** 0: not among them. */
  readonly #modes: Uint32Array;
  readonly #sizes: Float64Array;
  readonly #times: Float64Array;

  constructor(entries: readonly IndexEntry[]) {
    this.#entries = entries;
    this.#modes = new Uint32Array(entries.length);
    this.#sizes = new Float64Array(entries.length);
    this.#times = new Float64Array(entries.length);
  }

  add(place: number, { mode, size, mtimeMs }: Looked): void {
    this.#modes[place] = mode;
    this.#sizes[place] = size;
    this.#times[place] = mtimeMs;
  }

  delete(place: number): void {
    this.#modes[place] = 0;
  }

  /** Places, in the index's order; what is deleted on the way does not come. */
  *places(): Iterable<number> {
    for (let place = 0; place < this.#modes.length; place++) if (this.#modes[place] !== 0) yield place;
  }

  /** Those that are no symlinks. */
  *files(): Iterable<Clean> {
    for (const place of this.places()) if (isFile(this.#modes[place] ?? 0)) yield this.at(place);
  }

  /** Throws RangeError where none is there. */
  at(place: number): Clean {
    const entry = this.#entries[place];
    if (!entry) throw new RangeError(`the index has no entry ${place}`);
    const [mode = 0, size = 0, mtimeMs = 0] = [this.#modes[place], this.#sizes[place], this.#times[place]];
    return { place, entry, mode, size, mtimeMs };
  }
}
