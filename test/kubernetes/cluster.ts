/**
 * The cluster that the tests of this folder run on: the one that `HANGAR_TEST_KUBECONFIG` names, else the one-node cluster of
 * ../shared/k8s-rig where it is up. Neither: they are skipped, and say so.
 *
 * Another cluster also needs `HANGAR_TEST_SANDBOX_IMAGE`, an image that it can pull, and `HANGAR_TEST_HOST`, an address of this
 * machine that its pods reach.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  KubeConfig,
  loadAllYaml,
  PatchStrategy,
  RbacAuthorizationV1Api,
  setHeaderOptions,
  type V1PolicyRule,
  type V1Role,
} from "@kubernetes/client-node";
import { type Cluster, connectCluster } from "@hangar/coordinator/driver/kubernetes/client";
import { lockWithin } from "@hangar/coordinator/embedded/lock";
import { makeRemote, run, sleep, startHangar, type TestHangar } from "../support/hangar.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const RIG =
  process.env["HANGAR_K8S_RIG"] ?? join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "hangar-k8s-rig");
/** What starts and stops it lies beside the checkout. */
const RIG_SCRIPTS = process.env["HANGAR_K8S_RIG_SCRIPTS"] ?? join(root, "../shared/k8s-rig");

export interface Found {
  readonly kubeconfig: string;
  readonly isRig: boolean;
}

/** Null, with a line on standard error: there is none. */
export async function findCluster(): Promise<Found | null> {
  const given = process.env["HANGAR_TEST_KUBECONFIG"];
  const found = given ? { kubeconfig: given, isRig: false } : { kubeconfig: join(RIG, "kubeconfig"), isRig: true };
  if (found.isRig && !existsSync(found.kubeconfig)) return skip("HANGAR_TEST_KUBECONFIG is not set and no rig is up");
  try {
    await connectCluster({ kubeconfig: found.kubeconfig, namespace: "default" }).core.listNode();
    return found;
  } catch (error) {
    if (!found.isRig) throw error;
    return skip("HANGAR_TEST_KUBECONFIG is not set and the rig does not answer");
  }
}

function skip(why: string): null {
  console.error(`skipped, for want of a Kubernetes cluster: ${why}`);
  return null;
}

export interface TestCluster {
  readonly api: Cluster;
  readonly namespace: string;
  /** Settings of a coordinator whose sandboxes are this namespace's pods. */
  readonly settings: Record<string, string>;
  /** This machine, as pods reach it. */
  readonly host: string;
  readonly isRig: boolean;
  /** Starts a Hangar whose store and link pods reach, and a remote that they can clone. */
  hangar(extra?: Record<string, string>): Promise<{ hangar: TestHangar; remote: string }>;
  podNames(): Promise<string[]>;
  /** Whether a node takes new pods. */
  cordon(node: string, isCordoned: boolean): Promise<void>;
  /** Of the rig alone: the API server is away while `work` runs. */
  withoutApi(work: () => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

/** Runs `work`, with a folder for its files, while these namespaces are there; none of them may be before. */
export async function withNamespaces<T>(
  found: Found,
  names: readonly string[],
  work: (dir: string) => Promise<T>,
): Promise<T> {
  const lock = await lockCluster();
  const { core } = connectCluster({ kubeconfig: found.kubeconfig, namespace: "default" });
  const dir = await mkdtemp(join(tmpdir(), "hangar-cluster-"));
  const made: string[] = [];
  try {
    for (const name of names) {
      await core.createNamespace({ body: { metadata: { name } } });
      made.push(name);
    }
    return await work(dir);
  } finally {
    for (const name of made) await core.deleteNamespace({ name }).catch(() => undefined);
    await rm(dir, { recursive: true, force: true });
    lock.release();
  }
}

async function lockCluster() {
  const cache = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "hangar-tests");
  await mkdir(cache, { recursive: true });
  return await lockWithin(join(cache, "cluster.lock"), 20 * 60_000);
}

/** A namespace of its own. One test file at a time has the cluster. `manifests`: whose Roles the coordinator has besides. */
export async function openCluster(found: Found, manifests: readonly string[] = []): Promise<TestCluster> {
  const lock = await lockCluster();
  const namespace = `hangar-test-${Date.now().toString(36)}`;
  const api = connectCluster({ kubeconfig: found.kubeconfig, namespace });
  const image = await sandboxImage(found);
  await api.core.createNamespace({ body: { metadata: { name: namespace } } });
  const host = process.env["HANGAR_TEST_HOST"] ?? "10.244.77.1";
  const closing: (() => Promise<void>)[] = [];
  const dir = await mkdtemp(join(tmpdir(), "hangar-cluster-"));
  closing.push(() => rm(dir, { recursive: true, force: true }));
  const kubeconfig = join(dir, "kubeconfig");
  await writeFile(kubeconfig, await leastRights(found, api, await rights(["base", ...manifests])), { mode: 0o600 });
  const settings = {
    HANGAR_DRIVER: "kubernetes",
    HANGAR_KUBERNETES_CONFIG: kubeconfig,
    HANGAR_KUBERNETES_NAMESPACE: namespace,
    HANGAR_SANDBOX_IMAGE: image,
    HANGAR_HOST: "0.0.0.0",
  };
  const podNames = async (): Promise<string[]> =>
    (await api.core.listNamespacedPod({ namespace })).items.map((pod) => pod.metadata?.name ?? "");
  return {
    api,
    namespace,
    settings,
    host,
    isRig: found.isRig,
    podNames,
    cordon: async (name, isCordoned) => {
      const body = { spec: { unschedulable: isCordoned } };
      await api.core.patchNode({ name, body }, setHeaderOptions("Content-Type", PatchStrategy.MergePatch));
    },
    withoutApi: async (work) => {
      const pid = Number(await readFile(join(RIG, "run/kube-apiserver.pid"), "utf8"));
      process.kill(pid, "SIGKILL");
      try {
        await work();
      } finally {
        await ok(join(RIG_SCRIPTS, "up"), []);
      }
    },
    hangar: async (extra = {}) => {
      const port = await freePort();
      const hangar = await startHangar({
        ...settings,
        HANGAR_SANDBOX_URL: `http://${host}:${port}`,
        HANGAR_TEST_FIRST_PORT: String(port),
        HANGAR_IDLE_PASS_SECONDS: "2",
        ...extra,
      });
      closing.push(() => hangar.close());
      const remote = await makeRemote(hangar.dir);
      const git = await serveGit(hangar.dir);
      closing.push(git.close);
      return { hangar, remote: `git://${host}:${git.port}${remote.slice(hangar.dir.length)}` };
    },
    close: async () => {
      for (const close of closing.toReversed()) await close();
      for (const name of await podNames().catch(() => [])) {
        await api.core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: 0 }).catch(() => undefined);
      }
      await api.core.deleteNamespace({ name: namespace }).catch(() => undefined);
      lock.release();
    },
  };
}

