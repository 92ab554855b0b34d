/**
 * Holds every file of terraform/ to HashiCorp's own parser and formatter, which come as WebAssembly from npm: `terraform fmt
 * -check` without Terraform. `--write` formats them. What needs the providers' schemas (`terraform validate`) is not checked.
 */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { format, parse } from "./hcl.ts";

const { values, positionals } = parseArgs({ options: { write: { type: "boolean" } }, allowPositionals: true });
const folder = positionals[0] ?? new URL("../terraform", import.meta.url).pathname;
const files = (await readdir(folder, { recursive: true })).filter((name) => /\.(?:tf|tfvars)$/.test(name));
if (files.length === 0) throw new Error(`there is no Terraform file in ${folder}`);
for (const name of files.toSorted()) await check(name);
// The WebAssembly keeps its own event loop alive.
process.exit(process.exitCode ?? 0);

async function check(name: string): Promise<void> {
  const path = `${folder}/${name}`;
  const text = await readFile(path, "utf8");
  try {
    await parse(name, text);
    const formatted = await format(text);
    if (formatted === text) return;
    if (values.write) return await writeFile(path, formatted);
    console.error(`${path} is not formatted: run node scripts/check-terraform.ts --write`);
  } catch (error) {
    console.error(`${path} does not parse: ${String(error)}`);
  }
  process.exitCode = 1;
}
