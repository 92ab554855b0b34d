import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { exec, stage } from "./support.ts";

test("git in the sandbox gets the session's credential from the coordinator", async () => {
  const { coordinator, sandbox } = await stage({ git_credentials: true });
  coordinator.credential = { username: "robot", password: "sesame-open-now" };
  sandbox.start();
  await coordinator.ready();
  const fill = "printf 'protocol=https\\nhost=git.example\\npath=a/b.git\\n\\n' | git credential fill";
  const answer = await coordinator.command(exec("sh", "-c", fill));
  const { stdout, stderr } = (answer as { value: { stdout: string; stderr: string } }).value;
  expect(atob(stdout) + atob(stderr)).toContain("username=robot\npassword=sesame-open-now\n");
});

test("a clone over HTTP that asks for a password uses it", async () => {
  const seen: Array<string | undefined> = [];
  const server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.writeHead(request.headers.authorization ? 404 : 401, { "www-authenticate": 'Basic realm="git"' }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = server.address() as AddressInfo;
    const { coordinator, sandbox } = await stage({ git_credentials: true, repo: `http://127.0.0.1:${port}/a/b.git` });
    coordinator.credential = { username: "robot", password: "sesame-open-now" };
    sandbox.start();
    const failed = await coordinator.event("start_failed");
    expect(seen).toContain(`Basic ${btoa("robot:sesame-open-now")}`);
    expect(failed.error).toMatch(/not found/);
    expect(failed.error).not.toContain("sesame");
  } finally {
    server.close();
  }
});

test("without an answer git is told nothing and the commit identity is a default one", async () => {
  const { coordinator, sandbox } = await stage({ git_credentials: true });
  sandbox.start();
  await coordinator.ready();
  writeFileSync(join(sandbox.repo, "a.txt"), "a\n");
  const script =
    "printf 'protocol=https\\nhost=git.example\\n\\n' | git credential fill; git add a.txt && git commit -qm A && git log -1 --format=%an";
  const answer = await coordinator.command(exec("sh", "-c", script));
  const { stdout, stderr } = (answer as { value: { stdout: string; stderr: string } }).value;
  expect(atob(stdout)).toBe("Hangar\n");
  expect(atob(stderr)).toMatch(/no credential for git.example: nothing is known for that remote/);
});

test("git is told when a credential ends", async () => {
  const { coordinator, sandbox } = await stage({ git_credentials: true });
  coordinator.credential = { username: "robot", password: "sesame", password_expiry_utc: 1_800_000_000 };
  sandbox.start();
  await coordinator.ready();
  // The helper itself, as git calls it: an older git than 2.41 does not pass on what it says of this.
  const call = `helper=$(git config --global credential.helper); printf 'protocol=https\\nhost=git.example\\n\\n' | eval "\${helper#!} get"`;
  const answer = await coordinator.command(exec("sh", "-c", call));
  const { stdout } = (answer as { value: { stdout: string } }).value;
  expect(atob(stdout)).toBe("username=robot\npassword=sesame\npassword_expiry_utc=1800000000\n");
});
