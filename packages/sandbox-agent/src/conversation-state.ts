/**
 * Which conversation the sandbox's harness is in: what a checkpoint records and a terminal resumes. It lies in the home, where
 * the conversation itself is, so that a sandbox which takes over a leftover folder knows it too.
 */
import { join } from "node:path";
import { HarnessName } from "@hangar/shared";
import { z } from "zod";
import { readJson, replaceFile } from "./durable.ts";

const Current = z.strictObject({ harness: HarnessName, session: z.string().max(200).nullable() });
export type Current = z.infer<typeof Current>;

export class Conversation {
  readonly #path: string;
  #current: Current | null;

  constructor(home: string) {
    this.#path = join(home, ".hangar", "conversation.json");
    this.#current = readJson(this.#path, Current);
  }

  get current(): Current | null {
    return this.#current;
  }

  set(current: Current): void {
    this.#current = current;
    try {
      replaceFile(this.#path, JSON.stringify(current));
    } catch {
      // a full disk: known in memory, and the next turn's command says it again
    }
  }
}
