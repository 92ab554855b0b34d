/**
 * `npm run bench [S|M|L …]`: measures Hangar beside what a user would take instead, in one run, and writes docs/benchmarks.md.
 * Ratios count; absolute times are this machine's.
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, statfs, writeFile } from "node:fs/promises";
import { cpus, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { engineRows } from "./engine.ts";
import { idleRows, openRows } from "./live.ts";
import { peerRows } from "./peers.ts";
import type { Row } from "./row.ts";
import { makeWorkload, type Size, SHAPES } from "./workload.ts";

const given = process.argv.slice(2).filter((arg): arg is Size => arg in SHAPES);
const sizes = given.length > 0 ? given : (["S"] as const);
const file = new URL("../../docs/benchmarks.md", import.meta.url);

for (const size of sizes) {
  const dir = await mkdtemp(join(tmpdir(), "hangar-bench-"));
  const rows: Row[] = [];
  try {
    console.error(`workload ${size} …`);
    const workload = makeWorkload(join(dir, "workload"), size);
    rows.push(...(await engineRows(size, workload, join(dir, "scratch"))));
    rows.push(...(await peerRows(size, workload, join(dir, "peers"))));
    if (size === "S") rows.push(...(await openRows(size, workload)), ...(await idleRows()));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
  const table = tableOf(rows);
  console.log(table);
  await writeSection(size, `${await measured(size)}\n\n${table}`);
}

function tableOf(rows: readonly Row[]): string {
  return [
    "| workload | what | Hangar | beside it | ratio | bar | met |",
    "|---|---|---|---|---|---|---|",
    ...rows.map(
      (r) =>
        `| ${r.size} | ${r.what} | ${r.ours} | ${r.theirs} | ${r.ratio} | ${r.bar} | ${r.met ? "yes" : "**no**"} |`,
    ),
  ].join("\n");
}

async function measured(size: Size): Promise<string> {
  const version = (program: string, ...args: string[]): string =>
    execFileSync(program, args, { encoding: "utf8" }).split("\n")[0]?.trim() ?? "";
  const machine = `${cpus().length} cores (${cpus()[0]?.model.trim()}), ${Math.round(totalmem() / 2 ** 30)} GiB, files on ${await fileSystem()}`;
  const programs = [
    `Node ${process.versions.node}`,
    version("git", "--version"),
    version("restic", "version").split(" ").slice(0, 2).join(" "),
    version("borg", "--version"),
  ].join(", ");
  return `Measured ${new Date().toISOString().slice(0, 10)} by \`npm run bench ${size}\` on ${machine}; ${programs}. Medians; each ratio is the median of pairs run in turn.`;
}

async function fileSystem(): Promise<string> {
  const { type } = await statfs(tmpdir());
  const names: Record<number, string> = {
    0x01_02_19_94: "tmpfs",
    0xef_53: "ext4",
    0x91_23_68_3e: "btrfs",
    0x58_46_53_42: "xfs",
  };
  return names[type] ?? `0x${type.toString(16)}`;
}

/** One section a workload; the others stay as they were measured. */
async function writeSection(size: Size, text: string): Promise<void> {
  const page = await readFile(file, "utf8").catch(() => "# Benchmarks\n");
  const [head = "", ...sections] = page.split(/^(?=## Workload )/m);
  const title = `## Workload ${size}\n`;
  const others = sections.filter((section) => !section.startsWith(title));
  const all = [...others, `${title}\n${text}\n`].map((section) => section.trimEnd()).sort(bySize);
  await writeFile(file, `${[head.trimEnd(), ...all].join("\n\n")}\n`);
}

function bySize(a: string, b: string): number {
  const at = (section: string): number =>
    Object.keys(SHAPES).findIndex((size) => section.startsWith(`## Workload ${size}`));
  return at(a) - at(b);
}
