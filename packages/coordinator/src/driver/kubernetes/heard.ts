/** What was said of pods in events: the newest of each reason, of the pods of late. */
import { timeOf } from "./view.ts";
import type { EventView, Said } from "./view.ts";

/** Pods whose events are remembered; the one first heard of goes first. */
const MOST = 5000;

export class Heard {
  readonly #said = new Map<string, Map<string, { message: string; at: number }>>();

  of(pod: string): Said {
    return this.#said.get(pod) ?? new Map();
  }

  /** Whether it was news of a sandbox. */
  take(event: EventView): boolean {
    const { name } = event.involvedObject;
    if (!/^sbx-[0-9a-f]{8}-g[0-9]+$/.test(name)) return false;
    const said = this.#said.get(name) ?? new Map<string, { message: string; at: number }>();
    const at = timeOf(event);
    const before = said.get(event.reason);
    if (before && before.at > at) return false;
    // The kubelet says twice that a pull failed: why, and then only that.
    if (before && event.reason === "Failed" && /^Error: \w+$/.test(event.message)) return false;
    said.set(event.reason, { message: event.message, at });
    this.#said.set(name, said);
    for (const oldest of this.#said.keys()) {
      if (this.#said.size <= MOST) break;
      this.#said.delete(oldest);
    }
    return true;
  }

  forget(pod: string): void {
    this.#said.delete(pod);
  }
}
