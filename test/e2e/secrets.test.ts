/** Secrets: fresh at every open, where they are asked for, and nowhere else. Real sandboxes; canaries through every way out. */
import { readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { git, makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
beforeAll(async () => {
  hangar = await startHangar();
});
afterAll(() => hangar?.close());

const CANARY = "canary-7f3a-'quoted'-\"and\"-9b21";
const LINES = ["first-canary-line-4a7d9", "second-canary-line-88c1e", "third ünïcode canary 55f0"].join("\n");
const TOKEN = `ghp_${"Zx81".repeat(9)}`;
/** What of them must never be seen outside of a sandbox: fragments long enough to be told from anything else. */
const TELLING =
  /canary-7f3a|9b21|canary-line|ünïcode canary|canary%20|Zx81Zx81|Y2FuYXJ5LTdmM2Et|NhbmFyeS03ZjNhL|jYW5hcnktN2YzYS/;

/** Where, with what is around it. */
const leak = (text: string): string | null => {
  const found = TELLING.exec(text);
  return found ? text.slice(Math.max(0, found.index - 80), found.index + 80) : null;
};

const put = (name: string, value: string, query = ""): Promise<unknown> =>
  hangar.api("PUT", `/api/secrets/${name}${query}`, { value });

test(
  "no secret leaves by what a turn says, an error, an event, a log line or a file of the daemon",
  { timeout: 180_000 },
  async () => {
    await put("CANARY", CANARY);
    await put("LINES", LINES);
    const environment = { secrets: ["CANARY", "LINES"], harness: "script" };
    await hangar.api("PUT", "/api/environments/leaky", environment);
    await hangar.api("POST", "/api/sessions", { name: "leaky", environment: "leaky" });
    await hangar.until("leaky", "ready", ({ state }) => state === "IDLE");

    const said = await hangar.turn(
      "leaky",
      [
        'echo "plain: $CANARY"',
        'printf "%s" "half: ${CANARY%-*}"; sleep 0.3; printf "%s\\n" "-${CANARY##*-}"',
        'echo "lines: $LINES"',
        'printf %s "$CANARY" | base64',
        'printf %s "user:$CANARY" | base64',
        `node -e 'console.log(JSON.stringify(process.env.CANARY), encodeURIComponent(process.env.CANARY))'`,
        'echo "stderr: $CANARY" >&2; sleep 0.2; printf "%s" "$LINES" >&2',
        'printf "not one of ours: ghp_"; printf "Zx81%.0s" 1 2 3 4 5 6 7 8 9; echo',
        "cat ~/.hangar/env",
        'head -c 70000 /dev/zero | tr "\\0" x; echo "$CANARY"',
        'echo "end: $CANARY"; exit 3',
      ].join("\n"),
    );
    expect(said).toMatchObject({ state: "failed", exit_code: 3 });
    expect(said.summary).toContain("end: ***");
    const events = JSON.stringify(await hangar.events("leaky"));
    expect(events).toContain("plain: ***");
    expect(events).toContain("stderr: ***");
    expect(events).toContain("not one of ours: ***");
    expect(leak(events)).toBeNull();

    // Refusals and failures, each with a secret in its words.
    const gone = join(hangar.dir, "gone.git");
    await hangar.api("PUT", "/api/environments/broken", {
      ...environment,
      setup: 'echo "set-up knows $CANARY" >&2; exit 9',
    });
    await hangar.api("POST", "/api/sessions", { name: "broken", environment: "broken" });
    expect((await hangar.until("broken", "failed", ({ state }) => state === "FAILED")).status).toContain(
      "set-up knows ***",
    );
    await hangar.api("PUT", "/api/environments/lost", {
      ...environment,
      repo: `file://user:${TOKEN}@localhost${gone}`,
    });
    await hangar.api("POST", "/api/sessions", { name: "lost", environment: "lost" });
    expect((await hangar.until("lost", "failed", ({ state }) => state === "FAILED")).status).toContain(
      "could not be cloned",
    );
    const refused = await hangar.raw("POST", "/api/sandboxes/leaky/exec", {
      body: JSON.stringify({ argv: ["true"], cwd: `/no/such/${CANARY}` }),
      headers: { "content-type": "application/json" },
    });
    expect(refused.status).toBeGreaterThanOrEqual(400);
    expect(leak(await refused.text())).toBeNull();
    expect(leak(await (await hangar.raw("GET", `/api/${TOKEN}`)).text())).toBeNull();

    for (const name of ["leaky", "broken"]) expect(leak(JSON.stringify(await hangar.session(name)))).toBeNull();
    expect(leak(JSON.stringify(await hangar.api("GET", "/api/sessions")))).toBeNull();
    expect(leak(await (await hangar.raw("GET", "/api/status")).text())).toBeNull();
    expect(leak(hangar.replica.log())).toBeNull();
    const state = (await filesUnder(hangar.dataDir)).filter((path) => !MAY_HOLD.test(path));
    expect(state.some((path) => path.endsWith("spool.jsonl"))).toBe(true);
    expect(state.some((path) => path.endsWith("commands.jsonl"))).toBe(true);
    for (const path of state) expect(leak((await readFile(path)).toString("utf8")), path).toBeNull();
  },
);

/** The sandbox's own: the variables' file, the agent's transcript, the set-up's whole output; and Redis, which holds users' own words. */
const MAY_HOLD = /\/home\/\.hangar\/|\.hangar-script\/|\/setup\.log$|\/redis\//;

async function filesUnder(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && (await stat(path)).size < 50_000_000) found.push(path);
  }
  return found;
}

