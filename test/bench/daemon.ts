/**
 * A process that takes and restores one workspace's checkpoints as the daemon does, warm between calls, told what to do over
 * IPC; apart from the benchmark's own, so that its memory is its own. `open` clones and restores side by side, as a start
 * does; `warm` does what a sandbox that waits for a session does ahead. Messages are answered one at a time.
 */
import { cp, mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { newCheckpointId } from "@hangar/shared";
import { createCheckpoint, createMemory, restoreCheckpoint } from "@hangar/sandbox-agent/checkpoint/engine";
import { cloneWorkspace } from "@hangar/sandbox-agent/clone";
import { rehearse } from "@hangar/sandbox-agent/warm/rehearse";
import type { CreateOptions, Workspace } from "@hangar/sandbox-agent/checkpoint/engine";

export interface Asked {
  readonly repo: string;
  readonly home: string;
  readonly scratch: string;
  /** Where every object of the session's checkpoints lies, by name: the store. */
  readonly store: string;
  readonly recipients: readonly string[];
  readonly identity: string;
  readonly what: "take" | "check" | "restore" | "open" | "warm";
  /** What `open` clones. */
  readonly origin: string;
  /** What is restored: a checkpoint's meta in the store. */
  readonly meta: string;
}

export interface Answered {
  readonly error?: string;
  readonly ms: number;
  readonly bytes: number;
  readonly unchanged: boolean;
  readonly verified: boolean;
  /** The newest checkpoint's meta in the store. */
  readonly meta: string;
  /** Highest resident set so far, MB. */
  readonly peakMb: number;
  /** By phase. */
  readonly seconds: Readonly<Record<string, number>>;
}

const NOTHING: Answered = { ms: 0, bytes: 0, unchanged: false, verified: false, meta: "", peakMb: 0, seconds: {} };
const limits = { maxUntrackedBytes: 1e15, maxPartBytes: 1e15 };
const memory = createMemory();
let parent: CreateOptions["parent"] = null;
let meta = "";

process.on("message", (asked: Asked) => {
  void answer(asked).then(
    (answered) => process.send?.(answered),
    (error: unknown) => process.send?.({ ...NOTHING, error: String(error) }),
  );
});

async function answer(asked: Asked): Promise<Answered> {
  const ws: Workspace = { ...asked, harness: "claude", keepIgnored: [], memory };
  if (asked.what === "warm") {
    await rehearse(asked.scratch);
    return { ...NOTHING, peakMb: await peak() };
  }
  const start = performance.now();
  let [bytes, unchanged, verified] = [0, false, true];
  let seconds: Answered["seconds"] = {};
  if (asked.what === "restore" || asked.what === "open") {
    const cloned = asked.what === "open" ? clone(asked) : null;
    const restored = await restoreCheckpoint(ws, {
      meta: await readFile(join(asked.store, asked.meta)),
      source: (part) => ({ path: join(asked.store, part.file) }),
      identities: [asked.identity],
      force: true,
      ...(cloned && { cloned }),
    });
    ({ verified, seconds } = restored.report);
    if (!verified) throw new Error(`not verified: ${restored.report.differs.slice(0, 3).join("; ")}`);
  } else {
    const out = join(asked.scratch, "out");
    await rm(out, { recursive: true, force: true });
    const result = await createCheckpoint(ws, {
      checkpoint: newCheckpointId(Date.now()),
      session: null,
      generation: 1,
      reason: "interval",
      parent,
      ifChanged: asked.what === "check",
      recipients: asked.recipients,
      limits,
      harnessSession: null,
      turn: null,
      quiesced: false,
      prove: true,
      standalone: true,
      out,
    });
    unchanged = result.outcome === "unchanged";
    if (result.outcome === "made") {
      // What a daemon sends away.
      await mkdir(asked.store, { recursive: true });
      const { objects, metaObject, next, report } = result.made;
      meta = metaObject.file;
      for (const { path, file } of objects) await cp(path, join(asked.store, file));
      await cp(join(out, meta), join(asked.store, meta));
      parent = next;
      bytes = report.new_bytes;
    }
  }
  const ms = performance.now() - start;
  return { ms, bytes, unchanged, verified, meta, peakMb: await peak(), seconds };
}

const clone = ({ origin, repo }: Asked): Promise<unknown> =>
  cloneWorkspace({
    repo: `file://${origin}`,
    baseBranch: null,
    branch: null,
    cwd: repo,
    env: { PATH: process.env["PATH"] ?? "" },
    redact: (text) => text,
    signal: new AbortController().signal,
    baseMayBeGone: true,
  });

async function peak(): Promise<number> {
  const status = await readFile("/proc/self/status", "utf8");
  return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) / 1024;
}

process.send?.("ready");
