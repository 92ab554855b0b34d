import { describe, expect, test } from "vitest";
import { parseEnvironments } from "../src/commands/environment.ts";

const wrong = (text: string): string => {
  try {
    parseEnvironments(text, "app.yaml");
  } catch (error) {
    return (error as Error).message;
  }
  return "it was accepted";
};

test("YAML and JSON, one or several, stay as they were written", () => {
  expect(parseEnvironments("name: app\nidle_minutes: 0\n", "f")).toEqual([{ name: "app", idle_minutes: 0 }]);
  expect(parseEnvironments('{"name": "app", "repo": "/srv/a.git"}', "f")).toEqual([
    { name: "app", repo: "/srv/a.git" },
  ]);
  expect(parseEnvironments("name: a\n---\nname: b\n", "f").map((one) => one.name)).toEqual(["a", "b"]);
});

describe("what is wrong is said with the file, the line and the field", () => {
  test.each([
    ["name: app\nrepo: ftp://x\n", /^app\.yaml:2: repo: not a repository: give https/],
    ["name: app\n\nvariables:\n  OK: a\n  1BAD: b\n", /^app\.yaml:\d: variables\.1BAD: /],
    ["name: app\nvariables:\n  A: 1\n", /^app\.yaml:3: variables\.A: .*expected string/],
    ["name: app\nharnes: claude\n", /^app\.yaml:2: harnes: there is no such field; the fields are name, repo, /],
    ["repo: /a\n", /^app\.yaml:1: name: /],
    ["name: A B\n", /^app\.yaml:1: name: use 1 to 60 lower-case letters/],
    ["name: app\nsecrets: [A, B-C]\n", /^app\.yaml:2: secrets\.1: /],
    ["name: [app\nrepo: x\n", /^app\.yaml:\d: /],
    ["name: app\n---\nname: b\nidle_minutes: soon\n", /^app\.yaml:4: idle_minutes: /],
    ["", /^app\.yaml: it holds no environment$/],
    ["- a\n- b\n", /^app\.yaml:1: /],
  ])("%j", (text, message) => {
    expect(wrong(text)).toMatch(message);
    expect(wrong(text)).not.toContain("\n");
  });
});
