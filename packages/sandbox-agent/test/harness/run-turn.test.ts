/** What is checked of any harness after its turn, with harnesses that misbehave: real shells behind adapters that lie. */
import { randomUUID } from "node:crypto";
import { cp, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Harness, OutputParser, TurnContext, Verdict } from "../../src/harness/harness.ts";
import { makeHarnesses } from "../../src/harness/registry.ts";
import { script } from "../../src/harness/script.ts";
import { makeSandbox, say } from "./support.ts";

/** The scripted harness, with what it says of a resumed turn changed. */
function lying(change: (verdict: Verdict, context: TurnContext) => Promise<Partial<Verdict>>): Harness {
  return {
    ...script,
    async parser(context): Promise<OutputParser> {
      const parser = await script.parser(context);
      return {
        ...parser,
        async end(exit, stderr) {
          const verdict = await parser.end(exit, stderr);
          return context.resume === null ? verdict : { ...verdict, ...(await change(verdict, context)) };
        },
      };
    },
  };
}
const fileOf = ({ home }: { home: string }, id: string): string =>
  join(home, ".hangar-script", "sessions", `${id}.jsonl`);

describe("a conversation is lost", () => {
  test("when the harness silently began another one", async () => {
    await using sandbox = await makeSandbox();
    const other = randomUUID();
    const harness = lying(async (_verdict, { resume }) => {
      await cp(fileOf(sandbox, resume ?? ""), fileOf(sandbox, other));
      return { session: other };
    });
    const id = (await say(harness, sandbox, { message: "echo one" })).result.harness_session;
    const { result } = await say(harness, sandbox, { message: "echo two", harnessSession: id });
    expect(result).toMatchObject({ state: "done", conversation_lost: true, harness_session: other, summary: "two" });
  });

  test("when its transcript did not grow, shrank, or is gone", async () => {
    await using sandbox = await makeSandbox();
    for (const left of [(size: number) => size, (size: number) => size - 5, () => 0]) {
      const id = (await say(script, sandbox, { message: "echo one" })).result.harness_session ?? "";
      const size = left((await stat(fileOf(sandbox, id))).size);
      const harness = lying(async () => {
        await truncate(fileOf(sandbox, id), size);
        return {};
      });
      const { result } = await say(harness, sandbox, { message: "echo two", harnessSession: id });
      expect(result).toMatchObject({ state: "done", conversation_lost: true, harness_session: size === 0 ? null : id });
    }
  });

  test("when the harness says that it does not know it", async () => {
    await using sandbox = await makeSandbox();
    const harness = lying(async () => ({ unknownConversation: true, error: "never heard of it" }));
    const id = (await say(harness, sandbox, { message: "true" })).result.harness_session;
    const { result } = await say(harness, sandbox, { message: "true", harnessSession: id });
    expect(result).toMatchObject({ state: "failed", conversation_lost: true, error: "never heard of it" });
  });
});

test("the handoff mark is passed on", async () => {
  await using sandbox = await makeSandbox();
  expect((await say(script, sandbox, { message: "true", handoff: true })).result.handoff).toBe(true);
});

test("harnesses are known by name, and an unknown one is said", () => {
  for (const name of ["claude", "codex", "pi", "antigravity", "script"])
    expect(makeHarnesses([])(name).name).toBe(name);
  expect(() => makeHarnesses([])("clade")).toThrow(
    'There is no harness "clade": use one of claude, codex, pi, antigravity, script',
  );
});
