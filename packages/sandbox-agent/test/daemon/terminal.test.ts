import { mkdirSync, symlinkSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import type { WebSocket } from "ws";
import type { StandInCoordinator } from "./stand-in-coordinator.ts";
import { exec, stage, turn } from "./support.ts";

/** The user's end of a terminal. */
class Screen {
  shown = "";
  control: unknown[] = [];
  code: number | null = null;
  readonly #coordinator: StandInCoordinator;
  readonly #socket: WebSocket;

  constructor(coordinator: StandInCoordinator, socket: WebSocket) {
    this.#coordinator = coordinator;
    this.#socket = socket;
    socket.on("message", (data: Buffer, binary: boolean) => {
      if (binary) this.shown += data.toString("utf8");
      else this.control.push(JSON.parse(data.toString("utf8")));
    });
    socket.on("close", (code) => (this.code = code));
  }

  type(text: string): void {
    this.#socket.send(Buffer.from(text));
  }

  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ type: "resize", cols, rows }));
  }

  leave(): void {
    this.#socket.close();
  }

  /** Heartbeats wake the wait, so nothing here depends on when output comes. */
  async shows(text: string): Promise<void> {
    await this.#coordinator
      .until(() => this.shown.includes(text), `"${text}"`, 20_000)
      .catch((error: unknown) => {
        throw new Error(`${String(error)}; shown: ${JSON.stringify(this.shown.slice(-500))}`);
      });
  }

  async ends(): Promise<void> {
    await this.#coordinator.until(() => this.code !== null, "the end of the terminal");
  }
}

let serial = 0;
async function open(coordinator: StandInCoordinator, what: "shell" | "harness" = "shell"): Promise<Screen> {
  const id = `t${++serial}`;
  const dialled = coordinator.terminal(id);
  const url = `${coordinator.url.replace("http", "ws")}/agent/terminals/${id}`;
  const answer = coordinator.command({
    kind: "terminal",
    url,
    what,
    harness: "script",
    harness_session: null,
    model: null,
    cols: 100,
    rows: 30,
  });
  const screen = new Screen(coordinator, await dialled);
  expect(await answer).toEqual({ ok: true, value: {} });
  return screen;
}

test("a terminal echoes, resizes, and its shell lives on in tmux after it is left", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const screen = await open(coordinator);
  screen.type("KEPT=still-$((40+2)); echo $KEPT; pwd\r");
  await screen.shows("still-42");
  await screen.shows(sandbox.repo);
  screen.resize(120, 40);
  // What is typed right behind it may come before tmux has told the shell.
  await vi.waitFor(
    () => {
      screen.type("stty size\r");
      expect(screen.shown).toContain(" 120");
    },
    { timeout: 30_000, interval: 500 },
  );
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.terminals_open === 1, "one open terminal");
  const { activity } = coordinator.heartbeats.at(-1)!;
  expect(activity.tmux_clients).toBe(0);
  expect(activity.last_used_at).not.toBeNull();
  screen.leave();
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.terminals_open === 0, "no open terminal");

  const again = await open(coordinator);
  again.type("echo back with $KEPT\r");
  await again.shows("back with still-42");
  again.type("exit\r");
  await again.ends();
  expect(again.control).toEqual([{ type: "exit", code: 0 }]);
  expect(again.code).toBe(1000);
});

test("a terminal's login shell has the sandbox's PATH and variables", async () => {
  const { coordinator, sandbox } = await stage({ variables: { COLOUR: "blue" } });
  const path = `${sandbox.root}/tools:${sandbox.env["PATH"]}`;
  Object.defineProperty(sandbox, "env", { value: { ...sandbox.env, PATH: path } });
  sandbox.start();
  await coordinator.ready();
  const screen = await open(coordinator);
  screen.type('echo "<${PATH%%:*}|$COLOUR>"\r');
  await screen.shows(`<${sandbox.root}/tools|blue>`);
});

test("bytes of any kind and a flood of output get through", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const screen = await open(coordinator);
  screen.type("printf 'gr\\303\\274n %s\\n' héllo\r");
  await screen.shows("grün héllo");
  screen.type("seq 1 20000; echo the-$((1+1))-end\r");
  await screen.shows("the-2-end");
});

test("a tmux client that is not ours keeps the session awake by itself", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(exec("tmux", "new-session", "-d", "-s", "own", "sleep 600"));
  // `script` gives the client a terminal, as a person's ssh would.
  await coordinator.command(
    exec("sh", "-c", "setsid script -qc 'TERM=xterm tmux attach -t own' /dev/null </dev/zero >/dev/null 2>&1 &"),
  );
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.tmux_clients === 1, "one foreign tmux client");
  expect(coordinator.heartbeats.at(-1)!.activity.terminals_open).toBe(0);
});

test("without tmux a terminal is a plain shell that says so", async () => {
  const { coordinator, sandbox } = await stage();
  const bin = join(sandbox.root, "bin");
  mkdirSync(bin);
  for (const name of ["git", "sh", "stty", "ls", "cat", "env", "sleep"]) {
    symlinkSync(execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim(), join(bin, name));
  }
  Object.defineProperty(sandbox, "env", { value: { ...sandbox.env, PATH: bin } });
  sandbox.start();
  await coordinator.ready();
  const screen = await open(coordinator);
  await screen.shows("tmux is not installed");
  screen.type("echo plain-$((2+3))\r");
  await screen.shows("plain-5");
  screen.leave();
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.terminals_open === 0, "its end");
});

test("the harness's terminal resumes the conversation, and a turn and a person never share it", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  await coordinator.command(turn("echo first"));
  await coordinator.event("turn_settled");
  const screen = await open(coordinator, "harness");
  await coordinator.until(() => screen.shown.length > 0, "the harness on the screen");
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.terminals_open === 1, "one open terminal");
  expect(await coordinator.command(turn("echo second"))).toMatchObject({ ok: false, code: "wrong_state" });
  screen.leave();
  await coordinator.until(() => coordinator.heartbeats.at(-1)?.activity.terminals_open === 0, "no open terminal");
  expect(await coordinator.command(turn("echo second"))).toEqual({ ok: true, value: {} });
});

test("a freeze ends terminals and what runs in tmux", async () => {
  const { coordinator, sandbox } = await stage();
  sandbox.start();
  await coordinator.ready();
  const screen = await open(coordinator);
  screen.type("echo here-$((1+1)); sleep 600\r");
  await screen.shows("here-2");
  await coordinator.command({ kind: "freeze", reason: "suspend", push: false });
  await screen.ends();
  expect(sandbox.processes()).toEqual([]);
});
