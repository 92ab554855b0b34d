import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { redactor } from "@hangar/shared";
import type { AgentEvent } from "@hangar/shared";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Journal } from "../../src/journal.ts";
import { Spool } from "../../src/spool.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hangar-spool-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const unexpected = (message: string): never => {
  throw new Error(message);
};
const redact = () => redactor(["canary-in-a-notice"]);
const notice = (text: string): AgentEvent => ({ type: "notice", text });
const output = (text: string): AgentEvent => ({
  type: "turn_output",
  turn: "trn-000000000001",
  output: { kind: "text", text },
});
const textsOf = (spool: Spool): string[] =>
  spool.after(0, 1e9).map(({ event }) => {
    if (event.type === "notice") return event.text;
    return event.type === "turn_output" && "text" in event.output ? event.output.text : "?";
  });

test("what was not acknowledged is there after a restart, with its numbers", () => {
  const first = new Spool(folder, unexpected, redact);
  for (const text of ["a", "b", "c"]) first.add(notice(text));
  first.ack(1);
  first.close();
  const second = new Spool(folder, unexpected, redact);
  expect(second.after(0, 1e9).map(({ seq }) => seq)).toEqual([2, 3]);
  expect(second.add(notice("d"))).toBe(4);
  expect(textsOf(second)).toEqual(["b", "c", "d"]);
});

test("numbers never go back, also when all was acknowledged or the coordinator knows of more", () => {
  const first = new Spool(folder, unexpected, redact);
  first.add(notice("a"));
  first.ack(1);
  first.close();
  const second = new Spool(folder, unexpected, redact);
  expect(second.next).toBe(2);
  second.ack(40);
  second.close();
  expect(new Spool(folder, unexpected, redact).next).toBe(41);
});

test("a line torn by a kill is passed over, and the next one is whole", () => {
  const first = new Spool(folder, unexpected, redact);
  first.add(notice("a"));
  first.close();
  appendFileSync(join(folder, "spool.jsonl"), '{"seq":2,"event":{"type":"noti');
  const second = new Spool(folder, unexpected, redact);
  second.add(notice("b"));
  second.close();
  expect(textsOf(new Spool(folder, unexpected, redact))).toEqual(["a", "b"]);
});

test("over its bound the oldest output goes and says so; lifecycle events stay", () => {
  const spool = new Spool(folder, unexpected, redact, 10_000);
  spool.add(notice("begin"));
  for (let i = 0; i < 100; i++) spool.add(output(`${i}`.padStart(500, "x")));
  spool.add(notice("end"));
  const texts = textsOf(spool);
  expect(texts[0]).toBe("begin");
  expect(texts[1]).toMatch(/pieces of output were dropped/);
  expect(texts.at(-1)).toBe("end");
  expect(texts.at(-2)).toMatch(/x99$/);
  expect(texts.join("").length).toBeLessThan(11_000);
  expect(statSync(join(folder, "spool.jsonl")).size).toBeLessThan(30_000);
  spool.close();
  expect(textsOf(new Spool(folder, unexpected, redact))).toEqual(texts);
});

test("acknowledged one by one, each is gone and the rest stays", () => {
  const spool = new Spool(folder, unexpected, redact);
  for (let i = 1; i <= 50; i++) spool.add(notice(String(i)));
  for (let i = 1; i <= 50; i++) {
    expect(spool.after(i - 1, 1)).toEqual([{ seq: i, event: notice(String(i)) }]);
    spool.ack(i);
    expect(textsOf(spool)).toHaveLength(50 - i);
  }
  expect(spool.add(notice("51"))).toBe(51);
});

test("the file does not grow with what was acknowledged", () => {
  const spool = new Spool(folder, unexpected, redact);
  for (let i = 0; i < 2000; i++) spool.ack(spool.add(output("x".repeat(500))));
  expect(statSync(join(folder, "spool.jsonl")).size).toBeLessThan(400_000);
});

test("the journal knows what was begun and what was answered over restarts", () => {
  const first = new Journal(folder, unexpected);
  first.begin("cmd-a");
  first.begin("cmd-b");
  first.begin("cmd-c");
  first.finish("cmd-c", { ok: true, value: 3 });
  expect(first.lastFinished).toBeNull();
  first.finish("cmd-a", { ok: false, code: "timeout", error: "late" });
  expect(first.lastFinished).toBe("cmd-a");
  first.close();

  const second = new Journal(folder, unexpected);
  expect(second.state("cmd-b")).toEqual({ state: "abandoned" });
  expect(second.state("cmd-c")).toEqual({ state: "finished", reply: { ok: true, value: 3 } });
  expect(second.state("cmd-d")).toEqual({ state: "new" });
  second.begin("cmd-b");
  second.finish("cmd-b", { ok: true, value: null });
  expect(second.lastFinished).toBe("cmd-c");
});

test("the journal keeps the newest and forgets large answers of old commands", () => {
  const journal = new Journal(folder, unexpected);
  for (let i = 0; i < 700; i++) {
    journal.begin(`cmd-${i}`);
    journal.finish(`cmd-${i}`, { ok: true, value: i === 690 || i === 500 ? "x".repeat(100_000) : i });
  }
  journal.close();
  const later = new Journal(folder, unexpected);
  expect(later.state("cmd-0").state).toBe("new");
  expect(later.state("cmd-699")).toEqual({ state: "finished", reply: { ok: true, value: 699 } });
  expect(later.state("cmd-690")).toMatchObject({ reply: { ok: true } });
  expect(later.state("cmd-500")).toMatchObject({ state: "finished", reply: { ok: false } });
  expect(later.lastFinished).toBe("cmd-699");
});

test("a file that is not a spool is passed over", () => {
  writeFileSync(join(folder, "spool.jsonl"), "\0\0\0garbage\n{}\n[1]\n");
  const spool = new Spool(folder, unexpected, redact);
  expect(spool.add(notice("a"))).toBe(1);
  expect(readFileSync(join(folder, "spool.jsonl"), "utf8")).not.toContain("garbage");
});

test("no secret reaches the disk", () => {
  const spool = new Spool(folder, unexpected, redact);
  spool.add(notice("the push failed: canary-in-a-notice was refused"));
  spool.close();
  expect(textsOf(spool)).toEqual(["the push failed: *** was refused"]);
  expect(readFileSync(join(folder, "spool.jsonl"), "utf8")).not.toContain("canary");
});
