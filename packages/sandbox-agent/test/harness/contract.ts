/** What every harness promises, run with its real program against a stand-in model on loopback. */
import { appendFile, cp, mkdir, readFile, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { resumeHint, type Usage } from "@hangar/shared";
import type { StandIn } from "../../../../test/stand-ins/server.ts";
import { scanConversations } from "../../src/checkpoint/conversation-scan.ts";
import type { Harness } from "../../src/harness/harness.ts";
import { eventually, inTerminal, makeSandbox, running, type Sandbox, say, type Saying, type Told } from "./support.ts";

export interface Rig {
  readonly harness: Harness;
  /** Set before the tests run: PATH, the stand-in's URL, the key. */
  readonly env: () => Record<string, string>;
  readonly model: () => StandIn;
  readonly modelName: string | null;
  /** The variable that holds the made-up key. */
  readonly keyName: string;
  /** Of a turn that asks the model once. */
  readonly usage: Partial<Usage>;
  readonly toolName: string;
}

export const KEY = "sk-ant-api03-made-up-for-tests-0123456789";
const RECALL = "what did I ask you to remember?";

export const teller =
  ({ harness, env, modelName }: Rig) =>
  (sandbox: Sandbox, message: string, more: Partial<Saying> = {}): Promise<Told> =>
    say(harness, sandbox, { message, model: modelName, ...more, env: { ...env(), ...more.env } });

/** Copies exactly what a checkpoint keeps of a home, and answers the files. The adapter must know them all. */
export async function copyConversation({ harness }: Rig, from: Sandbox, to: Sandbox): Promise<string[]> {
  const { files, warnings } = scanConversations(from.home);
  expect(warnings).toEqual([]);
  const paths = files.map(({ path }) => path.toString());
  expect(paths.filter((path) => !harness.conversation.keeps(path))).toEqual([]);
  for (const path of paths) {
    await mkdir(dirname(join(to.home, path)), { recursive: true });
    await cp(join(from.home, path), join(to.home, path));
  }
  return paths;
}

export function harnessContract(rig: Rig): void {
  const { harness, keyName } = rig;
  const tell = teller(rig);

  describe("a conversation", () => {
    test("goes on in another sandbox that has only what a checkpoint keeps, with each turn's own use", async () => {
      await using first = await makeSandbox();
      const told: string[] = [];
      const onConversation = (id: string): void => void told.push(id);
      const one = await tell(first, "- please remember heliotrope", { onConversation });
      expect(one.result).toMatchObject({
        state: "done",
        exit_code: 0,
        error: null,
        summary: "I will remember heliotrope.",
        conversation_lost: false,
        usage: rig.usage,
      });
      expect(one.text()).toBe("I will remember heliotrope.");
      const id = one.result.harness_session ?? "";
      expect(harness.validConversation(id)).toBe(true);
      expect(told).toEqual([id]);

      await using second = await makeSandbox(first.cwd);
      const kept = await copyConversation(rig, first, second);
      for (const path of kept) expect(await readFile(join(second.home, path), "utf8")).not.toContain(KEY);
      const two = await tell(second, RECALL, { harnessSession: id });
      expect(two.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember heliotrope.",
        harness_session: id,
        conversation_lost: false,
        usage: rig.usage,
      });
      const cost = one.result.usage?.cost_usd ?? null;
      if (cost === null) expect(two.result.usage?.cost_usd).toBeNull();
      else expect(two.result.usage?.cost_usd).toBeCloseTo(cost, 9);
      expect((await copyConversation(rig, second, first)).length).toBe(kept.length);
    });

    test("goes on where the workspace is elsewhere, and its tools run there", async () => {
      await using first = await makeSandbox();
      await using second = await makeSandbox();
      const id = (await tell(first, "remember quartz")).result.harness_session ?? "";
      await copyConversation(rig, first, second);
      await rm(first.cwd, { recursive: true });
      const there = await tell(second, "run: pwd", { harnessSession: id });
      expect(there.result).toMatchObject({ state: "done", harness_session: id, conversation_lost: false });
      expect(there.result.summary).toContain(second.cwd);
      const two = await tell(second, RECALL, { harnessSession: id });
      expect(two.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember quartz.",
        harness_session: id,
      });
    });

    test.runIf(harness.supportsFork)("is copied under ids of their own, and stays as it is", async () => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember heliotrope")).result.harness_session ?? "";
      await tell(sandbox, "hello", { harnessSession: id });
      const place = { ...sandbox, env: rig.env() };
      const before = await readFile((await harness.transcript(place, id))?.path ?? "");
      const copies = new Set<string>();
      for (const word of ["quartz", "feldspar"]) {
        await using fork = await makeSandbox(sandbox.cwd);
        await copyConversation(rig, sandbox, fork);
        const told: string[] = [];
        const onConversation = (each: string): void => void told.push(each);
        const one = await tell(fork, `remember ${word}`, { harnessSession: id, fork: true, onConversation });
        expect(one.result).toMatchObject({ state: "done", conversation_lost: false, usage: rig.usage });
        const copy = one.result.harness_session ?? "";
        expect(copy).not.toBe(id);
        expect(harness.validConversation(copy)).toBe(true);
        expect(told).toEqual([copy]);
        copies.add(copy);
        // Each knows what was said before, and nothing of the other.
        await using later = await makeSandbox(sandbox.cwd);
        await copyConversation(rig, fork, later);
        const two = await tell(later, RECALL, { harnessSession: copy });
        expect(two.result).toMatchObject({
          state: "done",
          summary: `You asked me to remember heliotrope, ${word}.`,
          harness_session: copy,
        });
      }
      expect(copies.size).toBe(2);
      expect((await readFile((await harness.transcript(place, id))?.path ?? "")).equals(before)).toBe(true);
      const still = await tell(sandbox, RECALL, { harnessSession: id });
      expect(still.result).toMatchObject({ summary: "You asked me to remember heliotrope.", harness_session: id });
    });

    test("survives a torn last line", async () => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember basalt")).result.harness_session ?? "";
      const found = await harness.transcript({ ...sandbox, env: rig.env() }, id);
      await appendFile(found?.path ?? "", '{"type":"assistant","message":{"role":"assis');
      const two = await tell(sandbox, RECALL, { harnessSession: id });
      expect(two.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember basalt.",
        harness_session: id,
      });
    });

    test("that is not there is reported lost, and nothing is run", async () => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember gneiss")).result.harness_session ?? "";
      for (const root of harness.conversation.roots)
        await rm(join(sandbox.home, root), { recursive: true, force: true });
      const asked = rig.model().requests.length;
      const lost = await tell(sandbox, "go on", { harnessSession: id });
      expect(lost.result).toMatchObject({
        state: "failed",
        conversation_lost: true,
        harness_session: null,
        exit_code: null,
      });
      expect(lost.result.error).toContain("is not in this sandbox");
      const odd = await tell(sandbox, "go on", { harnessSession: "--help" });
      expect(odd.result).toMatchObject({ state: "failed", conversation_lost: true });
      expect(rig.model().requests.length).toBe(asked);
    });

    test("takes a message of 300 KB, and a preamble before it", async () => {
      await using sandbox = await makeSandbox();
      const long = await tell(sandbox, `${"x".repeat(300_000)} remember obsidian`, {
        preamble: "2 files are missing.",
      });
      expect(long.result).toMatchObject({ state: "done", summary: "I will remember obsidian." });
      expect(JSON.stringify(rig.model().requests.at(-1)?.body)).toContain("2 files are missing.");
    });
  });

  test("text, tool calls and their results are streamed", async () => {
    await using sandbox = await makeSandbox();
    const { outputs, result } = await tell(sandbox, "run: pwd; echo $HOME; exit 3");
    expect(outputs.filter(({ kind }) => kind !== "stderr")).toEqual([
      { kind: "tool_call", name: rig.toolName, input: expect.stringContaining("pwd; echo $HOME") },
      { kind: "tool_result", name: rig.toolName, is_error: true, output: expect.stringContaining(sandbox.cwd) },
      { kind: "text", text: expect.stringContaining("The command printed:") },
    ]);
    expect(result.state).toBe("done");
    expect(result.usage?.output_tokens).toBe(2 * (rig.usage.output_tokens ?? 0));
    expect(result.summary).toContain(sandbox.home);
  });

  test("a refused key is said as what it is, and the conversation goes on", async () => {
    await using sandbox = await makeSandbox();
    const { result, outputs } = await tell(sandbox, "fail with 401");
    expect(result).toMatchObject({ state: "failed", conversation_lost: false });
    expect(result.error).toMatch(/refused .* credential \(401: .*hangar secret set/);
    expect(result.error).not.toContain("\n");
    expect(outputs.filter(({ kind }) => kind === "text")).toEqual([]);
    const next = await tell(sandbox, "remember jasper", { harnessSession: result.harness_session });
    expect(next.result).toMatchObject({ state: "done", harness_session: result.harness_session });
  });

  test.each([
    [429, /rate or usage limit .*429.*: wait, then send again/],
    [500, /API failed on its side \(.*\): send again in a while/],
  ])(
    "an API that answers %i is said as what it is, and the conversation goes on",
    async (status, advice) => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember tuff")).result.harness_session ?? "";
      const { result } = await tell(sandbox, `fail with ${status}`, { harnessSession: id });
      expect(result).toMatchObject({ state: "failed", conversation_lost: false, harness_session: id });
      expect(result.error).toMatch(advice);
      expect(result.error).not.toContain("\n");
      const next = await tell(sandbox, RECALL, { harnessSession: id });
      expect(next.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember tuff.",
        harness_session: id,
      });
    },
    120_000,
  );

  test("a prompt that is too long is said as what it is", async () => {
    await using sandbox = await makeSandbox();
    const { result } = await tell(sandbox, "overflow");
    expect(result.state).toBe("failed");
    expect(result.error).toContain("too long for the model");
  });

  describe("does not run", () => {
    test("without a credential", async () => {
      await using sandbox = await makeSandbox();
      const { result } = await tell(sandbox, "hello", { env: { [keyName]: "" } });
      expect(result).toMatchObject({ state: "failed", exit_code: null });
      expect(result.error).toContain("hangar secret set");
    });

    test("without its program", async () => {
      await using sandbox = await makeSandbox();
      const { result } = await tell(sandbox, "hello", { env: { PATH: "/usr/bin:/bin" } });
      expect(result).toMatchObject({ state: "failed", exit_code: null });
      expect(result.error).toContain(harness.install.hint);
    });
  });

  describe("stopped while a tool runs, it leaves no process and goes on later", () => {
    test.each(["cancelled", "interrupted"] as const)("%s", async (reason) => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember pumice")).result.harness_session ?? "";
      const stop = new AbortController();
      const mark = `sleep 300 # ${id}`;
      // One that ignores SIGTERM and has left its parent and its session; one that the shell waits for.
      const tool = `( setsid perl -e '$SIG{TERM}="IGNORE"; ${mark}' & ) ; perl -e '${mark}'; echo over`;
      const turn = tell(sandbox, `run: ${tool}`, { harnessSession: id, signal: stop.signal });
      await eventually(async () => (await running(mark)).length >= 2);
      stop.abort(reason);
      const { result } = await turn;
      expect(result).toMatchObject({ state: reason, error: null, harness_session: id, conversation_lost: false });
      expect(await running(mark)).toEqual([]);
      const next = await tell(sandbox, RECALL, { harnessSession: id });
      expect(next.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember pumice.",
        harness_session: id,
      });
    });

    test("killed by something else", async () => {
      await using sandbox = await makeSandbox();
      const id = (await tell(sandbox, "remember scoria")).result.harness_session ?? "";
      const mark = `sleep 300 # ${id}`;
      let pid = 0;
      const onStarted = (started: number): void => {
        pid = started;
      };
      const turn = tell(sandbox, `run: perl -e '${mark}'`, { harnessSession: id, onStarted });
      await eventually(async () => (await running(mark)).length > 0);
      process.kill(pid, "SIGKILL");
      const { result } = await turn;
      expect(result).toMatchObject({ state: "failed", exit_code: 137, harness_session: id, conversation_lost: false });
      expect(result.error).toContain(`${harness.title} was ended by SIGKILL`);
      expect(await running(mark)).toEqual([]);
      const next = await tell(sandbox, RECALL, { harnessSession: id });
      expect(next.result).toMatchObject({
        state: "done",
        summary: "You asked me to remember scoria.",
        harness_session: id,
      });
    });
  });

  test("an interactive resume in a fresh home comes straight up with the history", async () => {
    await using first = await makeSandbox();
    const id = (await tell(first, "remember travertine")).result.harness_session ?? "";
    await using second = await makeSandbox(first.cwd);
    await copyConversation(rig, first, second);
    const place = { ...second, env: { ...rig.env(), TERM: "xterm-256color" } };
    await harness.relocate(place, id);
    await harness.seed(place);
    const command = await harness.interactive({ ...place, model: rig.modelName, resume: id, fork: null, fresh: null });
    // What people are told to type is what is run, but for its other options.
    const hint = resumeHint(harness.name, id)?.split(" ") ?? [];
    expect(command.argv.filter((word) => hint.includes(word))).toEqual(hint);
    await using terminal = await inTerminal(command, second);
    const screen = await eventually(async () => {
      const shown = await terminal.screen();
      return shown.includes("I will remember travertine.") && shown;
    });
    expect(screen).not.toMatch(/do you trust|trust this|API key|sign in|log in/i);
  });
}