/** What the manifests allow a coordinator, and nothing else. */
async function rights(manifests: readonly string[]): Promise<V1PolicyRule[]> {
  const rules: V1PolicyRule[] = [];
  for (const name of manifests) {
    const text = await readFile(join(root, "terraform/manifests", name, "rbac.yaml"), "utf8");
    const role = (loadAllYaml(text) as V1Role[]).find(({ kind }) => kind === "Role");
    rules.push(...(role?.rules ?? []));
  }
  return rules;
}

/** The kubeconfig of a service account that may do that in the tests' namespace. */
async function leastRights(
  { kubeconfig }: Found,
  { core, namespace }: Cluster,
  rules: V1PolicyRule[],
): Promise<string> {
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const rbac = config.makeApiClient(RbacAuthorizationV1Api);
  const name = "hangar-coordinator";
  await core.createNamespacedServiceAccount({ namespace, body: { metadata: { name } } });
  await rbac.createNamespacedRole({ namespace, body: { metadata: { name }, rules } });
  await rbac.createNamespacedRoleBinding({
    namespace,
    body: {
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    },
  });
  const audiences: string[] = [];
  const answer = await core.createNamespacedServiceAccountToken({
    namespace,
    name,
    body: { spec: { audiences, expirationSeconds: 7200 } },
  });
  const cluster = config.getCurrentCluster();
  const token = answer.status?.token;
  if (!cluster || !token) throw new Error("the cluster gives no service account a token");
  config.loadFromOptions({
    clusters: [cluster],
    users: [{ name, token }],
    contexts: [{ name, cluster: cluster.name, user: name, namespace }],
    currentContext: name,
  });
  return config.exportConfig();
}

/** Made of the daemon's present source and imported, once for each state of it. */
async function sandboxImage({ isRig }: Found): Promise<string> {
  const given = process.env["HANGAR_TEST_SANDBOX_IMAGE"];
  if (given) return given;
  if (!isRig) throw new Error("HANGAR_TEST_SANDBOX_IMAGE must name a sandbox image that the cluster can pull");
  const dir = await mkdtemp(join(tmpdir(), "hangar-image-"));
  try {
    const dist = join(dir, "dist");
    await ok(process.execPath, [join(root, "scripts/build.ts"), dist]);
    const script = join(root, "test/kubernetes/image.sh");
    const hash = createHash("sha256");
    for (const file of [join(dist, "hangar-agent.mjs"), join(dist, "hangar-agent-bulk.mjs"), script])
      hash.update(await readFile(file));
    const name = `localhost/hangar-sandbox:${hash.digest("hex").slice(0, 12)}`;
    const images = await ctr("images", "ls", "-q");
    if (images.split("\n").includes(name)) return name;
    await ok("sh", [script, name, dist, join(dir, "image.tar")]);
    await importImage(join(dir, "image.tar"));
    return name;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** containerd's own client on the rig's node. Answers what it printed. */
export const ctr = (...args: string[]): Promise<string> =>
  ok(join(RIG, "containerd/usr/bin/ctr"), ["-a", "/run/hangar-k8s-rig/containerd.sock", "-n", "k8s.io", ...args]);

/** A docker archive, onto the rig's node. */
export async function importImage(archive: string): Promise<void> {
  await ok(join(RIG_SCRIPTS, "import"), [archive]);
}

/** `git daemon` over the folder's repositories; pods have no other way to this machine's files. */
async function serveGit(folder: string): Promise<{ port: number; close: () => Promise<void> }> {
  const port = await freePort();
  const child = spawn(
    "git",
    [
      "daemon",
      "--export-all",
      "--enable=receive-pack",
      "--reuseaddr",
      `--port=${port}`,
      `--base-path=${folder}`,
      folder,
    ],
    { stdio: "ignore", detached: true },
  );
  for (let i = 0; i < 100; i++) {
    const ran = await run("git", ["ls-remote", `git://127.0.0.1:${port}/widgets.git`], {
      env: process.env as Record<string, string>,
    });
    if (ran.code === 0) break;
    await sleep(50);
  }
  return {
    port,
    close: async () => {
      const gone = once(child, "exit");
      process.kill(-child.pid!, "SIGTERM");
      await gone;
    },
  };
}

/** What it printed; throws with what it said where it fails. */
async function ok(file: string, args: string[]): Promise<string> {
  const ran = await run(file, args, { env: process.env as Record<string, string> });
  if (ran.code !== 0) throw new Error(`${file} ${args.join(" ")}: ${ran.stderr || ran.stdout}`);
  return ran.stdout;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "0.0.0.0");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address ? address.port : 0;
}
