/** Every command against a real Hangar with real sandboxes. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Checkpoint, EnvironmentRecord, Session, SessionListItem, Turn } from "@hangar/shared";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { git, type Ran } from "../../../test/support/hangar.ts";
import { type Cli, makeCli } from "./support.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let cli: Cli;
let remote: string;
beforeAll(async () => {
  cli = makeCli();
  await cli.ok("up");
  remote = await cli.remote();
});
afterAll(() => cli.close());

const get = (name: string): Promise<Session> => cli.json<Session>("session", "get", name);
const failure = ({ code, stderr }: Ran): [number, string] => [code, stderr.trimEnd().split("\n").at(-1) ?? ""];

describe("environments", () => {
  test("apply, list, get as a file that can be applied again, rm", async () => {
    writeFileSync(
      join(cli.dir, "app.yaml"),
      `name: app\nrepo: ${remote}\nvariables: { GREETING: hello }\nidle_minutes: 5\n`,
    );
    expect(await cli.ok("env", "apply", "-f", "app.yaml")).toContain("app is applied");
    expect(await cli.ok("env", "list")).toMatch(/^NAME .*\napp {2}/);
    const written = await cli.ok("env", "get", "app");
    expect((await cli.hangar(["env", "apply", "-f", "-"], { input: written })).code).toBe(0);
    expect(await cli.ok("env", "get", "app")).toBe(written);
    expect(await cli.json<EnvironmentRecord>("env", "get", "app")).toMatchObject({
      idle_minutes: 5,
      variables: { GREETING: "hello" },
    });
    await cli.ok("env", "rm", "app");
    expect(failure(await cli.hangar(["env", "get", "app"]))).toEqual([
      4,
      expect.stringMatching(/^hangar: There is no environment "app"/),
    ]);
  });

  test("a file that is wrong or not there is one line", async () => {
    writeFileSync(join(cli.dir, "bad.yaml"), "name: bad\nidle_minutes: -1\n");
    expect(failure(await cli.hangar(["env", "apply", "-f", "bad.yaml"]))).toEqual([
      2,
      expect.stringMatching(/^hangar: bad\.yaml:2: idle_minutes: /),
    ]);
    expect(failure(await cli.hangar(["env", "apply", "-f", "none.yaml"]))).toEqual([
      2,
      "hangar: none.yaml: there is no such file",
    ]);
  });
});

describe("secrets", () => {
  test("from standard input or a variable; shown by name alone; given to the sandbox", async () => {
    expect((await cli.hangar(["secret", "set", "FROM_STDIN"], { input: "top secret\n" })).code).toBe(0);
    expect(
      (await cli.hangar(["secret", "set", "FROM_ENV", "--from-env", "OTHER"], { env: { OTHER: "from elsewhere" } }))
        .code,
    ).toBe(0);
    const listed = await cli.ok("secret", "list");
    expect(listed).toContain("FROM_STDIN");
    expect(listed + (await cli.ok("secret", "list", "--json"))).not.toMatch(/top secret|from elsewhere/);
    writeFileSync(join(cli.dir, "s.yaml"), "name: with-secrets\nsecrets: [FROM_STDIN, FROM_ENV]\n");
    await cli.ok("env", "apply", "-f", "s.yaml");
    expect(
      await cli.ok(
        "session",
        "new",
        "secretive",
        "--env",
        "with-secrets",
        "--wait",
        'test "$FROM_STDIN/$FROM_ENV" = "top secret/from elsewhere" && echo same',
      ),
    ).toContain("same");
    await cli.ok("session", "rm", "secretive", "--yes");
    await cli.ok("env", "rm", "with-secrets");
    await cli.ok("secret", "rm", "FROM_ENV");
    expect(failure(await cli.hangar(["secret", "rm", "FROM_ENV"]))[0]).toBe(4);
  });

  test("typed at a prompt it is not shown", async () => {
    const { code, seen } = await cli.onTerminal(["secret", "set", "TYPED"], [[/Value of TYPED: /, "hush hush\r"]]);
    expect(code).toBe(0);
    expect(seen).toContain("TYPED is set");
    expect(seen).not.toContain("hush");
  });

  test("a value that is missing, or a name that is none, is refused", async () => {
    expect(failure(await cli.hangar(["secret", "set", "EMPTY"]))[0]).toBe(2);
    expect(failure(await cli.hangar(["secret", "set", "A-B"], { input: "x" }))).toEqual([
      2,
      expect.stringContaining("A-B is no variable's name"),
    ]);
    expect(failure(await cli.hangar(["secret", "set", "X", "--from-env"]))).toEqual([
      2,
      "hangar: X is not set in the environment",
    ]);
  });
});

describe("a session's life", () => {
  test("new, send, get, list, suspend, send, checkpoints, restore, keep, archive, rm", async () => {
    const made = await cli.hangar([
      "session",
      "new",
      "life",
      "--repo",
      remote,
      "--harness",
      "script",
      "--wait",
      "echo one > a.txt; echo made it",
    ]);
    expect(made).toMatchObject({ code: 0, stdout: expect.stringContaining("made it\n") });
    expect(made.stderr).toMatch(/life: starting[\s\S]*life: cloning[\s\S]*turn done in .*: checkpoint ckp-/);

    const [item] = await cli.json<SessionListItem[]>("session", "list");
    expect(item).toMatchObject({ name: "life", state: "IDLE", turns: 1 });
    expect(await cli.ok("session", "list")).toMatch(/^NAME +STATE +HARNESS +REPO +ACTIVE +LAST\nlife +idle +script /);
    expect(await cli.ok("session", "get", "life")).toMatch(
      /life {2}idle\n[\s\S]*✓ "echo one > a.txt; echo made it"[\s\S]*ckp-/,
    );

    const queued = await cli.hangar(["session", "send", "life", "-", "--json"], {
      input: "echo two >> a.txt\ncat a.txt\n",
    });
    const turn = JSON.parse(queued.stdout) as Turn;
    expect(turn.message).toBe("echo two >> a.txt\ncat a.txt");
    const again = await cli.hangar(["session", "send", "life", "--wait", "cat a.txt; exit 3"]);
    expect(failure(again)).toEqual([1, expect.stringContaining("hangar: ")]);
    expect(again.stderr).toContain("exit code 3");

    expect(await cli.ok("session", "suspend", "life")).toMatch(
      /^life is suspended: ckp-\w+ holds it, and no sandbox runs\n$/,
    );
    expect(await cli.json("sb", "list")).toEqual([]);
    const before = await get("life");
    expect(await cli.ok("session", "send", "life", "--wait", "cat a.txt")).toContain("one\ntwo\n");
    const after = await get("life");
    expect(after.generation).toBe(before.generation + 1);
    expect(after.restored_from).toMatchObject({ verified: true });
    expect(new Set(after.turns.map((one) => one.harness_session)).size).toBe(1);

    const checkpoints = await cli.json<Checkpoint[]>("session", "checkpoints", "life");
    const oldest = checkpoints.toSorted((a, b) => a.ts.localeCompare(b.ts))[0] as Checkpoint;
    expect(await cli.ok("session", "restore", "life", oldest.id)).toContain(`life is at ${oldest.id}`);
    expect((await cli.hangar(["sb", "exec", "life", "cat", "a.txt"])).stdout).toBe("one\n");

    expect(await cli.ok("session", "keep", "life", "--idle", "0", "--title", "A life")).toContain(
      "stays up until you suspend it",
    );
    expect(await get("life")).toMatchObject({ idle_minutes: 0, title: "A life" });
    expect(await cli.ok("session", "archive", "life")).toContain("life is archived");
    expect(await cli.ok("session", "list")).not.toContain("life");
    expect(await cli.ok("session", "list", "--all")).toContain("life");
    expect(failure(await cli.hangar(["session", "send", "life", "echo"]))[0]).toBe(5);
    await cli.ok("session", "rm", "life", "--yes");
    expect(failure(await cli.hangar(["session", "get", "life"]))).toEqual([4, expect.stringMatching(/^hangar: /)]);
  });

  test("without a repo or environment it takes the origin of the folder it is made in", async () => {
    const clone = join(cli.dir, "clone");
    await git(cli.dir, "clone", "-q", remote, clone);
    const ran = await cli.hangar(["session", "new", "here", "--wait", "ls"], { cwd: clone });
    expect(ran).toMatchObject({ code: 0, stdout: expect.stringContaining("src\n") });
    expect(ran.stderr).toContain(`repo: ${remote} (the origin of this folder)`);
    await cli.ok("session", "rm", "here", "--yes");
  });

  test("exec gives back bytes and exit code; checkpoint says when nothing changed; cancel ends a turn", async () => {
    await cli.ok("session", "new", "work", "--repo", remote, "--harness", "script", "--wait");
    expect(await cli.hangar(["sb", "exec", "work", "--", "sh", "-c", "printf 'a\\0b'; echo oops >&2; exit 7"])).toEqual(
      { code: 7, stdout: "a\0b", stderr: "oops\n" },
    );
    await cli.ok("sb", "exec", "work", "--", "sh", "-c", "echo x > new");
    expect(await cli.ok("session", "checkpoint", "work")).toMatch(/^committed ckp-/);
    expect(await cli.ok("session", "checkpoint", "work")).toMatch(/^nothing changed since ckp-/);
    expect(await cli.ok("sb", "list")).toMatch(/work +(?:idle|active)/);
    await cli.ok("session", "send", "work", "echo begun; sleep 1000");
    await cli.ok("session", "cancel", "work");
    const cancelled = await cli.hangar(["session", "send", "work", "--wait", "--json", "echo after"]);
    expect(JSON.parse(cancelled.stdout)).toMatchObject({ state: "done" });
    expect((await get("work")).turns.map((turn) => turn.state)).toEqual(["cancelled", "done"]);
    expect(failure(await cli.hangar(["session", "cancel", "work"]))[0]).toBe(5);
    await cli.ok("session", "rm", "work", "--yes");
  });

  test("Ctrl-C while a turn is shown leaves it running and says so", async () => {
    await cli.ok("session", "new", "long", "--harness", "script", "--wait");
    const { code, seen } = await cli.onTerminal(
      ["session", "send", "long", "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over"],
      [[/begun/, "\x03"]],
    );
    expect(code).toBe(130);
    expect(seen).toContain("the turn goes on");
    expect((await get("long")).turns.at(-1)?.state).toBe("running");
    await cli.ok("sb", "exec", "long", "touch", "go");
    expect(await cli.ok("session", "send", "long", "--wait", "echo next")).toContain("next");
    expect((await get("long")).turns.map((turn) => turn.state)).toEqual(["done", "done"]);
  });

  test("attach opens a suspended session and is a terminal in its sandbox; Ctrl-] detaches", async () => {
    await cli.ok("session", "suspend", "long");
    const { code, seen } = await cli.onTerminal(
      ["sb", "attach", "long"],
      [
        [/[$#] /, "echo mar''ker; pwd\r"],
        [/marker/, "\x1d"],
      ],
    );
    expect(code).toBe(0);
    expect(seen).toContain("detach with Ctrl-]");
    expect(seen).toContain("/workspace/repo");
    expect(seen).toContain("long: detached");
    expect(failure(await cli.hangar(["sb", "attach", "long"]))).toEqual([
      2,
      expect.stringContaining("attach needs a terminal"),
    ]);
    await cli.ok("session", "rm", "long", "--force");
  });
});

describe("bad input is one clear line and an exit code", () => {
  test.each([
    [["session", "get", "nobody"], 4, /^hangar: .*nobody/],
    [["session", "send", "nobody", "hi"], 4, /^hangar: .*nobody/],
    [["session", "send", "nobody"], 2, /^hangar: give a message/],
    [["session", "new", "Bad Name", "--harness", "script"], 2, /^hangar: .*lower-case/],
    [["session", "new", "x", "--env", "nowhere"], 4, /^hangar: There is no environment "nowhere"/],
    [["session", "new", "x", "--repo", "-oProxyCommand=evil"], 2, /^hangar: /],
    [
      ["session", "new", "x", "--repo", "file:///nowhere/at/all.git", "--harness", "script", "--wait"],
      6,
      /^hangar: .*nowhere\/at\/all/,
    ],
    [["session", "restore", "x", "latest"], 2, /^hangar: /],
    [["session", "keep", "x"], 2, /^hangar: say what to keep/],
    [["session", "keep", "x", "--idle", "never"], 2, /^hangar: option '--idle <minutes>' argument 'never' is invalid/],
    [["sb", "exec", "nobody", "ls"], 4, /^hangar: .*nobody/],
    [["sesion"], 2, /^hangar: unknown command 'sesion' \(Did you mean session\?\) \(see `hangar --help`\)$/],
    [
      ["env", "apply"],
      2,
      /^hangar: required option '-f, --file <file>' not specified \(see `hangar env apply --help`\)$/,
    ],
  ] as const)("%j", async (args, code, line) => {
    const [got, said] = failure(await cli.hangar(args));
    expect(said).toMatch(line);
    expect(got).toBe(code);
  });

  test("a name that is taken", async () => {
    await cli.ok("session", "new", "taken", "--harness", "script", "--wait");
    expect(failure(await cli.hangar(["session", "new", "taken", "--harness", "script"]))).toEqual([
      5,
      expect.stringContaining("taken"),
    ]);
    await cli.ok("session", "rm", "taken", "--yes");
  });

  test("a wrong token, none, and a Hangar that is not there", async () => {
    const { url } = JSON.parse(readFileSync(join(cli.dataDir, "hangar.json"), "utf8")) as { url: string };
    expect(
      failure(await cli.hangar(["session", "list"], { env: { HANGAR_TOKEN: "wrong-wrong-wrong-wrong" } }))[0],
    ).toBe(7);
    const elsewhere = { HANGAR_DATA_DIR: join(cli.dir, "none") };
    expect(failure(await cli.hangar(["status"], { env: { ...elsewhere, HANGAR_URL: url } }))).toEqual([
      7,
      expect.stringContaining("set HANGAR_TOKEN"),
    ]);
    expect(failure(await cli.hangar(["status"], { env: elsewhere }))).toEqual([
      3,
      "hangar: Hangar is not running: start it with `hangar up`",
    ]);
    expect(failure(await cli.hangar(["status"], { env: { HANGAR_URL: "http://127.0.0.1:9" } }))[0]).toBe(3);
    expect(failure(await cli.hangar(["up"], { env: { HANGAR_URL: url } }))).toEqual([
      2,
      expect.stringContaining("unset it"),
    ]);
  });
});

test("every command has help with an example", async () => {
  const top = await cli.ok("--help");
  for (const group of [[], ["env"], ["vault"], ["secret"], ["session"], ["sb"]]) {
    const listed = group.length === 0 ? top : await cli.ok(...group, "--help");
    const commands = [...listed.slice(listed.indexOf("Commands:")).matchAll(/^ {2}([a-z]+)\b/gm)].map(
      (found) => found[1] as string,
    );
    expect(commands.length).toBeGreaterThan(2);
    for (const command of commands.filter(
      (name) => !["help", "env", "vault", "secret", "session", "sb", "hangar"].includes(name),
    )) {
      const help = await cli.ok(...group, command, "--help");
      expect(help).toMatch(/Examples:\n {2}.*hangar /);
    }
  }
});
