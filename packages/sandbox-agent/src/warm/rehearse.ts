/**
 * A checkpoint and a restore of a small repository, made up for it, start to end: what a session's restore runs is then loaded
 * and compiled before there is a session to wait for it. It leaves nothing.
 */
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCheckpointId } from "@hangar/shared";
import { generateX25519Identity, identityToRecipient } from "age-encryption";
import { createCheckpoint, createMemory, DEFAULT_LIMITS, restoreCheckpoint } from "../checkpoint/engine.ts";
import type { Workspace } from "../checkpoint/engine.ts";
import { fixedEnv, git } from "../checkpoint/git.ts";
import { rawFrom } from "../checkpoint/raw.ts";

/** Enough for loops over files to be compiled. */
const FILES = 400;
const TIMES = 3;

/** @param folder of the caller, for temporary files. Rejects where something of it does not work here, or with the signal's reason. */
export async function rehearse(folder: string, signal?: AbortSignal): Promise<void> {
  const at = join(folder, `rehearsal-${randomUUID()}`);
  try {
    await new Rehearsal(at, signal).run();
  } finally {
    rmSync(at, { recursive: true, force: true });
  }
}

class Rehearsal {
  readonly #at: string;
  readonly #signal: AbortSignal | undefined;

  constructor(at: string, signal: AbortSignal | undefined) {
    this.#at = at;
    this.#signal = signal;
  }

  async run(): Promise<void> {
    await this.#makeOrigin();
    const identity = await generateX25519Identity();
    const recipient = await identityToRecipient(identity);
    const from = await this.#clone("from");
    this.#work(from);
    const out = join(this.#at, "out");
    const result = await createCheckpoint(from, {
      checkpoint: newCheckpointId(Date.now()),
      session: null,
      generation: 1,
      reason: "interval",
      parent: null,
      ifChanged: false,
      recipients: [recipient],
      limits: DEFAULT_LIMITS,
      harnessSession: null,
      turn: null,
      quiesced: true,
      prove: true,
      out,
      ...(this.#signal && { signal: this.#signal }),
    });
    if (result.outcome === "unchanged") return;
    for (let i = 0; i < TIMES; i++) {
      this.#signal?.throwIfAborted();
      await restoreCheckpoint(await this.#clone(`to-${i}`), {
        meta: readFileSync(join(out, result.made.metaObject.file)),
        source: ({ file }) => ({ path: join(out, file) }),
        identities: [identity],
        force: false,
        ...(this.#signal && { signal: this.#signal }),
      });
    }
  }

  async #makeOrigin(): Promise<void> {
    const origin = join(this.#at, "origin");
    for (let i = 0; i < FILES; i++) {
      const below = join(origin, `${i % 7}/${i % 3}`);
      mkdirSync(below, { recursive: true });
      writeFileSync(join(below, `${i}`), `${i}\n`.repeat(20));
    }
    const who = ["-c", "user.name=Hangar", "-c", "user.email=hangar@localhost"];
    await this.#git(origin, "init", "-q", "--template=", "-b", "main");
    await this.#git(origin, "add", "-A");
    await this.#git(origin, ...who, "commit", "-q", "--no-verify", "-m", "rehearsal");
  }

  async #clone(name: string): Promise<Workspace> {
    const [repo, home] = [join(this.#at, name, "repo"), join(this.#at, name, "home")];
    mkdirSync(home, { recursive: true });
    await this.#git(this.#at, "clone", "-q", "--template=", `file://${this.#at}/origin`, repo);
    const scratch = join(this.#at, name, "scratch");
    return { repo, home, harness: "script", keepIgnored: [], scratch, memory: createMemory() };
  }

  /** Changed, new and removed files, and a conversation. */
  #work({ repo, home }: Workspace): void {
    for (let i = 0; i < 40; i++) {
      writeFileSync(join(repo, `${i % 7}/${i % 3}/${i}`), "changed\n");
      writeFileSync(join(repo, `new-${i}`), "new\n");
    }
    rmSync(join(repo, "6/2"), { recursive: true, force: true });
    const conversation = join(home, ".claude/projects/-rehearsal");
    mkdirSync(conversation, { recursive: true });
    writeFileSync(join(conversation, `${randomUUID()}.jsonl`), `${JSON.stringify({ type: "user" })}\n`.repeat(1000));
  }

  async #git(cwd: string, ...args: string[]): Promise<void> {
    await git(args, { env: fixedEnv(this.#at), cwd: rawFrom(cwd), signal: this.#signal });
  }
}
