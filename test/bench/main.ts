/**
 * `npm run bench [S|M|L|turn|kubernetes …]`: measures Hangar beside what a user would take instead, in one run, and writes docs/benchmarks.md.
 * Ratios count; absolute times are this machine's.
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, statfs, writeFile } from "node:fs/promises";
import { cpus, tmpdir, totalmem } from "node:os";
import { delimiter, join } from "node:path";
import { agentClis } from "../support/agent-clis.ts";
import { engineRows } from "./engine.ts";
import { idleRows, openRows } from "./live.ts";
import { peerRows } from "./peers.ts";
import type { Row } from "./row.ts";
import { turnRows } from "./turn.ts";
import { makeWorkload, type Size, SHAPES } from "./workload.ts";

type Name = Size | "turn" | "kubernetes";
const NAMES = [...Object.keys(SHAPES), "turn", "kubernetes"];
const given = process.argv.slice(2).filter((arg): arg is Name => NAMES.includes(arg));
const sizes = given.length > 0 ? given : (["S"] as const);
const file = new URL("../../docs/benchmarks.md", import.meta.url);

for (const size of sizes) {
  console.error(`workload ${size} …`);
  const rows = await rowsOf(size);
  const table = tableOf(rows);
  console.log(table);
  await writeSection(size, `${await measured(size)}\n\n${table}`);
}

async function rowsOf(name: Name): Promise<Row[]> {
  if (name === "turn") return turnRows();
  if (name !== "kubernetes") return workRows(name);
  // Loaded only here: the cluster's client is large.
  const { kubernetesRows } = await import("./kubernetes.ts");
  const { manyRows } = await import("./many.ts");
  return [...(await kubernetesRows()), ...(await manyRows())];
}

async function workRows(size: Size): Promise<Row[]> {
  const dir = await mkdtemp(join(tmpdir(), "hangar-bench-"));
  const rows: Row[] = [];
  try {
    const workload = makeWorkload(join(dir, "workload"), size);
    rows.push(...(await engineRows(size, workload, join(dir, "scratch"))));
    rows.push(...(await peerRows(size, workload, join(dir, "peers"))));
    if (size === "S") rows.push(...(await openRows(size, workload)), ...(await idleRows()));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
  return rows;
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

async function measured(size: Name): Promise<string> {
  const machine = `${cpus().length} cores (${cpus()[0]?.model.trim()}), ${Math.round(totalmem() / 2 ** 30)} GiB, files on ${await fileSystem()}`;
  const programs = [
    `Node ${process.versions.node}`,
    version("git", "--version"),
    ...(size === "turn" ? await cliVersions() : peerVersions()),
  ].join(", ");
  return `Measured ${new Date().toISOString().slice(0, 10)} by \`npm run bench ${size}\` on ${machine}; ${programs}. Medians; each ratio is the median of pairs run in turn.`;
}

function version(program: string, ...args: string[]): string {
  return execFileSync(program, args, { encoding: "utf8" }).split("\n")[0]?.trim() ?? "";
}

function peerVersions(): string[] {
  return [version("restic", "version").split(" ").slice(0, 2).join(" "), version("borg", "--version")];
}

async function cliVersions(): Promise<string[]> {
  const folders = (await agentClis()).split(delimiter);
  return ["claude", "codex", "pi"].map(
    (name, i) => `${name} ${version(join(folders[i] ?? "", name), "--version").replace(/[^\d.]/g, "")}`,
  );
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
async function writeSection(size: Name, text: string): Promise<void> {
  const page = await readFile(file, "utf8").catch(() => "# Benchmarks\n");
  const [head = "", ...sections] = page.split(/^(?=## Workload )/m);
  const title = `## Workload ${size}\n`;
  const others = sections.filter((section) => !section.startsWith(title));
  const all = [...others, `${title}\n${text}\n`].map((section) => section.trimEnd()).sort(bySize);
  await writeFile(file, `${[head.trimEnd(), ...all].join("\n\n")}\n`);
}

function bySize(a: string, b: string): number {
  const at = (section: string): number => NAMES.findIndex((size) => section.startsWith(`## Workload ${size}`));
  return at(a) - at(b);
}
