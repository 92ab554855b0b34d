/** The spec's acceptance 1 and 2, on real pods: work survives its pod, and the same conversation goes on in another one. */
import { expect, test } from "vitest";
import type { Session } from "@hangar/shared";
import { sleep } from "../support/hangar.ts";
import { onCluster } from "./on-cluster.ts";

const WORK = `
set -e
echo committed > committed.txt && git add committed.txt && git commit -qm "Agent's commit"
echo staged > staged.txt && git add staged.txt
echo "changed, not staged" >> src/f1.txt
printf 'untracked \\000 bytes' > untracked.bin
chmod +x src/f2.txt
echo "first turn done"
`;
const LOOK = `git rev-parse HEAD; git branch --show-current; git status --porcelain=v1; git ls-files -s | sha256sum; sha256sum untracked.bin staged.txt src/f1.txt; stat -c %a src/f2.txt`;

await onCluster({ timeout: 300_000, settings: () => ({ HANGAR_USE_KEEPS_AWAKE_SECONDS: "2" }) }, (on) => {
  test("new, turn, suspend: the pod is gone; send: another pod has everything, and the conversation goes on", async () => {
    await on.hangar.api("POST", "/api/sessions", { name: "csv-fix", repo: on.remote, harness: "script" });
    const first = await on.hangar.turn("csv-fix", WORK);
    expect(first).toMatchObject({ state: "done", exit_code: 0 });
    const before = await on.hangar.exec("csv-fix", "sh", "-c", LOOK);
    const live = await on.hangar.session("csv-fix");
    expect(await on.cluster.podNames()).toEqual([live.sandbox_id]);
    const phases = (await on.hangar.events("csv-fix")).flatMap(({ event }) =>
      event.type === "phase" ? [event.text] : [],
    );
    expect(phases).toContain("starting");
    expect(phases.indexOf(`cloning (${on.remote})`)).toBeGreaterThan(phases.indexOf("starting"));
    expect(phases.at(-1)).toBe("ready");

    await on.hangar.api("POST", "/api/sessions/csv-fix/suspend", {});
    const suspended = await on.hangar.until("csv-fix", "suspended", (s) => s.state === "SUSPENDED");
    expect(suspended.checkpoints.at(-1)).toMatchObject({ paired: true, proved: true, bad: null, left_out: [] });
    await expect.poll(() => on.cluster.podNames(), { timeout: 150_000, interval: 500 }).toEqual([]);
    const secrets = await on.cluster.api.core.listNamespacedSecret({ namespace: on.cluster.namespace });
    expect(secrets.items.filter((secret) => secret.metadata?.name?.startsWith("sbx-"))).toEqual([]);

    const second = await on.hangar.turn("csv-fix", LOOK);
    expect(second).toMatchObject({ state: "done", harness_session: first.harness_session, conversation_lost: false });
    const after = await on.hangar.exec("csv-fix", "sh", "-c", LOOK);
    expect(after.stdout).toBe(before.stdout);
    const again = await on.hangar.session("csv-fix");
    expect(again.generation).toBe(2);
    expect(again.restored_from).toMatchObject({ verified: true, missing: [] });
  });

  test("the sandbox has no rights and no credentials of the cluster", async () => {
    const look = `id -u; ls /var/run/secrets 2>&1; touch /x 2>&1; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status`;
    const { stdout } = await on.hangar.exec("csv-fix", "sh", "-c", look);
    expect(stdout).toMatch(/^1000\n/);
    expect(stdout).toContain("/var/run/secrets': No such file");
    expect(stdout).toContain("Read-only file system");
    expect(stdout).toMatch(/CapEff:\s+0000000000000000/);
    expect(stdout).toMatch(/NoNewPrivs:\s+1/);
    expect(stdout).toMatch(/Seccomp:\s+2/);
  });

  test("a terminal runs in the pod and keeps its session awake; left, it suspends when idle", async () => {
    await on.hangar.api("PATCH", "/api/sessions/csv-fix", { idle_minutes: 0.1 });
    const terminal = await on.hangar.terminal("csv-fix");
    terminal.send(new TextEncoder().encode("echo at-$((40 + 2)); cat committed.txt; echo typed > typed.txt\n"));
    await expect.poll(() => terminal.text(), { timeout: 30_000 }).toMatch(/at-42\s+committed/);
    await sleep(12_000);
    expect(await on.hangar.session("csv-fix")).toMatchObject({ state: "IDLE" });
    const closed = new Promise((resolve) => terminal.addEventListener("close", resolve));
    terminal.close();
    await closed;
    const after = await on.hangar.until("csv-fix", "suspended", (s) => s.state === "SUSPENDED", 90);
    expect(after.status).toContain("without activity");
    expect(after.checkpoints.at(-1)).toMatchObject({ reason: "suspend" });
  });

  test("at its time limit a checkpoint is taken before the pod goes", async () => {
    const kubernetes = { requests: { cpu: "20m", memory: "64Mi" } };
    const environment = { name: "limited", repo: on.remote, harness: "script", ttl_minutes: 0.15, kubernetes };
    await on.hangar.api("PUT", "/api/environments/limited", environment);
    await on.hangar.api("POST", "/api/sessions", {
      name: "limited",
      environment: "limited",
      message: "echo kept > kept.txt",
    });
    const after = await on.hangar.until("limited", "suspended", (s) => s.state === "SUSPENDED", 120);
    expect(after.status).toContain("time limit");
    expect(after.checkpoints.at(-1)).toMatchObject({ bad: null });
    const turn = await on.hangar.turn("limited", "cat kept.txt");
    expect(turn.summary).toContain("kept");
    await on.hangar.api("DELETE", "/api/sessions/limited?force=1");
  });

  test("20 sessions at once go through a turn, suspend and open, each with its own", async () => {
    const kubernetes = { requests: { cpu: "10m", memory: "32Mi" }, limits: { memory: "1Gi" } };
    await on.hangar.api("PUT", "/api/environments/many", {
      name: "many",
      repo: on.remote,
      harness: "script",
      kubernetes,
    });
    const names = Array.from({ length: 20 }, (_, i) => `many-${i}`);
    await Promise.all(
      names.map((name) =>
        on.hangar.api("POST", "/api/sessions", { name, environment: "many", message: `echo ${name} > own.txt` }),
      ),
    );
    const each = (what: string, is: (s: Session) => boolean) =>
      Promise.all(names.map((name) => on.hangar.until(name, what, is, 240)));
    await each("through", (s) => s.state === "IDLE" && s.turns[0]?.state === "done");
    await Promise.all(names.map((name) => on.hangar.api("POST", `/api/sessions/${name}/suspend`, {})));
    await each("suspended", (s) => s.state === "SUSPENDED");
    await Promise.all(
      names.map((name) => on.hangar.api("POST", `/api/sessions/${name}/send`, { message: "cat own.txt" })),
    );
    const after = await each("through again", (s) => s.state === "IDLE" && s.turns[1]?.state === "done");
    expect(after.map((session) => session.turns[1]?.summary?.trim())).toEqual(names);
    expect(after.every((session) => session.generation === 2 && session.restored_from?.verified)).toBe(true);
  }, 600_000);
});
