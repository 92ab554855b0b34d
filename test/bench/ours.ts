/**
 * Hangar's side of a comparison: daemon.ts in processes of its own, bundled as what ships is, with the daemon's flags. One
 * takes checkpoints, as a session's sandbox does; each restore has a new one, as a sandbox that is opened has.
 */
import { execFile, fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { AGENT_MALLOC, AGENT_NODE_FLAGS } from "@hangar/shared";
import { BULK, bundle } from "../../scripts/bundle.ts";
import type { Answered, Asked } from "./daemon.ts";
import { timed } from "./measure.ts";
import type { Workload } from "./workload.ts";

const exec = promisify(execFile);

export type Took = Pick<Answered, "ms" | "bytes" | "unchanged">;

export class Ours {
  /** The highest of any of its processes. */
  peakMb = 0;
  #meta = "";
  readonly #program: string;
  readonly #asked: Omit<Asked, "what" | "meta">;
  readonly #taking: ChildProcess;
  #restoring: ChildProcess | null = null;

  static async start({ repo, home, origin }: Workload, scratch: string): Promise<Ours> {
    await exec("age-keygen", ["-o", join(scratch, "key")]);
    const identity = /AGE-SECRET-KEY-\S+/.exec(await readFile(join(scratch, "key"), "utf8"))?.[0] ?? "";
    const recipient = (await exec("age-keygen", ["-y", join(scratch, "key")])).stdout.trim();
    await bundle({ daemon: fileURLToPath(new URL("daemon.ts", import.meta.url)), "hangar-agent-bulk": BULK }, scratch);
    const program = join(scratch, "daemon.mjs");
    const place = { scratch: join(scratch, "daemon"), store: join(scratch, "store") };
    const asked = { repo, home, origin, ...place, recipients: [recipient, recipient], identity };
    return new Ours(program, asked, await started(program));
  }

  private constructor(program: string, asked: Omit<Asked, "what" | "meta">, taking: ChildProcess) {
    this.#program = program;
    this.#asked = asked;
    this.#taking = taking;
  }

  async ask(what: "take" | "check"): Promise<Took> {
    const answered = await this.#tell(this.#taking, { ...this.#asked, what, meta: "" });
    this.#meta = answered.meta;
    return answered;
  }

  /**
   * Starts what the next restore runs in, which is not timed.
   * @param how `cold`: a daemon that has just started; `warm`: one that has waited for a session
   */
  async boot(how: "cold" | "warm"): Promise<void> {
    this.#restoring?.kill();
    this.#restoring = await started(this.#program);
    if (how === "warm") await this.#tell(this.#restoring, { ...this.#asked, what: "warm", meta: "" });
  }

  /** Restores the newest checkpoint there, once for each `boot`. Gives ms. */
  async restore(what: "restore" | "open", at: { repo: string; home: string }): Promise<number> {
    const child = this.#restoring;
    if (!child) throw new Error("nothing is booted to restore in");
    this.#restoring = null;
    const asked = { ...this.#asked, ...at, scratch: `${this.#asked.scratch}-restoring`, what, meta: this.#meta };
    try {
      return await timed(() => this.#tell(child, asked));
    } finally {
      child.kill();
    }
  }

  async #tell(child: ChildProcess, asked: Asked): Promise<Answered> {
    child.send(asked);
    const answered = (await messageOf(child)) as Answered;
    if (answered.error !== undefined) throw new Error(answered.error);
    this.peakMb = Math.max(this.peakMb, answered.peakMb);
    return answered;
  }

  stop(): void {
    this.#taking.kill();
    this.#restoring?.kill();
  }
}

async function started(program: string): Promise<ChildProcess> {
  const child = fork(program, {
    execArgv: [...AGENT_NODE_FLAGS],
    env: { ...process.env, ...AGENT_MALLOC },
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  await messageOf(child);
  return child;
}

async function messageOf(child: ChildProcess): Promise<unknown> {
  const ended = new AbortController();
  try {
    const [message] = (await Promise.race([
      once(child, "message", { signal: ended.signal }),
      once(child, "exit", { signal: ended.signal }).then(() => {
        throw new Error("the checkpointing process ended");
      }),
    ])) as [unknown];
    return message;
  } finally {
    ended.abort();
  }
}