/** Everything that the store holds of the sessions, opened with the vault's key: names, files, git objects. */
async function openedStore(): Promise<string> {
  const key = join(hangar.dataDir, "vault", "identity.txt");
  let all = "";
  for (const path of (await filesUnder(join(hangar.dataDir, "store"))).filter(
    (path) => !/\/(?:commit|meta)\.json/.test(path),
  )) {
    const opened = await shell(
      `age -d -i "$0" "$1" 2>/dev/null | { case $1 in *.zst.age) zstd -dc ;; *) cat ;; esac; } 2>/dev/null | base64 -w0`,
      key,
      path,
    );
    const bytes = Buffer.from(opened.stdout, "base64");
    all += `\n== ${path} ${bytes.length}\n${bytes.toString("utf8")}`;
  }
  return all;
}
const shell = (script: string, ...args: string[]) =>
  run("sh", ["-c", script, ...args], { env: { PATH: process.env["PATH"] ?? "" } });

test(
  "a secret is a file where it is asked for, fresh at every open, and in no checkpoint",
  { timeout: 180_000 },
  async () => {
    const remote = await makeRemote(hangar.dir, "files");
    const value = `FILE-CANARY-51c9\n"quoted" 'single' ünï\u{1F511}\r\n\ttab\n\n`;
    const long = `LONG-CANARY-77ab${"0123456789abcdef".repeat(4096)}`;
    expect(Buffer.byteLength(long)).toBeGreaterThan(65_536);
    await hangar.api("PUT", "/api/secrets/TOKEN_FILE", { value, file: "~/.config/x/token", mode: "0400" });
    await put("TRACKED", "TRACKED-CANARY-12de");
    await put("INSIDE", "INSIDE-CANARY-aa01\n");
    await put("LONG", long);
    await hangar.api("PUT", "/api/environments/files", {
      repo: remote,
      harness: "script",
      setup: "cp conf/inside.txt setup-saw.txt && rm setup-saw.txt",
      secrets: [
        "TOKEN_FILE",
        "LONG",
        { name: "TRACKED", file: "src/f1.txt" },
        { name: "INSIDE", file: "conf/inside.txt" },
      ],
    });
    await hangar.api("POST", "/api/sessions", { name: "files", environment: "files" });
    await hangar.until("files", "ready", ({ state }) => state === "IDLE");

    const token = await hangar.exec(
      "files",
      "sh",
      "-c",
      'cat ~/.config/x/token; stat -L -c "%a" ~/.config/x/token >&2',
    );
    expect(token).toMatchObject({ code: 0, stdout: value, stderr: "400\n" });
    expect((await hangar.exec("files", "printenv", "LONG")).stdout).toBe(`${long}\n`);
    expect((await hangar.exec("files", "sh", "-c", '. ~/.hangar/env; printf %s "$LONG"')).stdout).toBe(long);
    expect((await hangar.exec("files", "printenv", "TOKEN_FILE")).code).not.toBe(0);
    expect((await hangar.exec("files", "cat", "src/f1.txt")).stdout).toBe("TRACKED-CANARY-12de");
    const modes = await hangar.exec(
      "files",
      "sh",
      "-c",
      "stat -c %a ~/.hangar ~/.hangar/secrets ~/.hangar/env; stat -L -c %a src/f1.txt",
    );
    expect(modes.stdout).toBe("700\n700\n600\n600\n");

    // Committed, and copied to where a harness keeps its credentials.
    const turn = await hangar.turn(
      "files",
      "git add -A && git -c user.name=a -c user.email=a@b.c commit -qm all && mkdir -p ~/.claude ~/.codex && cp ~/.config/x/token ~/.claude/.credentials.json && cp ~/.config/x/token ~/.codex/auth.json && echo edit >> src/f2.txt",
    );
    expect(turn.state).toBe("done");
    expect(
      (
        await hangar.exec(
          "files",
          "sh",
          "-c",
          "git rev-list --all --objects | cut -d' ' -f1 | git cat-file --batch | grep -ac CANARY",
        )
      ).stdout,
    ).toBe("0\n");
    await hangar.api("POST", "/api/sessions/files/suspend", {});
    await hangar.until("files", "suspended", ({ state }) => state === "SUSPENDED");
    const opened = await openedStore();
    expect(opened.includes("src/f2.txt")).toBe(true);
    expect(opened.includes("git bundle")).toBe(true);
    for (const canary of ["FILE-CANARY", "TRACKED-CANARY", "INSIDE-CANARY", "LONG-CANARY"])
      expect(opened.includes(canary), canary).toBe(false);

    // Rotated, removed, and one that is the environment's own.
    await put("TRACKED", "ROTATED-CANARY-34");
    await put("LONG", "for-all-sessions");
    await put("LONG", "for-files-alone", "?environment=files");
    await hangar.api("PUT", "/api/environments/files", {
      repo: remote,
      harness: "script",
      secrets: ["LONG", { name: "TRACKED", file: "src/f1.txt" }],
    });
    await hangar.api("POST", "/api/sessions/files/open", {});
    await hangar.until("files", "ready again", ({ state }) => state === "IDLE");
    expect((await hangar.session("files")).restored_from).toMatchObject({ verified: true });
    expect((await hangar.exec("files", "cat", "src/f1.txt")).stdout).toBe("ROTATED-CANARY-34");
    expect((await hangar.exec("files", "printenv", "LONG")).stdout).toBe("for-files-alone\n");
    const gone = await hangar.exec(
      "files",
      "sh",
      "-c",
      "cat ~/.config/x/token conf/inside.txt; ls ~/.hangar/secrets; printenv TOKEN_FILE",
    );
    expect(gone.stdout).toBe("TRACKED\n");

    // The one for all takes over; a missing one is named with what to do.
    await hangar.api("POST", "/api/sessions/files/suspend", {});
    await hangar.until("files", "suspended", ({ state }) => state === "SUSPENDED");
    await hangar.api("DELETE", "/api/secrets/LONG?environment=files");
    await hangar.api("DELETE", "/api/secrets/TRACKED");
    await hangar.api("POST", "/api/sessions/files/open", {});
    const failed = await hangar.until("files", "failed", ({ state }) => state === "FAILED");
    expect(failed.status).toMatch(/TRACKED.*is not set: `hangar secret set TRACKED`/);
    await put("TRACKED", "back again");
    await hangar.api("POST", "/api/sessions/files/open", {});
    await hangar.until("files", "ready once more", ({ state }) => state === "IDLE");
    expect((await hangar.exec("files", "printenv", "LONG")).stdout).toBe("for-all-sessions\n");
  },
);

