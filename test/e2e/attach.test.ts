/** `hangar session attach`, driven through a real terminal (tmux): the agents' own CLIs, resumed in a fresh home. */
import { resumeHint } from "@hangar/shared";
import { delimiter, dirname } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startAnthropic } from "../stand-ins/anthropic.ts";
import { startOpenAi } from "../stand-ins/openai.ts";
import type { StandIn } from "../stand-ins/server.ts";
import { agentClis } from "../support/agent-clis.ts";
import { CLI, makeRemote, sleep, startHangar, type TestHangar } from "../support/hangar.ts";
import { startTmux, type Pane, type Terminals } from "../support/tmux.ts";

let hangar: TestHangar;
let terminals: Terminals;
let anthropic: StandIn;
let openai: StandIn;
beforeAll(async () => {
  [anthropic, openai] = await Promise.all([startAnthropic(), startOpenAi()]);
  hangar = await startHangar({
    PATH: [await agentClis(), dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter),
  });
  terminals = startTmux(hangar.dir, hangar.env);
}, 600_000);
afterAll(async () => {
  await terminals?.[Symbol.asyncDispose]();
  await hangar?.close();
  await anthropic?.close();
  await openai?.close();
});

const attach = (name: string, ...more: string[]): Promise<Pane> =>
  terminals.open([process.execPath, CLI, "session", "attach", name, ...more]);
/** Ctrl-], which tmux does not send by a name. */
const detach = (pane: Pane): Promise<void> => pane.keys("-H", "1d");

const DIALOGS =
  /trust (?:this|the files)|sign in|log ?in|api key\?|bypass permissions mode.*accept|choose the text style|press enter to continue|unable to connect/i;

const agents = [
  {
    harness: "claude",
    key: "ANTHROPIC_API_KEY",
    value: "sk-ant-api03-made-up-for-tests-0123456789",
    model: undefined,
    url: () => ({ ANTHROPIC_BASE_URL: anthropic.url }),
  },
  {
    harness: "codex",
    key: "OPENAI_API_KEY",
    value: "sk-made-up-for-tests-0123456789abcdef",
    model: "gpt-5-stand-in",
    url: () => ({ OPENAI_BASE_URL: `${openai.url}/v1` }),
  },
  {
    harness: "pi",
    key: "ANTHROPIC_API_KEY",
    value: "sk-ant-api03-made-up-for-tests-0123456789",
    model: "anthropic/claude-opus-5-5",
    url: () => ({ ANTHROPIC_BASE_URL: anthropic.url }),
  },
];

test.each(agents)(
  "$harness comes straight up with its history, in another sandbox, and answers",
  { timeout: 300_000 },
  async ({ harness, key, value, model, url }) => {
    await hangar.api("PUT", `/api/secrets/${key}`, { value });
    const repo = await makeRemote(hangar.dir, `repo-${harness}`);
    await hangar.api("PUT", `/api/environments/${harness}`, { repo, harness, model, secrets: [key], variables: url() });
    await hangar.api("POST", "/api/sessions", { name: harness, environment: harness });
    await hangar.until(harness, "ready", ({ state }) => state === "IDLE");
    expect(await hangar.turn(harness, "please remember heliotrope", 120)).toMatchObject({ state: "done" });
    await hangar.api("POST", `/api/sessions/${harness}/suspend`, {});
    const before = await hangar.until(harness, "suspended", ({ state }) => state === "SUSPENDED");

    const pane = await attach(harness);
    const shown = await pane.until("the history", (screen) => screen.includes("heliotrope"), 90);
    expect(shown).not.toMatch(DIALOGS);
    const said = shown.split("heliotrope").length;
    await sleep(1500);
    await pane.type("what did I ask you to remember?");
    await sleep(500);
    await pane.keys("Enter");
    await pane.until("the answer", (screen) => screen.split("heliotrope").length > said, 90);
    expect(await pane.screen()).not.toMatch(DIALOGS);

    await detach(pane);
    await pane.until("that it is detached", (screen) => screen.includes("detached") && screen.includes("[exit 0]"));
    const session = await hangar.session(harness);
    expect(session).toMatchObject({
      state: "IDLE",
      generation: before.generation + 1,
      harness_session: before.harness_session,
    });

    const opened = await hangar.cli(["session", "open", harness, "--wait"]);
    expect(opened.stderr).toContain(`attach --shell): ${resumeHint(harness, before.harness_session) ?? "?"}\n`);

    // What was said by hand is in the conversation that the next turn goes on with.
    expect(await hangar.turn(harness, "what did I ask you to remember?", 120)).toMatchObject({
      state: "done",
      conversation_lost: false,
      summary: expect.stringContaining("heliotrope"),
    });
  },
);

