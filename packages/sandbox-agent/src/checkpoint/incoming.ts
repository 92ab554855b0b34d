/** Objects that are on their way into a repository, which does not see them before they are accepted: as git has it for pushes. */
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { type GitDirs, quoteLine } from "./git.ts";
import { bytesOf, fsPath, type Raw, stringPath } from "./raw.ts";

export class Incoming {
  readonly #objects: Raw;
  readonly #folder: Raw;
  /** For git processes that see both. */
  readonly env: Record<string, string>;

  constructor({ commonDir }: GitDirs, env: Readonly<Record<string, string>>) {
    this.#objects = `${commonDir}/objects`;
    this.#folder = `${this.#objects}/tmp_objdir-hangar`;
    this.env = { ...env, GIT_OBJECT_DIRECTORY: stringPath(this.#folder) };
    this.remove();
    for (const name of ["/info", "/pack"]) mkdirSync(fsPath(this.#folder + name), { recursive: true });
    writeFileSync(fsPath(`${this.#folder}/info/alternates`), bytesOf(`${quoteLine(this.#objects)}\n`));
  }

  promise(pack: string): void {
    writeFileSync(fsPath(`${this.#folder}/pack/pack-${pack}.promisor`), "");
  }

  accept(): void {
    const names = readdirSync(fsPath(`${this.#folder}/pack`), { encoding: "latin1" });
    // A pack is there once its index is.
    for (const name of names.sort((a, b) => Number(a.endsWith(".idx")) - Number(b.endsWith(".idx"))))
      renameSync(fsPath(`${this.#folder}/pack/${name}`), fsPath(`${this.#objects}/pack/${name}`));
  }

  remove(): void {
    rmSync(fsPath(this.#folder), { recursive: true, force: true });
  }
}
