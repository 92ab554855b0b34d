/**
 * Opening, held to age's own published test vectors (C2SP's CCTV, by its npm package). Hangar opens binary files with
 * identities: what is armored or sealed with a passphrase is refused, as any other file that is not Hangar's.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as breathe } from "node:timers/promises";
import { inflateSync } from "node:zlib";
import { generateIdentity } from "age-encryption";
import * as published from "cctv-age";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openStream } from "../../src/checkpoint/seal.ts";

interface Vector {
  readonly name: string;
  readonly expected: string;
  readonly identities: string[];
  /** Hex; of all that may be released, also where the end is a failure. None: nothing may be. */
  readonly payload: string | null;
  readonly foreign: boolean;
  readonly sealed: Buffer;
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "hangar-age-"));
});
afterAll(() => rm(folder, { recursive: true }));

const vectors = Object.entries(published as unknown as Record<string, Uint8Array>).map(([name, bytes]) =>
  read(name, Buffer.from(bytes)),
);

/** A head of `key: value` lines, an empty line, and the file. */
function read(name: string, bytes: Buffer): Vector {
  const end = bytes.indexOf("\n\n");
  const head = bytes
    .toString("utf8", 0, end)
    .split("\n")
    .map((line) => line.split(": "));
  const all = (key: string): string[] => head.flatMap(([each, value]) => (each === key && value ? [value] : []));
  const file = bytes.subarray(end + 2);
  return {
    name,
    expected: all("expect")[0] ?? "",
    identities: all("identity"),
    payload: all("payload")[0] ?? null,
    foreign: all("armored").length > 0 || all("passphrase").length > 0,
    sealed: all("compressed").includes("zlib") ? inflateSync(file) : file,
  };
}

/** Everything that comes out before the end or the failure. */
async function release(sealed: Buffer, identities: string[], piece: number): Promise<{ out: Buffer; error: unknown }> {
  const stream = await openStream(identities);
  const out: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => out.push(chunk));
  stream.on("error", () => undefined);
  for (let at = 0; at < sealed.length && !stream.destroyed; at += piece) {
    await new Promise((resolve) => stream.write(sealed.subarray(at, at + piece), resolve));
    await breathe();
  }
  if (!stream.destroyed) stream.end();
  while (!stream.closed) await breathe();
  return { out: Buffer.concat(out), error: stream.errored };
}

function releasedByAge(sealed: Buffer, identities: string[]): Buffer {
  const keys = join(folder, "keys");
  writeFileSync(keys, `${identities.join("\n")}\n`);
  const { status, stdout } = spawnSync("age", ["-d", "-i", keys], { input: sealed, maxBuffer: 1 << 26 });
  expect(status).toBe(1);
  return stdout;
}

const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

test("there are all of them", () => {
  expect(vectors.length).toBeGreaterThan(100);
  expect(vectors.filter(({ foreign, expected }) => !foreign && expected === "success").length).toBeGreaterThan(10);
});

test.each(vectors)("$name: $expected", async ({ expected, identities, payload, foreign, sealed }) => {
  const keys = identities.length > 0 ? identities : [await generateIdentity()];
  // In one piece, and cut so that header and chunks come in parts.
  for (const piece of [sealed.length || 1, 4999]) {
    const { out, error } = await release(sealed, keys, piece);
    if (expected === "success" && !foreign) expect(error).toBeNull();
    else expect(error).toMatchObject({ code: "checkpoint_invalid", name: "HangarError" });
    if (foreign || payload === null) expect(out.length).toBe(0);
    else if (expected === "success") expect(sha256(out)).toBe(payload);
    else {
      // A chunk that the end makes doubtful is held back, where `age` passes it on and then fails.
      const most = releasedByAge(sealed, keys);
      expect(sha256(most)).toBe(payload);
      expect(most.subarray(0, out.length).equals(out)).toBe(true);
      expect(most.length - out.length).toBeLessThanOrEqual(64 * 1024);
    }
  }
});
