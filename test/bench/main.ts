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

const sizes = process.argv.slice(2).filter((arg): arg is Size => arg in SHAPES);
const rows: Row[] = [];
for (const size of sizes.length > 0 ? sizes : (["S"] as const)) {
  const dir = await mkdtemp(join(tmpdir(), "hangar-bench-"));
  try {
    console.error(`workload ${size} …`);
    const workload = makeWorkload(join(dir, "workload"), size);
    rows.push(...(await engineRows(size, workload, join(dir, "scratch"))));
    rows.push(...(await peerRows(size, workload, join(dir, "peers"))));
    if (size === "S") rows.push(...(await openRows(size, workload)));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
rows.push(...(await idleRows()));

const table = [
  "| workload | what | Hangar | beside it | ratio | bar | met |",
  "|---|---|---|---|---|---|---|",
  ...rows.map(
    (r) => `| ${r.size} | ${r.what} | ${r.ours} | ${r.theirs} | ${r.ratio} | ${r.bar} | ${r.met ? "yes" : "**no**"} |`,
  ),
].join("\n");
console.log(table);

async function fileSystem(): Promise<string> {
  const { type } = await statfs(tmpdir());
  return (
    { 0x01_02_19_94: "tmpfs", 0xef_53: "ext4", 0x9123_683e: "btrfs", 0x5846_5342: "xfs" }[type] ??
    `0x${type.toString(16)}`
  );
}

const file = new URL("../../docs/benchmarks.md", import.meta.url);
const version = (program: string, ...args: string[]): string =>
  execFileSync(program, args, { encoding: "utf8" }).split("\n")[0]?.trim() ?? "";
const page = await readFile(file, "utf8").catch(() => "");
const head = page.split("<!-- table -->")[0]?.trimEnd() || "# Benchmarks";
await writeFile(
  file,
  `${head}

<!-- table -->
Measured ${new Date().toISOString().slice(0, 10)} by \`npm run bench ${sizes.join(" ")}\` on ${cpus().length} cores (${cpus()[0]?.model.trim()}), ${Math.round(totalmem() / 2 ** 30)} GiB, files on ${await fileSystem()}; Node ${process.versions.node}, ${version("git", "--version")}, ${version("redis-server", "--version").split(" ").slice(0, 3).join(" ")}. Medians; each ratio is the median of pairs run in turn.

${table}
`,
);
