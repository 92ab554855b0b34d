/**
 * Targets and arguments that do not fit, to the real commands: one line on stderr that says what to do, an exit code that is not 0, nothing on
 * stdout, and everything in and around the target byte for byte as it was.
 */
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { agent } from "./command.ts";
import { changeMeta, forge } from "./forging.ts";
import { fresh, spoil, flipped, type Here, table, nothing, plain, prepare } from "./offline-support.ts";
import { shell } from "./support.ts";

beforeAll(prepare);

describe("a target", () => {
  const into = (repo: string, home: string): string[] => ["restore", "--from", "from", "--repo", repo, "--home", home];
  const damaged = (here: Here): void => forge(here.from, "untracked", Buffer.from("x"));
  table({
    "has commits that its remote lacks": [
      (here) => shell(here, "git commit -q --allow-empty -m mine"),
      plain,
      /has commits that its remote lacks \([0-9a-f]{12}\): push them, .* or use --force/,
    ],
    "is a file": [nothing, into("key", "home"), /key is not empty and no git repository: name/],
    "lies below a file": [nothing, into("outside/keep/repo", "home"), /outside\/keep\/repo leads through a file: name/],
    "is a folder with something else": [nothing, into("outside", "home"), /outside is not empty and no git rep/],
    "has a file as its home": [
      nothing,
      into("repo", "outside/keep"),
      /--home .*outside\/keep is a file: name a folder/,
    ],
    "has a home with a link that leads out": [
      (here) => symlinkSync("../outside", join(here.home, ".claude")),
      plain,
      /\.claude leads out of the home: remove that link/,
    ],
    "is new, and a part is damaged": [damaged, into("new/repo", "new/homes/home"), /damaged or cut off/],
    "is an empty folder, and a bundle is damaged": [
      (here) => {
        mkdirSync(join(here.folder, "empty"));
        forge(here.from, "repo.bundle", Buffer.from("x"));
      },
      into("empty", "new/home"),
      /bundle is damaged/,
    ],
    "is new, and its remote is gone": [
      (here) => changeMeta(here.from, (m) => ({ ...m, remote: "file:///nowhere" })),
      into("new/repo", "new/home"),
      /builds on commit [0-9a-f]{12} of the repository, which the remote no longer gives/,
    ],
    "has a remote that lost the base commit": [
      (here) =>
        shell(
          here,
          `git init -q --bare -b main other.git; git init -q -b main s; cd s; echo o >o; git add o; git commit -qm other
           git push -q ../other.git main; cd ..; rm -rf s repo; git clone -q "file://$D/other.git" repo`,
          here.folder,
        ),
      plain,
      /builds on commit [0-9a-f]{12} of the repository, which the remote no longer gives/,
    ],
  });
});

describe("arguments of a restore", () => {
  table({
    "an unknown option": [nothing, [...plain, "--what"], /--what.*Usage: hangar-agent restore --from DIR/],
    "a word too many": [nothing, [...plain, "what"], /'what'.*Usage: /],
    "no --from": [nothing, ["restore", "--repo", "repo", "--home", "home"], /--from is needed\. Usage: /],
    "--from that is a file": [
      nothing,
      ["restore", "--from", "key", "--repo", "repo", "--home", "home"],
      /key holds no chec/,
    ],
    "an option without its value": [
      nothing,
      ["restore", "--repo", "repo", "--home", "home", "--from"],
      /--from.*Usage: /,
    ],
  });
});

describe("a snapshot with", () => {
  const snap = (...more: string[]): string[] => ["snapshot", "--repo", "repo", "--home", "home", ...more];
  const of = (repo: string, home = "home"): string[] => ["snapshot", "--repo", repo, "--home", home, "--out", "out"];
  const parent = (...more: string[]): string[] => snap("--out", "out", "--parent", ...more);
  const flip = (name: string) => (here: Here) => spoil(here, name, (b) => flipped(b, -1));
  table({
    "an unknown option": [nothing, snap("--out", "out", "--what"), /--what.*Usage: hangar-agent snapshot --repo DIR/],
    "--repo that is not there": [nothing, of("none"), /none is no git repository: run git init there, or name/],
    "--repo that is a file": [nothing, of("key"), /key is no git repository: run git init there, or name/],
    "--repo that is no repository": [nothing, of("outside"), /outside is no git repository: run git init there, or/],
    "--repo that is bare": [(here) => shell(here, "git init -q --bare b"), of("repo/b"), /b is no git repository/],
    "--repo whose index is cut off": [
      (here) => writeFileSync(join(here.repo, ".git/index"), "DIRC"),
      of("repo"),
      /index cannot be read: .*Run git status in it/,
    ],
    "--home that is a file": [nothing, of("repo", "key"), /--home .*key is a file: name a folder/],
    "--home that is not there": [nothing, of("repo", "none"), /--home .*none is not there: name one that is/],
    "--parent that is not there": [nothing, parent("none"), /none holds no checkpoint/],
    "--parent that is a file": [nothing, parent("key"), /key holds no checkpoint/],
    "--parent that is sealed, without its identity": [nothing, parent("sealed"), /--identity FILE/],
    "--parent of another session": [
      (here) => changeMeta(here.from, (m) => ({ ...m, session: "ses-00000001" })),
      parent("from", "--session", "ses-00000002"),
      /from is of session ses-00000001: name one of ses-00000002, or none/,
    ],
    "--parent whose conversation has another byte": [flip("agent.tar.zst"), parent("from"), /agent.*another digest/],
    "--parent whose bundle has another byte": [flip("repo.bundle"), parent("from"), /repo\.bundle.*another digest/],
    "--session that is none": [nothing, snap("--out", "out", "--session", "x"), /--session x is no session's id/],
    "--reason that is none": [nothing, snap("--out", "out", "--reason", "x"), /--reason is one of turn/],
    "--max-untracked-mb that is none": [nothing, snap("--out", "out", "--max-untracked-mb", "x"), /is a number of MB/],
    "--recipient with a misspelt letter": [
      nothing,
      snap("--out", "out", "--recipient", `age1${"q".repeat(58)}`),
      /recipient is misspelt or cut off/,
    ],
    "--keep-ignored that is no pathspec": [
      nothing,
      snap("--out", "out", "--keep-ignored", ":(bad)x"),
      /pathspec magic/,
    ],
    "--out that is a file": [nothing, snap("--out", "key"), /key is a file: name a new folder/],
    "--out below a file": [nothing, snap("--out", "key/out"), /key\/out leads through a file: name a folder/],
    "--out in the repo": [nothing, snap("--out", "repo/out"), /repo\/out lies in the repo: name a folder outside/],
    "--out that holds a checkpoint": [nothing, snap("--out", "from"), /from is not empty: name a new folder/],
  });

  test("--parent of another repository is whole by itself all the same", () => {
    const here = fresh();
    shell(
      here,
      "rm -rf repo; git init -q -b main repo; cd repo; echo 1 >f; git add f; git commit -qm own; echo 2 >g",
      here.folder,
    );
    expect(agent(here, ...parent("from"))).toMatchObject({ code: 0, stderr: "" });
    shell(here, "mv repo taken; rm -rf from home/.claude", here.folder);
    const back = ["restore", "--from", "out", "--repo", "repo", "--home", "home"];
    expect(agent(here, ...back)).toMatchObject({ code: 0, stderr: "", report: { verified: true } });
    expect(shell(here, "git log --format=%s; cat f g; ls")).toBe("own\n1\n2\nf\ng\n");
  });
});
