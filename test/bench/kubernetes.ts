/** Opening a suspended session of workload M in a pod: with a warm one that waits, and from nothing beside a bare pod. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { findCluster, openCluster, type TestCluster } from "../kubernetes/cluster.ts";
import { sleep, type TestHangar } from "../support/hangar.ts";
import { median, timed } from "./measure.ts";
import { ms, type Row } from "./row.ts";
import { makeWorkload } from "./workload.ts";

const RUNS = 7;
const NAME = "bench";

/** None, with a line on standard error: there is no cluster. */
export async function kubernetesRows(): Promise<Row[]> {
  const found = await findCluster();
  if (found === null) return [];
  const cluster = await openCluster(found);
  try {
    const { hangar, remote } = await cluster.hangar({ HANGAR_IDLE_PASS_SECONDS: "60" });
    const at = remote.slice(0, remote.lastIndexOf("/"));
    const repo = await prepare(hangar, at);
    const warm = await opens(hangar, async () => {
      await apply(hangar, repo, 1);
      await full(hangar);
    });
    await apply(hangar, repo, 0);
    await sleep(15_000); // what waited is gone
    const bare: number[] = [];
    const cold = await opens(hangar, async () => {
      bare.push(await barePod(cluster, bare.length));
    });
    const clone = median(await clones(hangar, repo));
    const pod = median(bare);
    const bar = 1.5 * pod + clone;
    return [
      {
        size: "M",
        what: "`hangar session open` of a suspended session in a warm pod, command to ready",
        ours: ms(warm.open),
        theirs: "-",
        ratio: "-",
        bar: "≤ 3 s",
        met: warm.open <= 3000,
      },
      {
        size: "M",
        what: `… in a new pod, the image being there, beside a bare pod of the image becoming ready (the clone: ${ms(clone)}, the restore: ${ms(cold.restore)})`,
        ours: ms(cold.open),
        theirs: ms(pod),
        ratio: (cold.open / pod).toFixed(2),
        bar: `≤ 1.5 × the pod + the clone: ${ms(bar)}`,
        met: cold.open <= bar,
      },
    ];
  } finally {
    await cluster.close();
  }
}

const apply = (hangar: TestHangar, repo: string, warm_pool: number) =>
  hangar.api("PUT", "/api/environments/bench", {
    name: "bench",
    repo,
    harness: "script",
    idle_minutes: 0,
    warm_pool,
    kubernetes: { requests: { cpu: "100m", memory: "256Mi" } },
  });

async function full(hangar: TestHangar): Promise<void> {
  for (let i = 0; i < 600; i++) {
    const { ready } = await hangar.api<{ ready: number }>("GET", "/api/environments/bench/warm");
    if (ready > 0) return;
    await sleep(200);
  }
  throw new Error("the warm pool was never full");
}

/** A session with the workload's commits, changes, untracked files and conversation in it. The repo's URL. */
async function prepare(hangar: TestHangar, at: string): Promise<string> {
  const workload = makeWorkload(join(hangar.dir, "m"), "M");
  const git = (...args: string[]): void => void execFileSync("git", args, { cwd: workload.repo, stdio: "ignore" });
  git("init", "-q", "--bare", join(hangar.dir, "m/wip.git"));
  git("push", "-q", join(hangar.dir, "m/wip.git"), "HEAD:refs/heads/work");
  git("checkout", "-q", "--detach");
  git("add", "-A");
  git("commit", "-qm", "wip");
  git("push", "-q", join(hangar.dir, "m/wip.git"), "HEAD:refs/heads/wip");
  const repo = `${at}/m/origin.git`;
  await apply(hangar, repo, 0);
  await hangar.api("POST", "/api/sessions", { name: NAME, environment: "bench" });
  await hangar.until(NAME, "ready", (s) => s.state === "IDLE", 180);
  const conversation = "$HOME/.hangar-script/sessions/11111111-1111-4111-8111-111111111111.jsonl";
  const line = `{"text":"%s"}\\n`;
  const script = `set -e
git fetch -q ${at}/m/wip.git work:refs/tmp/work wip:refs/tmp/wip
git reset -q --hard refs/tmp/work; git checkout -q refs/tmp/wip -- .; git reset -q
git update-ref -d refs/tmp/work; git update-ref -d refs/tmp/wip
mkdir -p "$HOME/.hangar-script/sessions"
for i in $(seq 5000); do printf '${line}' "$(head -c 3000 /dev/urandom | base64 -w0)"; done > "${conversation}"`;
  const ran = await hangar.exec(NAME, "sh", "-c", script);
  if (ran.code !== 0) throw new Error(`the workload was not put into the session: ${ran.stderr}`);
  return repo;
}

/** Medians of opens from suspended to ready, as a person has them: with the CLI's own start; and of the restore in them. */
async function opens(hangar: TestHangar, before: () => Promise<void>): Promise<{ open: number; restore: number }> {
  const times: number[] = [];
  const restores: number[] = [];
  for (let i = 0; i <= RUNS; i++) {
    await hangar.api("POST", `/api/sessions/${NAME}/suspend`, {});
    await hangar.until(NAME, "suspended", (s) => s.state === "SUSPENDED" && s.sandbox_id === null, 180);
    await before();
    const time = await timed(async () => {
      const ran = await hangar.cli(["session", "open", NAME, "--wait"]);
      if (ran.code !== 0) throw new Error(ran.stderr);
    });
    const { restored_from: restored } = await hangar.session(NAME);
    if (!restored?.verified) throw new Error(`it was not restored: ${JSON.stringify(restored)}`);
    if (i === 0) continue;
    times.push(time);
    restores.push(await restoring(hangar));
  }
  return { open: median(times), restore: median(restores) };
}

async function restoring(hangar: TestHangar): Promise<number> {
  const all = (await hangar.events(NAME)).flatMap(({ event }) => (event.type === "restored" ? [event] : []));
  return (all.at(-1)?.seconds["restoring"] ?? Number.NaN) * 1000;
}

async function barePod({ api, namespace, settings }: TestCluster, i: number): Promise<number> {
  const name = `bare-${i}`;
  const container = {
    name: "bare",
    image: settings["HANGAR_SANDBOX_IMAGE"] ?? "",
    imagePullPolicy: "IfNotPresent",
    command: ["sleep", "3600"],
    resources: { requests: { cpu: "100m", memory: "256Mi" } },
  };
  const isReady = async (): Promise<boolean> => {
    const { status } = await api.core.readNamespacedPod({ namespace, name });
    return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") ?? false;
  };
  const time = await timed(async () => {
    const metadata = { name };
    await api.core.createNamespacedPod({ namespace, body: { metadata, spec: { containers: [container] } } });
    while (!(await isReady())) await sleep(20);
  });
  await api.core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: 0 });
  return time;
}

/** In the session's pod, as a start clones. */
async function clones(hangar: TestHangar, repo: string): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < 3; i++) {
    times.push(
      await timed(async () => {
        const ran = await hangar.exec(NAME, "git", "clone", "-q", repo, `/tmp/clone-${i}`);
        if (ran.code !== 0) throw new Error(ran.stderr);
      }),
    );
  }
  return times;
}