test("where the session went on with another agent, it is that one, and back again", { timeout: 300_000 }, async () => {
  for (const { key, value } of agents) await hangar.api("PUT", `/api/secrets/${key}`, { value });
  const [claude, codex] = [/claude --dangerously/, /codex\S* .*--dangerously/];
  await hangar.api("PUT", "/api/environments/both", {
    repo: await makeRemote(hangar.dir, "repo-both"),
    harness: "claude",
    secrets: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
    variables: { ANTHROPIC_BASE_URL: anthropic.url, OPENAI_BASE_URL: `${openai.url}/v1` },
  });
  await hangar.api("POST", "/api/sessions", { name: "both", environment: "both" });
  expect(await hangar.turn("both", "please remember heliotrope", 120)).toMatchObject({ state: "done" });
  const looked = async (at: string, is: (screen: string) => boolean): Promise<void> => {
    const pane = await attach("both");
    expect(await pane.until(at, is, 90)).not.toMatch(DIALOGS);
    await detach(pane);
    await pane.until("that it is detached", (screen) => screen.includes("[exit 0]"));
  };
  await looked("Claude Code's history", (screen) => screen.includes("heliotrope"));
  expect(await hangar.pids(claude)).not.toEqual([]);

  const goOn = (...args: string[]) => hangar.cli(["session", "open", "both", "--wait", "--harness", ...args]);
  expect(await goOn("codex", "--model", "gpt-5-stand-in")).toMatchObject({ code: 0 });
  await looked("Codex", (screen) => screen.includes("gpt-5-stand-in") && !screen.includes("heliotrope"));
  expect(await hangar.pids(claude)).toEqual([]);
  const programs = await hangar.pids(codex);
  expect(programs).not.toEqual([]);
  // Left and come back to: the same one.
  await looked("Codex again", (screen) => screen.includes("gpt-5-stand-in"));
  expect(await hangar.pids(codex)).toEqual(programs);

  expect(await goOn("claude")).toMatchObject({ code: 0 });
  await looked("Claude Code's history again", (screen) => screen.includes("heliotrope"));
  expect(await hangar.pids(codex)).toEqual([]);
  expect((await hangar.session("both")).generation).toBe(1);
});

test("resize, Ctrl-C, two at once, a lost link, and one that is no terminal", { timeout: 240_000 }, async () => {
  await hangar.api("POST", "/api/sessions", { name: "plain", harness: "script" });
  await hangar.until("plain", "ready", ({ state }) => state === "IDLE");
  const opened = await hangar.cli(["session", "open", "plain"]);
  expect(opened.stderr).toContain("session attach plain");

  const one = await attach("plain", "--shell");
  await one.until("a prompt", (screen) => /[#$] *$/m.test(screen.trimEnd()));
  await one.type("stty size; A=kept-$((40+2))");
  await one.keys("Enter");
  await one.until("its size", (screen) => screen.includes("36 110"));
  await one.resize(90, 30);
  await sleep(1000);
  await one.type("clear; stty size");
  await one.keys("Enter");
  await one.until("its new size", (screen) => screen.includes("30 90"));

  // Ctrl-C ends what runs, and not the terminal.
  await one.type("clear; sleep 1000; echo after-$?");
  await one.keys("Enter");
  await sleep(1000);
  await one.keys("C-c");
  await one.type("echo still-$A");
  await one.keys("Enter");
  await one.until("that the shell goes on", (screen) => screen.includes("still-kept-42"));

  // Two of them see the same.
  const two = await attach("plain", "--shell");
  await two.until("what the first one sees", (screen) => screen.includes("still-kept-42"));
  await two.type("echo from-two-$A");
  await two.keys("Enter");
  await one.until("what the second one typed", (screen) => screen.includes("from-two-kept-42"));
  await detach(two);
  await two.until("that it is detached", (screen) => screen.includes("[exit 0]"));

  // The coordinator is killed and comes back: the terminal attaches again, and the shell is the same.
  await hangar.restart();
  for (let tries = 0; !(await one.screen()).includes("back-kept-42"); tries++) {
    expect(tries, await one.screen()).toBeLessThan(60);
    // What is typed while nothing is connected goes nowhere.
    await one.type("clear; echo back-$A");
    await one.keys("Enter");
    await sleep(1000);
  }
  await one.type("exit");
  await one.keys("Enter");
  await one.until("its end", (screen) => screen.includes("plain: ended") && screen.includes("[exit 0]"));

  const piped = await hangar.cli(["session", "attach", "plain"], { input: "x\n" });
  expect(piped.code).toBe(2);
  expect(piped.stderr.trim().split("\n")).toEqual([
    expect.stringContaining("attach needs a terminal; to send one message: hangar session send"),
  ]);
});
