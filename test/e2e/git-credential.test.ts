/** git's credentials in a real sandbox: from this machine's helper, for the session's remote alone, while its sandbox is up. */
import { chmod, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { git, makeRemote, startHangar, type TestHangar } from "../support/hangar.ts";

let hangar: TestHangar;
let server: Server;
let remote: string;
const ISSUED = /issued-token-\d{6}-zq/;
const used: string[] = [];

beforeAll(async () => {
  hangar = await startHangar();
  const bare = await makeRemote(hangar.dir, "private");
  await git(bare, "update-server-info");
  // A stand-in for a git host, by git's plain HTTP protocol.
  server = createServer((request, response) => {
    const [, password = ""] = Buffer.from(request.headers.authorization?.split(" ")[1] ?? "", "base64")
      .toString()
      .split(":");
    if (!ISSUED.test(password)) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end();
      return;
    }
    used.push(password);
    const path = join(bare, decodeURIComponent((request.url ?? "").split("?")[0]!.replace("/org/private.git", "")));
    readFile(path).then(
      (bytes) => response.end(bytes),
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  remote = `http://127.0.0.1:${(server.address() as AddressInfo).port}/org/private.git`;
  // This machine's helper draws a new token each time it is asked, as one for an app of a git host does.
  const helper = join(hangar.dir, "helper");
  await writeFile(
    helper,
    `#!/bin/sh
[ "$1" = get ] || { echo "$1" >> ${hangar.dir}/told; exit 0; }
n=$(cat ${hangar.dir}/count 2>/dev/null || echo 100000); n=$((n+1)); echo $n > ${hangar.dir}/count
printf 'username=app\\npassword=issued-token-%s-zq\\npassword_expiry_utc=%s\\n' $n $(( $(date +%s) + 600 ))
`,
  );
  await chmod(helper, 0o755);
  await writeFile(join(hangar.home, ".gitconfig"), `[credential]\n\thelper = ${helper}\n`);
});
afterAll(async () => {
  await hangar?.close();
  server?.close();
});

test(
  "each use gets a fresh one, for the session's own remote, never on disk, none after the suspend",
  { timeout: 120_000 },
  async () => {
    await hangar.api("POST", "/api/sessions", { name: "private", harness: "script", repo: remote });
    await hangar.until("private", "ready", ({ state }) => state === "IDLE");
    expect(used.length).toBeGreaterThan(0);
    const first = new Set(used).size;
    expect((await hangar.exec("private", "git", "fetch", "origin")).code).toBe(0);
    expect(new Set(used).size).toBeGreaterThan(first);

    const fill = (url: string): string => `printf 'url=${url}\\n\\n' | git credential fill`;
    const own = await hangar.exec("private", "sh", "-c", fill(remote));
    expect(own.stdout).toMatch(ISSUED);
    for (const other of [
      remote.replace("private", "other"),
      remote.replace("127.0.0.1", "localhost"),
      "https://github.com/a/b",
    ]) {
      const asked = await hangar.exec("private", "sh", "-c", fill(other));
      expect(asked.stdout, other).not.toMatch(ISSUED);
      expect(asked.code, other).not.toBe(0);
    }
    // Nothing of it is kept: neither by git, nor by the helper's answer, nor in any file of Hangar's or the sandbox's.
    const kept: string[] = [];
    let token = "";
    for (const entry of await readdir(hangar.dataDir, { withFileTypes: true, recursive: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const text = (await readFile(path)).toString("latin1");
      if (entry.name === "link.json") token = (JSON.parse(text) as { token: string }).token;
      if (ISSUED.test(text)) kept.push(path);
    }
    expect(kept).toEqual([]);

    // An agent that prints one is not shown with it.
    const turn = await hangar.turn("private", fill(remote));
    expect(turn.state).toBe("done");
    expect(JSON.stringify(await hangar.events("private"))).not.toMatch(ISSUED);

    const ask = (): Promise<Response> =>
      fetch(`${hangar.replica.url}/agent/git-credential`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ protocol: "http", host: new URL(remote).host, path: "org/private.git" }),
      });
    expect((await ask()).status).toBe(200);
    await hangar.api("POST", "/api/sessions/private/suspend", {});
    await hangar.until("private", "suspended", ({ state }) => state === "SUSPENDED");
    const refused = await ask();
    expect(refused.status).toBe(409);
    expect(await refused.json()).toMatchObject({ code: "stale_generation" });
  },
);