test("what cannot be exact is refused, in words that say what to do", { timeout: 120_000 }, async () => {
  const refusal = async (name: string, body: unknown, query = ""): Promise<string> =>
    (await hangar.raw("PUT", `/api/secrets/${name}${query}`, { body: JSON.stringify(body) })).text();
  expect(await refusal("E", { value: "" })).toContain("it is empty");
  expect(await refusal("N", { value: "a\0b" })).toContain("cannot hold NUL");
  expect(await refusal("U", { value: "\ud800" })).toContain("not valid Unicode");
  expect(await refusal("M", { value: "v", file: "~/x", mode: "0644" })).toContain("owner alone");
  for (const file of ["/etc/passwd", "../x", "~/../x", "~/.hangar/env", ".git/config", "a/.GIT/x", "~", "a//b", "x\ny"])
    expect(await refusal("P", { value: "v", file }), file).toContain("file: give ~/");
  expect(await refusal("X", { value: "v" }, "?environment=nowhere")).toContain("hangar env apply");

  await put("TOO_LARGE", "x".repeat(140_000));
  await put("TALK", "in a conversation's place");
  const start = async (name: string, secrets: unknown[], more = {}): Promise<string | null> => {
    await hangar.api("PUT", `/api/environments/${name}`, { harness: "script", secrets, ...more });
    await hangar.api("POST", "/api/sessions", { name, environment: name });
    return (await hangar.until(name, "failed", ({ state }) => state === "FAILED")).status;
  };
  expect(await start("large", ["TOO_LARGE"])).toContain("more than a variable can hold");
  expect(await start("talk", [{ name: "TALK", file: "~/.claude/projects/x/y.jsonl" }])).toContain(
    "conversations are kept",
  );
  expect(
    await start("twice", [
      { name: "TALK", file: "~/a" },
      { name: "TOO_LARGE", file: "~/a" },
    ]),
  ).toContain("both");
  // A repo that would lead it elsewhere.
  const remote = await makeRemote(hangar.dir, "hostile");
  const work = join(hangar.dir, "hostile-work");
  await git(hangar.dir, "clone", "-q", remote, work);
  await symlink("/tmp", join(work, "conf"));
  await git(work, "add", "-A");
  await git(work, "commit", "-qm", "lead astray");
  await git(work, "push", "-q", "origin", "main");
  expect(await start("hostile", [{ name: "TALK", file: "conf/x" }], { repo: remote })).toContain("leads elsewhere");
});

