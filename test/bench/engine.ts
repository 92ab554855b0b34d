/** The engine, warm and in process as in the daemon: the unchanged check and the checkpoint of a small change. */
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { newCheckpointId } from "@hangar/shared";
import { createCheckpoint, createMemory } from "@hangar/sandbox-agent/checkpoint/engine";
import type { CreateOptions, MadeCheckpoint, Workspace } from "@hangar/sandbox-agent/checkpoint/engine";
import { inPairs } from "./measure.ts";
import { ms, type Row } from "./row.ts";
import type { Workload } from "./workload.ts";

const exec = promisify(execFile);
/** Limits off: everything travels. */
const limits = { maxUntrackedBytes: 1e15, maxPartBytes: 1e15 };

export async function engineRows(size: string, workload: Workload, scratch: string): Promise<Row[]> {
  await mkdir(scratch, { recursive: true });
  await exec("age-keygen", ["-o", join(scratch, "key")]);
  const recipients = [(await exec("age-keygen", ["-y", join(scratch, "key")])).stdout.trim()];
  const ws: Workspace = {
    repo: workload.repo,
    home: workload.home,
    harness: "claude",
    keepIgnored: [],
    scratch,
    memory: createMemory(),
  };
  let parent: CreateOptions["parent"] = null;
  // A folder each, as in the daemon, which removes one once it is uploaded.
  let count = 0;
  const take = async (ifChanged: boolean): Promise<MadeCheckpoint | null> => {
    const out = join(scratch, `out-${count++}`);
    const result = await createCheckpoint(ws, {
      checkpoint: newCheckpointId(Date.now()),
      session: null,
      generation: 1,
      reason: "interval",
      parent,
      ifChanged,
      recipients,
      limits,
      harnessSession: null,
      turn: null,
      quiesced: false,
      prove: true,
      out,
    });
    if (result.outcome === "unchanged") return null;
    parent = result.made.next;
    return result.made;
  };
  await take(false);

  const unchanged = await inPairs(15, {
    ours: async () => {
      if ((await take(true)) !== null) throw new Error("taken for changed");
    },
    theirs: () => exec("git", ["-C", workload.repo, "status", "--porcelain"]),
  });

  let bytes = 0;
  const names = (): Promise<string> =>
    exec("git", ["-C", workload.repo, "diff", "--name-only", "HEAD"]).then((ran) => ran.stdout);
  let list = "";
  const checkpoint = await inPairs(9, {
    before: async () => {
      workload.change();
      list = await names();
    },
    ours: async () => {
      const made = await take(true);
      if (made === null) throw new Error("taken for unchanged");
      bytes = made.report.new_bytes;
    },
    theirs: () =>
      exec("sh", [
        "-c",
        'cd "$1" && { printf %s "$2" | tr "\\n" "\\000"; printf "%s\\0" "$3"; } | tar --null -cf - -T - 2>/dev/null | zstd -1 -q > "$4"',
        "sh",
        workload.repo,
        list,
        workload.conversation,
        join(scratch, "tar.zst"),
      ]),
  });
  return [
    {
      size,
      what: "check that nothing changed, beside `git status`",
      ours: ms(unchanged.ours),
      theirs: ms(unchanged.theirs),
      ratio: unchanged.ratio.toFixed(2),
      bar: size === "S" ? "≤ 3, ≤ 100 ms" : "≤ 3",
      met: unchanged.ratio <= 3 && (size !== "S" || unchanged.ours <= 100),
    },
    {
      size,
      what: `checkpoint of a small change, sealed and proved (${Math.round(bytes / 1024)} KiB), beside \`tar \\| zstd\` of the changed files and the conversation`,
      ours: ms(checkpoint.ours),
      theirs: ms(checkpoint.theirs),
      ratio: checkpoint.ratio.toFixed(2),
      bar: "≤ 3",
      met: checkpoint.ratio <= 3,
    },
  ];
}
