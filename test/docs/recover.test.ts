/** docs/recover.md, followed to the letter: its own commands bring a session back from a copy of the store, without Hangar. */
import { cp, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeRemote, run, startHangar, type TestHangar } from "../support/hangar.ts";

const page = await readFile(new URL("../../docs/recover.md", import.meta.url), "utf8");
const script = [...page.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block]) => block).join("\n");

let hangar: TestHangar;
let remote: string;
beforeAll(async () => {
  hangar = await startHangar();
  remote = await makeRemote(hangar.dir);
}, 120_000);
afterAll(() => hangar.close());

/** Several turns, so that later checkpoints refer to parts of earlier ones. */
const TURNS = [
  `set -e
   git config user.name A; git config user.email a@example.org
   echo one >one.txt; git add one.txt; git commit -qm "not pushed"
   git branch other HEAD~1; git tag -a -m "a tag" v1
   head -c 9000000 /dev/urandom >log.bin
   echo stale >goes-away.txt; echo "a line" >>src/f1.txt`,
  `set -e
   git checkout -q other; echo two >two.txt; git add two.txt; git commit -qm "on another branch"; git checkout -q -
   echo stashed >>one.txt; git stash push -q -m "for later" one.txt
   head -c 1000 /dev/urandom >>log.bin; rm goes-away.txt; git checkout -q src/f1.txt`,
  `set -e
   git checkout -q -b theirs HEAD~1; echo theirs >one.txt; git add one.txt; git commit -qm theirs; git checkout -q -
   git merge -q theirs >/dev/null 2>&1 && exit 1
   echo staged >staged.txt; git add staged.txt; echo "and more" >>staged.txt
   git rm -q --cached src/f2.txt; rm src/f3.txt; echo ita >ita.txt; git add -N ita.txt
   mkdir -p "deep/er dir"; printf 'odd \\000 bytes' >"deep/er dir/näme"; chmod 755 "deep/er dir/näme"; ln -s ../one.txt deep/link
   git branch -q --set-upstream-to=origin/main other; git status --short`,
];

const LOOK = `git rev-parse HEAD; git symbolic-ref -q HEAD; git for-each-ref --format='%(objectname) %(refname)' refs/heads refs/tags refs/stash
git ls-files -s; git diff --cached --name-status; git status --porcelain; git stash list; git stash show -p; git config branch.other.merge
git ls-files -co --exclude-standard -z | sort -z | xargs -0 -I{} sh -c 'test -h "{}" && readlink "{}" || { test -e "{}" && stat -c "%a %n" "{}" && sha256sum "{}"; }'`;

test("the page's own commands bring everything back", async () => {
  await hangar.api("POST", "/api/sessions", { name: "other-work", repo: remote, harness: "script" });
  await hangar.turn("other-work", "echo something else");
  await hangar.api("POST", "/api/sessions", { name: "lost-work", repo: remote, harness: "script" });
  for (const message of TURNS) {
    const turn = await hangar.turn("lost-work", message);
    expect(turn, turn.error ?? "").toMatchObject({ state: "done", exit_code: 0 });
  }
  const before = await hangar.exec("lost-work", "sh", "-c", LOOK);
  expect(before.stdout).toMatch(/UU one\.txt|AA one\.txt/);
  expect(before.stdout).toContain("for later");
  const live = await hangar.session("lost-work");
  await hangar.api("POST", "/api/sessions/lost-work/suspend", {});
  const { checkpoints } = await hangar.until("lost-work", "suspended", (s) => s.state === "SUSPENDED");
  const newest = checkpoints.toSorted((a, b) => (a.id < b.id ? -1 : 1)).at(-1);
  expect(newest?.parts.some((part) => part.from !== undefined)).toBe(true);

  // A copy of the store and the identity are all there is.
  await hangar.replica.kill("SIGTERM");
  const rescue = join(hangar.dir, "rescue");
  await cp(join(hangar.dataDir, "store"), join(rescue, "store"), { recursive: true });
  await cp(join(hangar.dataDir, "vault/identity.txt"), join(rescue, "identity.txt"));
  await rename(hangar.dataDir, `${hangar.dataDir}.gone`);

  const ran = await run("/bin/sh", ["-c", script], {
    cwd: rescue,
    env: {
      PATH: "/usr/local/bin:/usr/bin:/bin",
      HOME: rescue,
      STORE: join(rescue, "store"),
      KEY: join(rescue, "identity.txt"),
      OUT: join(rescue, "out"),
      SESSION: live.id,
    },
  });
  expect(ran.code, ran.stdout + ran.stderr).toBe(0);
  expect(ran.stdout).toContain('"name":"lost-work"');
  expect(ran.stdout).toContain('"name":"other-work"');
  expect(ran.stdout).toContain(`harness_session: "${live.harness_session}"`);

  const after = await run("/bin/sh", ["-c", LOOK], { cwd: join(rescue, "out/repo"), env: { PATH: "/usr/bin:/bin" } });
  expect(after.stdout.replaceAll(/^\S+ refs\/heads\/main\n/gm, "")).toBe(
    before.stdout.replaceAll(/^\S+ refs\/heads\/main\n/gm, ""),
  );
  const transcript = await readFile(
    join(rescue, `out/home/.hangar-script/sessions/${live.harness_session}.jsonl`),
    "utf8",
  );
  expect(transcript.trimEnd().split("\n").length).toBeGreaterThanOrEqual(TURNS.length);
  expect(transcript).toContain("on another branch");
});
