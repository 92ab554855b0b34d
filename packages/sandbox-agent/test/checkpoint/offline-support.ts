/** For tests of bad input to the real commands: checkpoints to spoil, targets, and what a refusal is. */
import { execFileSync } from "node:child_process";
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { generateIdentity, identityToRecipient } from "age-encryption";
import { expect, test } from "vitest";
import { agent } from "./command.ts";
import { put } from "./forging.ts";
import { clone, digest, place, type Place, shell } from "./support.ts";

export const CONVERSATION = ".claude/projects/-w/11111111-1111-4111-8111-111111111111.jsonl";
let template: Place;
let count = 0;

export async function prepare(): Promise<void> {
  template = place();
  const identity = await generateIdentity();
  const recipient = await identityToRecipient(identity);
  shell(
    template,
    `echo u >u; echo c >c; git add c; git commit -qm c; echo e >>a.txt
     mkdir -p "$(dirname $HOME/${CONVERSATION})"; echo '{}' >$HOME/${CONVERSATION}
     mkdir $D/parts; echo ${identity} >$D/parts/key; echo ${await generateIdentity()} >$D/parts/other-key`,
  );
  const from = ["snapshot", "--repo", template.repo, "--home", template.home, "--out"];
  expect(agent(template, ...from, join(template.folder, "parts/from")).code).toBe(0);
  expect(agent(template, ...from, join(template.folder, "parts/sealed"), "--recipient", recipient).code).toBe(0);
  // The place that the checkpoint was taken at is free for the restores.
  shell(
    template,
    "mv repo taken; mv home taken-home; mkdir home parts/outside; echo keep >parts/outside/keep",
    template.folder,
  );
  clone(template);
  shell(template, "mkdir targets; mv repo home targets", template.folder);
}

/** A folder with a fresh clone, a home, a plain and a sealed checkpoint to spoil, and something beside them. */
export function fresh(): Place & { from: string } {
  const folder = join(template.folder, `test-${count++}`);
  mkdirSync(folder);
  execFileSync("cp", ["-a", `${template.folder}/parts/.`, `${template.folder}/targets/.`, folder]);
  return {
    folder,
    repo: join(folder, "repo"),
    home: join(folder, "home"),
    origin: template.origin,
    from: join(folder, "from"),
  };
}

/** Every path below a folder with its kind, mode and bytes. */
function listing(folder: string): Record<string, string> {
  const found: Record<string, string> = {};
  const walk = (path: string, name: string): void => {
    const stat = lstatSync(path);
    const mode = (stat.mode & 0o7777).toString(8);
    if (stat.isSymbolicLink()) found[name] = `link ${readlinkSync(path)}`;
    else if (stat.isDirectory()) {
      found[name] = `folder ${mode}`;
      for (const child of readdirSync(path)) walk(join(path, child), `${name}/${child}`);
    } else found[name] = `${mode} ${digest(readFileSync(path))}`;
  };
  walk(folder, ".");
  return found;
}

export function refused(here: Place, args: readonly string[], message: RegExp): void {
  const before = listing(here.folder);
  const run = agent(here, ...args);
  expect.soft(run).toMatchObject({ stdout: "", stderr: expect.stringMatching(/^hangar-agent: [^\n]*\n$/) });
  expect.soft(run.stderr).toMatch(message);
  expect.soft(run.code).toBeGreaterThan(0);
  expect.soft(listing(here.folder)).toEqual(before);
}

export const spoil = (here: { from: string }, name: string, change: (bytes: Buffer) => Buffer): void => {
  const path = join(here.from, name);
  put(path, change(readFileSync(path)));
};
export const flipped = (bytes: Buffer, at: number): Buffer => {
  const other = Buffer.from(bytes);
  other[at < 0 ? other.length + at : at]! ^= 0xff;
  return other;
};

export type Here = ReturnType<typeof fresh>;
export const table = (cases: Record<string, [(here: Here) => unknown, string[], RegExp]>): void => {
  test.each(Object.entries(cases))("%s", async (_name, [prepare, args, message]) => {
    const here = fresh();
    await prepare(here);
    refused(here, args, message);
  });
};
export const nothing = (): void => {};
export const plain = ["restore", "--from", "from", "--repo", "repo", "--home", "home"];
export const sealed = ["restore", "--from", "sealed", "--repo", "repo", "--home", "home"];
