/**
 * Workloads for the benchmark: a bare remote, a clone with work in it, and a home with a Claude conversation.
 * S: 1,000 files, 5 dirty, a 2 MB conversation. M: 10,000 files, 50 dirty, 200 untracked, 3 commits, 20 MB.
 * L: 100,000 files, 200 dirty, 200 untracked, 300 MB, 1 GB untracked. The same every time.
 */
import { execFileSync } from "node:child_process";
import { appendFileSync, closeSync, mkdirSync, openSync, writeFileSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";

export type Size = "S" | "M" | "L";

interface Shape {
  files: number;
  dirty: number;
  untracked: number;
  commits: number;
  conversationMb: number;
  untrackedMb: number;
}

export const SHAPES: Record<Size, Shape> = {
  S: { files: 1_000, dirty: 5, untracked: 0, commits: 1, conversationMb: 2, untrackedMb: 0 },
  M: { files: 10_000, dirty: 50, untracked: 200, commits: 3, conversationMb: 20, untrackedMb: 0 },
  L: { files: 100_000, dirty: 200, untracked: 200, commits: 3, conversationMb: 300, untrackedMb: 1024 },
};

export interface Workload {
  readonly dir: string;
  readonly origin: string;
  readonly repo: string;
  readonly home: string;
  readonly conversation: string;
  readonly names: readonly string[];
  /** A small change on top: ten lines more of conversation, three files changed. */
  change(): void;
}

const CONVERSATION = ".claude/projects/-workspace-repo/11111111-1111-4111-8111-111111111111.jsonl";

export function makeWorkload(dir: string, size: Size): Workload {
  const shape = SHAPES[size];
  const random = generator(7);
  const words = Array.from({ length: 5000 }, () =>
    random()
      .toString(36)
      .slice(2, 5 + Math.floor(random() * 6)),
  );
  const text = (bytes: number): string => {
    const out: string[] = [];
    for (let length = 0; length < bytes;) {
      const word = words[Math.floor(random() * words.length)] ?? "x";
      out.push(word);
      length += word.length + 1;
    }
    return out.join(" ").slice(0, bytes);
  };
  const line = (): string =>
    `${JSON.stringify({ uuid: `${random()}`, type: "assistant", message: { content: text(5000) } })}\n`;
  const origin = join(dir, "origin.git");
  const repo = join(dir, "repo");
  const home = join(dir, "home");
  const git = (...args: string[]): void => void execFileSync("git", args, { cwd: repo, stdio: "ignore" });
  const write = (path: string, data: string | Buffer): void => {
    mkdirSync(dirname(join(repo, path)), { recursive: true });
    writeFileSync(join(repo, path), data);
  };

  mkdirSync(repo, { recursive: true });
  execFileSync("git", ["init", "-q", "--bare", "-b", "main", origin]);
  git("init", "-q", "-b", "main");
  git("remote", "add", "origin", origin);
  git("config", "user.name", "Dev");
  git("config", "user.email", "dev@example.test");
  const names = Array.from({ length: shape.files }, (_, i) => `src/p${i % 40}/q${Math.floor(i / 40) % 50}/f${i}.ts`);
  for (const name of names) write(name, text(500 + Math.floor(random() * 5500)));
  git("add", "-A");
  git("commit", "-qm", "base");
  git("push", "-q", "-u", "origin", "main");
  git("checkout", "-qb", "hangar/session/bench");
  for (let commit = 0; commit < shape.commits; commit++) {
    for (const name of names.slice(100 + commit * 20, 120 + commit * 20)) appendFileSync(join(repo, name), text(200));
    git("commit", "-qam", `work ${commit}`);
  }
  for (const name of names.slice(0, shape.dirty)) appendFileSync(join(repo, name), text(300));
  for (let i = 0; i < shape.untracked; i++) write(`notes/u${i}.md`, text(3000));
  for (let i = 0; i < 16 && shape.untrackedMb > 0; i++) {
    write(`untracked-big/b${i}.bin`, noise(random, (shape.untrackedMb << 20) / 16));
  }
  const conversation = join(home, CONVERSATION);
  mkdirSync(dirname(conversation), { recursive: true });
  const file = openSync(conversation, "w", 0o600);
  for (let written = 0; written < shape.conversationMb << 20;) written += writeSync(file, line());
  closeSync(file);

  return {
    dir,
    origin,
    repo,
    home,
    conversation,
    names,
    change: () => {
      for (let i = 0; i < 10; i++) appendFileSync(conversation, line());
      for (const name of names.slice(1, 4)) appendFileSync(join(repo, name), "changed again\n");
    },
  };
}

/** A small linear generator: the workload must be the same in every run. Numbers in [0, 1). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function noise(random: () => number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  for (let i = 0; i + 4 <= bytes; i += 4) buffer.writeUInt32LE(Math.floor(random() * 2 ** 32), i);
  return buffer;
}
