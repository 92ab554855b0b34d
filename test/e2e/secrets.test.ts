/** Secrets: fresh at every open, where they are asked for, and nowhere else. Real sandboxes; canaries through every way out. */
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startHangar, type TestHangar } from "../support/hangar.ts";

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
