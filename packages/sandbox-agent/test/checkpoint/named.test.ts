/** What a checkpoint cannot keep is named in it, and stands in nobody's way. */
import { describe, expect, test } from "vitest";
import { place, putBack, shell, take } from "./support.ts";

/** Made in a repo, twice: what is new the second time has to be named too. */
async function twice(make: string, later: string): Promise<[first: string, second: string]> {
  const here = place();
  shell(here, `echo u >u; ${make}`);
  const first = await take(here);
  shell(here, later);
  const second = await take(here, { parent: first.next });
  const { restored } = await putBack(here, [first, second]);
  expect(restored.report).toMatchObject({ verified: true, differs: [] });
  return [first.meta.warnings.join("\n"), second.meta.warnings.join("\n")];
}

describe.concurrent("named", () => {
  test("refs that git cannot read", async () => {
    const [first, second] = await twice(
      "echo junk >.git/refs/heads/junk; : >.git/refs/tags/empty",
      "rm .git/refs/heads/junk; echo no >'.git/refs/heads/odd name'",
    );
    expect(first).toMatch(/refs that git cannot read are not kept: refs\/heads\/junk, refs\/tags\/empty$/m);
    expect(second).toMatch(/not kept: refs\/heads\/odd name, refs\/tags\/empty$/m);
  });

  test("a branch whose commit is not there: no checkpoint, and why", async () => {
    const here = place();
    shell(here, `echo ${"1".repeat(40)} >.git/refs/heads/gone`);
    await expect(take(here)).rejects.toThrow(
      /refs\/heads\/gone names an object that the repository lacks: run git fsck/,
    );
  });
});
