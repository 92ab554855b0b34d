import { Problem } from "@hangar/shared";
import { describe, expect, it } from "vitest";
import { createApp } from "../../src/app.ts";
import { hostCheck } from "../../src/http/auth.ts";
import { AGENT_TOKEN, memory, standInApp, standInSessions, TOKEN } from "./support.ts";

type Started = ReturnType<typeof standInApp>;

function ask(
  app: Started,
  method: string,
  path: string,
  body?: string,
  token: string | null = TOKEN,
): Promise<Response> {
  const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  return Promise.resolve(
    createApp(app.deps).request(`http://127.0.0.1:4747${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    }),
  );
}

async function problemOf(answer: Response): Promise<Problem> {
  expect(answer.headers.get("content-type")).toBe("application/problem+json");
  const problem = Problem.parse(await answer.json());
  expect(problem.status).toBe(answer.status);
  expect(answer.headers.get("x-request-id")).toBe(problem.requestId);
  expect(problem.detail).not.toContain("\n");
  return problem;
}

describe("tokens", () => {
  it.each([
    ["none", null],
    ["a wrong one", "another-token-0123456789"],
    ["one that begins like it", TOKEN.slice(0, -1)],
    ["a sandbox's", AGENT_TOKEN],
  ])("refuses %s on /api with 401", async (_, token) => {
    const app = standInApp();
    const answer = await ask(app, "GET", "/api/sessions", undefined, token);
    expect(answer.status).toBe(401);
    expect(answer.headers.get("www-authenticate")).toBe("Bearer");
    expect((await problemOf(answer)).code).toBe("unauthorized");
    expect(app.calls).toEqual([]);
  });

  it("refuses the administrator's token on /agent", async () => {
    const answer = await ask(standInApp(), "POST", "/agent/downloads", '{"objects":[]}', TOKEN);
    expect((await problemOf(answer)).code).toBe("unauthorized");
  });

  it("asks for a token before it says whether a page is there", async () => {
    expect((await ask(standInApp(), "GET", "/api/nothing", undefined, null)).status).toBe(401);
  });

  it("takes a sandbox's token on /agent, and logs neither", async () => {
    const app = standInApp();
    const answer = await ask(app, "POST", "/agent/downloads", '{"objects":[]}', AGENT_TOKEN);
    expect(await answer.json()).toEqual({ downloads: {} });
    await ask(app, "GET", "/api/sessions", undefined, "wrong-token-0123456789");
    expect(app.logged()).not.toMatch(/agent-token|admin-token|wrong-token/);
  });

  it("needs none for /healthz", async () => {
    expect(await (await ask(standInApp(), "GET", "/healthz", undefined, null)).text()).toBe("ok");
    const ill = standInApp({ healthy: async () => false });
    expect((await ask(ill, "GET", "/healthz", undefined, null)).status).toBe(503);
  });
});

describe("the Host and Origin headers", () => {
  const app = standInApp({ checkHost: hostCheck({ host: "127.0.0.1", advertiseUrl: "http://127.0.0.1:4747" }) });
  const request = (url: string, origin?: string): Promise<Response> =>
    Promise.resolve(
      createApp(app.deps).request(url, {
        headers: { host: new URL(url).host, authorization: `Bearer ${TOKEN}`, ...(origin ? { origin } : {}) },
      }),
    );

  it.each(["http://127.0.0.1:4747", "http://localhost:4747", "http://[::1]:4747"])("take %s", async (base) => {
    expect((await request(`${base}/api/sessions`)).status).toBe(200);
    expect((await request(`${base}/api/sessions`, base)).status).toBe(200);
  });

  it("refuse a name that was rebound to this machine", async () => {
    expect((await problemOf(await request("http://evil.example:4747/healthz"))).code).toBe("forbidden");
  });

  it("refuse a page of another origin", async () => {
    const answer = await request("http://127.0.0.1:4747/api/sessions", "http://evil.example");
    expect((await problemOf(answer)).code).toBe("forbidden");
    expect(answer.headers.has("access-control-allow-origin")).toBe(false);
  });
});

describe("requests that are not well-formed", () => {
  it.each([
    ["POST", "/api/sessions", "{nope", "malformed_json", /^The body is not valid JSON/],
    ["POST", "/api/sessions", '{"name":"a"} x', "malformed_json", /at position 13/],
    ["POST", "/api/sessions", "[]", "invalid_request", /^the body: expected object/],
    ["POST", "/api/sessions", "", "invalid_request", /^name: /],
    ["POST", "/api/sessions", '{"name":"Bad Name"}', "invalid_request", /^name: use 1 to 60 lower-case/],
    ["POST", "/api/sessions", '{"name":"a","nope":1}', "invalid_request", 'there is no field "nope"'],
    ["POST", "/api/sessions", '{"name":"a","repo":"--upload-pack=x"}', "invalid_request", /^repo: not a repository/],
    ["POST", "/api/sessions/fix/send", '{"message":""}', "invalid_request", "message: give a message"],
    ["POST", "/api/sessions/fix/send", '{"message":5}', "invalid_request", "message: expected string, received number"],
    ["PATCH", "/api/sessions/fix", '{"idle_minutes":-1}', "invalid_request", /^idle_minutes: /],
    ["POST", "/api/sessions/fix/restore", '{"checkpoint":"x"}', "invalid_request", /^checkpoint: /],
    ["POST", "/api/sandboxes/fix/exec", '{"argv":[]}', "invalid_request", /^argv: /],
    ["GET", "/api/sessions/fix/events?from=yesterday", undefined, "invalid_request", /^from: give 0, \$, an/],
    ["PUT", "/api/secrets/1BAD", '{"value":"x"}', "invalid_request", /^name: use letters/],
    ["PUT", "/api/secrets/GOOD", '{"value":"a\\u0000b"}', "invalid_request", /^value: .*NUL/],
    ["PUT", "/api/environments/web", '{"name":"other"}', "invalid_request", /^name: it is "other"/],
    ["PUT", "/api/environments/web", '{"harness":"NO"}', "invalid_request", /^harness: /],
    ["PUT", "/api/environments/web", "[]", "invalid_request", /^the body: /],
  ])("%s %s %s", async (method, path, body, code, detail) => {
    const app = standInApp();
    const answer = await ask(app, method, path, body);
    const problem = await problemOf(answer);
    expect(problem).toMatchObject({ code, status: 400 });
    if (typeof detail === "string") expect(problem.detail).toBe(detail);
    else expect(problem.detail).toMatch(detail);
    expect(app.calls).toEqual([]);
  });

  it("refuses bytes that are not UTF-8", async () => {
    const app = standInApp();
    const answer = await createApp(app.deps).request("/api/sessions", {
      method: "POST",
      headers: { authorization: `Bearer ${TOKEN}` },
      body: new Uint8Array([0x22, 0xff, 0x22]),
    });
    expect((await problemOf(answer)).code).toBe("malformed_json");
  });

  it("does not repeat a body that does not parse, which may be a secret", async () => {
    const app = standInApp();
    const answer = await ask(app, "PUT", "/api/secrets/KEY", '{"value": hunter2}');
    const problem = await problemOf(answer);
    expect(problem.code).toBe("malformed_json");
    expect(JSON.stringify(problem) + app.logged()).not.toContain("hunter2");
  });

  it("refuses a body over its limit, announced or not", async () => {
    const huge = `{"message":"${"x".repeat(9 * 1024 * 1024)}"}`;
    const announced = await ask(standInApp(), "POST", "/api/sessions/fix/send", huge);
    expect((await problemOf(announced)).code).toBe("body_too_large");

    const app = standInApp();
    const streamed = await createApp(app.deps).request("/api/sessions/fix/send", {
      method: "POST",
      headers: { authorization: `Bearer ${TOKEN}` },
      body: new Blob([huge]).stream(),
      duplex: "half",
    });
    expect((await problemOf(streamed)).code).toBe("body_too_large");
    expect(app.calls).toEqual([]);
  });

  it("takes a message of a million characters that JSON writes with six bytes each", async () => {
    const message = "\u0001".repeat(1_000_000);
    const answer = await ask(standInApp(), "POST", "/api/sessions/fix/send", JSON.stringify({ message }));
    expect(answer.status).toBe(202);
  });
});

describe("pages and methods that are not there", () => {
  it("are 404 and 405, with what is offered", async () => {
    expect((await problemOf(await ask(standInApp(), "GET", "/api/nope"))).code).toBe("not_found");
    expect((await problemOf(await ask(standInApp(), "GET", "/"))).code).toBe("not_found");
    const answer = await ask(standInApp(), "PUT", "/api/sessions/fix");
    expect(answer.status).toBe(405);
    expect(answer.headers.get("allow")).toBe("GET, PATCH, DELETE");
    expect((await problemOf(answer)).code).toBe("method_not_allowed");
    expect((await ask(standInApp(), "OPTIONS", "/api/sessions")).status).toBe(405);
  });

  it("say that a WebSocket wants an upgrade", async () => {
    expect((await problemOf(await ask(standInApp(), "GET", "/api/sandboxes/fix/terminal"))).detail).toMatch(
      /WebSocket/,
    );
  });
});

describe("failures inside", () => {
  it("show nothing but the request's id, under which the log has them, once", async () => {
    const broken = { list: () => Promise.reject(new Error("secret detail at /etc/somewhere")) };
    const app = standInApp({ sessions: standInSessions([], broken) });
    const answer = await ask(app, "GET", "/api/sessions");
    const text = await answer.clone().text();
    const problem = await problemOf(answer);
    expect(problem).toMatchObject({ code: "internal", status: 500 });
    expect(text).not.toContain("secret detail");
    const lines = app
      .logged()
      .trim()
      .split("\n")
      .filter((line) => line.includes(problem.requestId));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("secret detail");
  });

  it("keep a known error's code, line and status", async () => {
    const problem = await problemOf(await ask(standInApp(), "GET", "/api/sessions/nope"));
    expect(problem).toMatchObject({ code: "session_not_found", status: 404, detail: 'There is no session "nope"' });
  });

  it("name a full disk", async () => {
    const full = Object.assign(new Error("no space left"), { code: "ENOSPC" });
    const app = standInApp({ sessions: standInSessions([], { list: () => Promise.reject(full) }) });
    expect((await problemOf(await ask(app, "GET", "/api/sessions"))).code).toBe("disk_full");
  });
});

describe("the REST table", () => {
  it.each([
    ["POST", "/api/sessions", '{"name":"csv","message":"hi"}', 201, ["create", { name: "csv", message: "hi" }]],
    ["GET", "/api/sessions", undefined, 200, ["list", { all: false }]],
    ["GET", "/api/sessions?all=1", undefined, 200, ["list", { all: true }]],
    ["GET", "/api/sessions/fix", undefined, 200, ["get", "fix"]],
    ["PATCH", "/api/sessions/fix", '{"idle_minutes":0}', 200, ["keep", "fix", { idle_minutes: 0 }]],
    ["DELETE", "/api/sessions/fix", undefined, 204, ["remove", "fix", { force: false }]],
    ["DELETE", "/api/sessions/fix?force=1", undefined, 204, ["remove", "fix", { force: true }]],
    ["POST", "/api/sessions/fix/open", undefined, 202, ["open", "fix", {}]],
    ["POST", "/api/sessions/fix/send", '{"message":"go"}', 202, ["send", "fix", { message: "go" }]],
    [
      "POST",
      "/api/sessions/fix/suspend",
      '{"push":true}',
      202,
      ["suspend", "fix", { push: true, force: false, accept_loss: false }],
    ],
    ["POST", "/api/sessions/fix/archive", undefined, 202, ["archive", "fix"]],
    ["POST", "/api/sessions/fix/checkpoint", undefined, 200, ["checkpointNow", "fix", "ses-0a1b2c3d"]],
    ["GET", "/api/sessions/fix/checkpoints", undefined, 200, ["checkpoints", "fix"]],
    [
      "POST",
      "/api/sessions/fix/restore",
      '{"checkpoint":"ckp-0123456789abcdef0"}',
      202,
      ["restore", "fix", { checkpoint: "ckp-0123456789abcdef0" }],
    ],
    [
      "POST",
      "/api/sessions/fix/turns/trn-0123456789ab/cancel",
      undefined,
      202,
      ["cancelTurn", "fix", "trn-0123456789ab"],
    ],
    ["GET", "/api/sandboxes", undefined, 200, ["sandboxes"]],
    [
      "POST",
      "/api/sandboxes/fix/exec",
      '{"argv":["ls"]}',
      200,
      ["exec", "fix", { argv: ["ls"], timeout_seconds: 600 }],
    ],
  ])("%s %s %s → %i", async (method, path, body, status, call) => {
    const app = standInApp();
    const answer = await ask(app, method, path, body);
    expect(answer.status).toBe(status);
    expect(answer.headers.get("x-request-id")).toMatch(/^req-[0-9a-f]{16}$/);
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(app.calls).toEqual([call]);
  });

  it("keeps environments, with this installation's defaults", async () => {
    const app = standInApp();
    const put = await ask(app, "PUT", "/api/environments/web", '{"repo":"https://example.com/a.git","setup":"make"}');
    expect(await put.json()).toMatchObject({ name: "web", harness: "script", idle_minutes: 45, ttl_minutes: 600 });
    expect(await (await ask(app, "GET", "/api/environments/web")).json()).toMatchObject({ setup: "make" });
    const list = await ask(app, "GET", "/api/environments");
    expect(await list.json()).toMatchObject({ environments: [{ name: "web" }] });
    expect((await ask(app, "DELETE", "/api/environments/web")).status).toBe(204);
    expect((await problemOf(await ask(app, "GET", "/api/environments/web"))).code).toBe("environment_not_found");
  });

  it("takes secrets sealed and never gives them back", async () => {
    const { deps, secrets } = memory();
    const app = standInApp(deps);
    const put = await ask(app, "PUT", "/api/secrets/API_KEY", '{"value":"hunter2"}');
    expect(await put.json()).toEqual({
      name: "API_KEY",
      environment: null,
      file: null,
      mode: null,
      updated_at: expect.any(String),
    });
    expect(Buffer.from(secrets.get("API_KEY") ?? []).toString()).toBe("2retnuh");
    const list = await (await ask(app, "GET", "/api/secrets")).text();
    expect(list).toContain("API_KEY");
    expect(list + app.logged()).not.toContain("hunter2");
    expect((await ask(app, "GET", "/api/secrets/API_KEY")).status).toBe(405);
    expect((await ask(app, "DELETE", "/api/secrets/API_KEY")).status).toBe(204);
    expect((await problemOf(await ask(app, "DELETE", "/api/secrets/API_KEY"))).code).toBe("secret_not_found");
  });
});

describe("the daemon's HTTP", () => {
  it("refuses a path that is no checkpoint's id, and a body that is not the protocol's", async () => {
    const app = standInApp();
    const bad = await ask(app, "POST", "/agent/checkpoints/..%2Fother/urls", '{"files":[]}', AGENT_TOKEN);
    expect((await problemOf(bad)).code).toBe("invalid_request");
    const begin = { checkpoint: "ckp-0123456789abcdef0", parent: null, reason: "turn" };
    const objects = [{ file: "../x", size: 1, sha256: "0".repeat(64) }];
    const answer = await ask(app, "POST", "/agent/checkpoints", JSON.stringify({ ...begin, objects }), AGENT_TOKEN);
    expect((await problemOf(answer)).detail).toMatch(/^objects\.0\.file: /);
    expect(app.calls).toEqual([]);
  });

  it("passes what is well-formed on", async () => {
    const app = standInApp();
    const body = JSON.stringify({ protocol: "https", host: "example.com", path: null });
    const answer = await ask(app, "POST", "/agent/git-credential", body, AGENT_TOKEN);
    expect(await answer.json()).toEqual({ username: "u", password: "p" });
    expect(app.calls).toEqual([["gitCredential", { protocol: "https", host: "example.com", path: null }]]);
  });
});

it("refuses everything but /healthz while it starts and stops", async () => {
  const app = standInApp({ refusing: () => "Hangar is starting", healthy: async () => false });
  const answer = await ask(app, "GET", "/api/sessions");
  expect(await problemOf(answer)).toMatchObject({ code: "not_running", status: 503, detail: "Hangar is starting" });
  expect((await ask(app, "POST", "/agent/downloads", '{"objects":[]}', AGENT_TOKEN)).status).toBe(503);
  expect((await ask(app, "GET", "/healthz", undefined, null)).status).toBe(503);
  expect(app.calls).toEqual([]);
});