test("the command line takes a file byte for byte, or as a variable without its last line break", async () => {
  const file = join(hangar.dir, "key.pem");
  const set = (...args: string[]) => hangar.cli(["secret", "set", ...args]);
  await writeFile(file, "line one\nline two\n");
  await hangar.api("PUT", "/api/environments/cli", { harness: "script", secrets: ["AS_FILE", "AS_VARIABLE"] });
  expect(await set("AS_FILE", "--file", file, "--as", "~/.ssh/key", "--mode", "400")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("as the file ~/.ssh/key"),
  });
  expect(await set("AS_VARIABLE", "--file", file, "--env", "cli")).toMatchObject({ code: 0 });
  const listed = await hangar.cli(["secret", "list"]);
  expect(listed.stdout).toMatch(/AS_FILE +~\/\.ssh\/key +set/);
  expect(listed.stdout).toMatch(/AS_VARIABLE \(cli\) +variable +set/);

  await hangar.api("POST", "/api/sessions", { name: "cli", environment: "cli" });
  await hangar.until("cli", "ready", ({ state }) => state === "IDLE");
  expect((await hangar.exec("cli", "sh", "-c", "cat ~/.ssh/key; stat -L -c %a ~/.ssh/key")).stdout).toBe(
    "line one\nline two\n400\n",
  );
  expect((await hangar.exec("cli", "sh", "-c", 'printf %s "$AS_VARIABLE"')).stdout).toBe("line one\nline two");

  await writeFile(file, Buffer.from([0xff, 0xfe, 0x00]));
  for (const [args, why] of [
    [["B", "--file", file], "is not UTF-8 text"],
    [["B", "--file", `${file}.none`], "there is no such file"],
    [["B", "--file", file, "--from-env"], "not by both"],
    [["B", "--file", "/dev/null"], "is empty"],
    [["B", "--file", "/etc/hostname", "--as", "/etc/x"], "inside the repo"],
    [["B", "--file", "/etc/hostname", "--mode", "600"], "only a file has one"],
  ] as const) {
    const refused = await set(...args);
    expect(refused.code, why).toBe(2);
    expect(refused.stderr.trim().split("\n")).toEqual([expect.stringContaining(why)]);
  }
  expect(await hangar.cli(["secret", "rm", "AS_VARIABLE"])).toMatchObject({ code: 4 });
  expect(await hangar.cli(["secret", "rm", "AS_VARIABLE", "--env", "cli"])).toMatchObject({ code: 0 });
}, 60_000);
