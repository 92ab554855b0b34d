/** Whole workspaces beside restic and borg: first checkpoint, unchanged, a small change, restore; what grows; memory. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFile, mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { inPairs, median, timed } from "./measure.ts";
import { Ours, type Took } from "./ours.ts";
import { ms, type Row } from "./row.ts";
import type { Size, Workload } from "./workload.ts";

const exec = promisify(execFile);
const GROWTH_MB = 280;

interface Bars {
  readonly bytes: number;
  readonly runs: number;
}
const BARS: Partial<Record<Size, Bars>> = { M: { bytes: 0.5, runs: 3 }, L: { bytes: 0.75, runs: 2 } };

export async function peerRows(size: Size, workload: Workload, scratch: string): Promise<Row[]> {
  const bars = BARS[size];
  if (!bars) return [];
  await mkdir(scratch, { recursive: true });
  const peers = await makePeers(workload, scratch);
  const ours = await Ours.start(workload, scratch);
  try {
    return await measure(size, bars, workload, scratch, peers, ours);
  } finally {
    ours.stop();
  }
}

async function measure(
  size: Size,
  bars: Bars,
  workload: Workload,
  scratch: string,
  { restic, borg, backup }: Peers,
  ours: Ours,
): Promise<Row[]> {
  const rows: Row[] = [];
  const row = (what: string, values: Omit<Row, "size" | "what">): void => void rows.push({ size, what, ...values });
  const compare = (what: string, a: number, b: number, ratio: number, most: number): void =>
    row(what, { ours: ms(a), theirs: ms(b), ratio: ratio.toFixed(2), bar: `≤ ${most}`, met: ratio <= most });
  const note = (what: string, a: number, b: number): void =>
    row(what, { ours: ms(a), theirs: ms(b), ratio: (a / b).toFixed(2), bar: "-", met: true });

  const first = (await ours.ask("take")).ms;
  const resticFirst = await timed(() => restic("backup", "-q", workload.repo, workload.home));
  const borgFirst = await timed(() => borg("create", "::first", workload.repo, workload.home));
  const tar = await timed(() =>
    exec("sh", [
      "-c",
      'tar -C "$1" -cf - repo home | zstd -q -T0 -f -o "$2"',
      "sh",
      workload.dir,
      join(scratch, "all"),
    ]),
  );
  compare("first checkpoint, sealed and proved, beside restic", first, resticFirst, first / resticFirst, 0.7);
  note("… beside borg", first, borgFirst);
  note("… beside `tar \\| zstd` of everything", first, tar);

  const unchanged = await inPairs(bars.runs, {
    ours: async () => {
      if (!(await ours.ask("check")).unchanged) throw new Error("taken for changed");
    },
    theirs: () => restic("backup", "-q", workload.repo, workload.home),
  });
  compare("check that nothing changed, beside restic", unchanged.ours, unchanged.theirs, unchanged.ratio, 0.15);

  const sent: number[] = [];
  const kept: number[] = [];
  let borgChange = 0;
  let count = 0;
  const change = await inPairs(bars.runs, {
    before: async () => workload.change(),
    ours: async () => {
      const { bytes, unchanged } = await ours.ask("check");
      if (unchanged) throw new Error("taken for unchanged");
      sent.push(bytes);
    },
    theirs: async () => {
      const before = await sizeOf(backup);
      await restic("backup", "-q", workload.repo, workload.home);
      kept.push((await sizeOf(backup)) - before);
    },
  });
  borgChange = await timed(() => borg("create", `::change-${count++}`, workload.repo, workload.home));
  compare("checkpoint after a small change, beside restic", change.ours, change.theirs, change.ratio, 0.3);
  note("… beside borg", change.ours, borgChange);
  const byteRatio = median(sent.map((bytes, i) => bytes / (kept[i] ?? 1)));
  row("… bytes sent, beside what restic adds", {
    ours: kib(median(sent)),
    theirs: kib(median(kept)),
    ratio: byteRatio.toFixed(2),
    bar: `≤ ${bars.bytes}`,
    met: byteRatio <= bars.bytes,
  });

  const restored = { repo: join(scratch, "restored", "repo"), home: join(scratch, "restored", "home") };
  const theirs = join(scratch, "restic-restored");
  const fresh = async (how: "cold" | "warm"): Promise<void> => {
    await rm(join(scratch, "restored"), { recursive: true, force: true });
    await rm(theirs, { recursive: true, force: true });
    await mkdir(restored.home, { recursive: true });
    await ours.boot(how);
  };
  const clone = (): Promise<unknown> => exec("git", ["clone", "-q", `file://${workload.origin}`, restored.repo]);
  const restoring = await inPairs(size === "L" ? 1 : bars.runs, {
    before: () => fresh("cold"),
    ours: () => ours.restore("open", restored),
    theirs: () => restic("restore", "-q", "latest", "--target", theirs),
  });
  await mustBeEqual(workload, restored);
  compare(
    "restore into a fresh clone, the clone too, beside restic",
    restoring.ours,
    restoring.theirs,
    restoring.ratio,
    0.7,
  );
  const warm: number[] = [];
  for (let i = 0; i < bars.runs; i++) {
    await fresh("warm");
    await clone();
    warm.push(await ours.restore("restore", restored));
  }
  await mustBeEqual(workload, restored);
  const warmRatio = median(warm) / restoring.theirs;
  if (size === "M")
    compare(
      "restore into a clone that is there (a warm sandbox), beside restic",
      median(warm),
      restoring.theirs,
      warmRatio,
      0.2,
    );
  else note("restore into a clone that is there (a warm sandbox), beside restic", median(warm), restoring.theirs);
  const peakMb = ours.peakMb;
  row("peak memory of all of that", {
    ours: `${peakMb.toFixed(0)} MB`,
    theirs: "-",
    ratio: "-",
    bar: "≤ 200 MB",
    met: peakMb <= 200,
  });
  if (size === "M") rows.push(...(await growth(size, workload, scratch)));
  return rows;
}

/** The cost of 50 KB more in a conversation of 20 MB, and in one of 300 MB. */
async function growth(size: Size, workload: Workload, scratch: string): Promise<Row[]> {
  // Each from a first checkpoint on, so that they differ in nothing but the conversation's length.
  const append = async (at: string): Promise<{ ms: number; bytes: number }> => {
    await mkdir(at);
    const ours = await Ours.start(workload, at);
    await ours.ask("take");
    const all: Took[] = [];
    for (let i = 0; i < 5; i++) {
      await appendFile(workload.conversation, line(50_000));
      all.push(await ours.ask("check"));
    }
    ours.stop();
    return { ms: median(all.map((one) => one.ms)), bytes: median(all.map((one) => one.bytes)) };
  };
  const small = await append(join(scratch, "short"));
  for (let i = 0; i < GROWTH_MB; i++) await appendFile(workload.conversation, line(1_000_000));
  const large = await append(join(scratch, "long"));
  const [time, bytes] = [large.ms / small.ms, large.bytes / small.bytes];
  const row = (what: string, a: string, b: string, ratio: number, most: number): Row => ({
    size,
    what,
    ours: a,
    theirs: b,
    ratio: ratio.toFixed(2),
    bar: `≤ ${most}`,
    met: ratio <= most,
  });
  return [
    row("50 KB more of conversation: at 300 MB, beside at 20 MB", ms(large.ms), ms(small.ms), time, 1.3),
    row("… bytes sent", kib(large.bytes), kib(small.bytes), bytes, 1.1),
  ];
}

