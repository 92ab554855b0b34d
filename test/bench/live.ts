/** A real coordinator: opening a suspended session beside `git clone`, and what it costs to do nothing. */
import { execFile } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { sleep, startHangar } from "../support/hangar.ts";
import { inPairs } from "./measure.ts";
import { cpuSeconds, residentMb } from "./process.ts";
import { ms, type Row } from "./row.ts";
import type { Workload } from "./workload.ts";

const exec = promisify(execFile);

export async function openRows(size: string, workload: Workload): Promise<Row[]> {
  const hangar = await startHangar();
  try {
    await hangar.api("POST", "/api/sessions", {
      name: "bench",
      repo: workload.origin,
      harness: "script",
      idle_minutes: 0,
    });
    // the workload's own work, put into the session by hand
    const session = await hangar.until("bench", "ready", (s) => s.state === "IDLE");
    const sandbox = join(hangar.dataDir, "sandboxes", session.sandbox_id ?? "");
    await exec("sh", [
      "-c",
      'for f in $(git -C "$1" diff --name-only origin/main); do cp "$1/$f" "$2/$f"; done; mkdir -p "$4/.claude/projects" && cp -r "$3/.claude/projects/." "$4/.claude/projects/"',
      "sh",
      workload.repo,
      join(sandbox, "workspace/origin"),
      workload.home,
      join(sandbox, "home"),
    ]);
    const clone = join(hangar.dir, "clone");
    const opened = await inPairs(7, {
      before: async () => {
        await hangar.api("POST", "/api/sessions/bench/suspend", {});
        await hangar.until("bench", "suspended", (s) => s.state === "SUSPENDED");
        await rm(clone, { recursive: true, force: true });
      },
      ours: async () => {
        const ran = await hangar.cli(["session", "open", "bench", "--wait"]);
        if (ran.code !== 0) throw new Error(ran.stderr);
      },
      theirs: () => exec("git", ["clone", "-q", `file://${workload.origin}`, clone]),
    });
    return [
      {
        size,
        what: "`hangar session open` of a suspended session, command to ready, beside `git clone`",
        ours: ms(opened.ours),
        theirs: ms(opened.theirs),
        ratio: opened.ratio.toFixed(2),
        bar: "≤ clone + 1.0 s",
        met: opened.ours <= opened.theirs + 1000,
      },
    ];
  } finally {
    await hangar.close();
  }
}

export async function idleRows(): Promise<Row[]> {
  const hangar = await startHangar();
  try {
    await sleep(10_000);
    const seconds = 60;
    const before = await cpuSeconds(hangar.replica.pid);
    await sleep(seconds * 1000);
    const share = ((await cpuSeconds(hangar.replica.pid)) - before) / seconds;
    const mb = await residentMb(hangar.replica.pid);
    return [
      {
        size: "-",
        what: "the idle coordinator: share of one CPU over a minute, memory",
        ours: `${(share * 100).toFixed(2)} %, ${mb.toFixed(0)} MB`,
        theirs: "-",
        ratio: "-",
        bar: "≤ 1 %, ≤ 150 MB",
        met: share <= 0.01 && mb <= 150,
      },
    ];
  } finally {
    await hangar.close();
  }
}
