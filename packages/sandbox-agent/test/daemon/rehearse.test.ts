/** A restore that is tried before there is a session. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { rehearse } from "../../src/warm/rehearse.ts";

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "hangar-rehearse-"));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

test("a rehearsal restores, and leaves nothing", async () => {
  const at = folder();
  let most = 0;
  const looking = setInterval(() => (most = Math.max(most, readdirSync(at, { recursive: true }).length)), 100);
  await rehearse(at);
  clearInterval(looking);
  expect(most).toBeGreaterThan(400);
  expect(readdirSync(at)).toEqual([]);
}, 60_000);

test("a claim in the middle of it ends it, and nothing is left", async () => {
  const at = folder();
  const claim = new AbortController();
  const rehearsing = rehearse(at, claim.signal);
  rehearsing.catch(() => {});
  while (readdirSync(at).length === 0) await sleep(1);
  claim.abort(new Error("claimed"));
  await expect(rehearsing).rejects.toThrow();
  expect(readdirSync(at)).toEqual([]);
}, 60_000);