let seed = 1;
/** JSON that compresses as prose does. */
function line(bytes: number): string {
  let text = "";
  while (text.length < bytes) {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    text += `${(seed % 9973).toString(36)} `;
  }
  return `${JSON.stringify({ type: "assistant", text: text.slice(0, bytes - 40) })}\n`;
}

interface Peers {
  readonly restic: (...args: string[]) => Promise<unknown>;
  readonly borg: (...args: string[]) => Promise<unknown>;
  /** restic's repository. */
  readonly backup: string;
}

async function makePeers(workload: Workload, scratch: string): Promise<Peers> {
  const backup = join(scratch, "restic");
  const env = {
    PATH: process.env["PATH"],
    HOME: scratch,
    LANG: "C.UTF-8",
    RESTIC_PASSWORD: "made up",
    RESTIC_REPOSITORY: backup,
    RESTIC_CACHE_DIR: join(scratch, "restic-cache"),
    BORG_PASSPHRASE: "made up",
    BORG_REPO: join(scratch, "borg"),
    BORG_BASE_DIR: join(scratch, "borg-base"),
  };
  const options = { env, cwd: workload.dir, maxBuffer: 64 << 20 };
  await exec("restic", ["init", "-q"], options);
  await exec("borg", ["init", "-e", "repokey-blake2"], options);
  return {
    backup,
    restic: (...args) => exec("restic", args, options),
    borg: (...args) => exec("borg", args, options),
  };
}

async function sizeOf(folder: string): Promise<number> {
  let sum = 0;
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile()) sum += (await stat(join(entry.parentPath, entry.name))).size;
  return sum;
}

/** By git's word and by bytes, not by the restore's own. */
async function mustBeEqual(workload: Workload, restored: { repo: string; home: string }): Promise<void> {
  const look = async (repo: string): Promise<string> =>
    (
      await exec(
        "sh",
        ["-c", "git rev-parse HEAD; git symbolic-ref HEAD; git ls-files -s | sha256sum; git status --porcelain"],
        { cwd: repo, maxBuffer: 64 << 20 },
      )
    ).stdout;
  const [a, b] = await Promise.all([look(workload.repo), look(restored.repo)]);
  if (a !== b) throw new Error("the restored repository is not the same");
  await exec("diff", ["-rq", "--exclude=.git", workload.repo, restored.repo]);
  const sum = async (home: string): Promise<string> => {
    const path = join(home, workload.conversation.slice(workload.home.length + 1));
    return createHash("sha256")
      .update(await readFile(path))
      .digest("hex");
  };
  if ((await sum(workload.home)) !== (await sum(restored.home))) throw new Error("the conversation is not the same");
}

const kib = (bytes: number): string => `${Math.round(bytes / 1024)} KiB`;
