/** The manifests against current Kubernetes' own schema, and what they promise. A cluster takes them in test/kubernetes. */
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import type { V1Deployment, V1PodSpec, V1StatefulSet } from "@kubernetes/client-node";
import { beforeAll, expect, test } from "vitest";
import { run } from "../support/hangar.ts";
import { folder, type Manifest, objections, render, renderAt } from "./manifests.ts";

let all: Manifest[];
beforeAll(async () => {
  all = await render("base");
});

const find = (kind: string, name: string): unknown =>
  all.find((one) => one.kind === kind && one.metadata.name === name);

test("current Kubernetes knows every field and takes every value", async () => {
  expect(all.length).toBeGreaterThan(12);
  for (const one of all) expect(await objections(one), `${one.kind} ${one.metadata.name}`).toEqual([]);
});

test("a field that it does not know is found, at any depth, and so is a value of another type", async () => {
  const deployment = structuredClone(find("Deployment", "hangar") as V1Deployment);
  Object.assign(deployment.spec!.template.spec!.containers[0]!, { livenesProbe: {} });
  deployment.spec!.replicas = "2" as unknown as number;
  const said = (await objections(deployment as unknown as Manifest)).join("\n");
  expect(said).toContain("containers[0].livenesProbe is no field of V1Container");
  expect(said).toContain("data/spec/replicas must be integer");
});

test("on GKE Redis is Google's, coordinators have their own nodes, and current Kubernetes takes all of it", async () => {
  const gke = await render("gke");
  for (const one of gke) expect(await objections(one), `${one.kind} ${one.metadata.name}`).toEqual([]);
  expect(gke.length).toBe(all.length - 3);
  expect(gke.some(({ metadata }) => metadata.name === "redis")).toBe(false);
  const coordinator = gke.find(({ kind }) => kind === "Deployment") as unknown as V1Deployment;
  expect(coordinator.spec?.template.spec?.nodeSelector).toEqual({ "hangar.dev/pool": "coordinator" });
});

test("builds have a namespace of their own, in which the coordinator may make Jobs and read why one failed", async () => {
  const builds = await render("buildkit");
  for (const one of builds) expect(await objections(one), `${one.kind} ${one.metadata.name}`).toEqual([]);
  const rules = builds.flatMap(({ kind, rules }) => (kind === "Role" ? (rules as object[]) : []));
  expect(rules).toEqual([
    { apiGroups: ["batch"], resources: ["jobs"], verbs: ["get", "create", "delete"] },
    { apiGroups: [""], resources: ["pods"], verbs: ["list"] },
    { apiGroups: [""], resources: ["pods/log"], verbs: ["get"] },
  ]);
});

test("for hot resume the coordinator gets what its driver asks of Pod Snapshots, and no more", async () => {
  const extra = await render("pod-snapshots");
  for (const one of extra) expect(await objections(one), `${one.kind} ${one.metadata.name}`).toEqual([]);
  const rules = extra.flatMap(({ kind, rules }) =>
    kind === "Role" ? (rules as { resources: string[]; verbs: string[] }[]) : [],
  );
  const allowed = rules.flatMap(({ resources, verbs }) => resources.map((one) => `${one} ${verbs.join(", ")}`));
  const page = await readFile(folder("../../docs/kubernetes.md"), "utf8");
  expect(allowed.length).toBe(3);
  for (const one of allowed) {
    const [resource = "", ...verbs] = one.split(" ");
    expect(page.replaceAll("\n", " ")).toContain(`\`${resource}\` ${verbs.join(" ")}`);
  }
});

test("two replicas, of which one may always be taken, with probes", () => {
  const { spec } = find("Deployment", "hangar") as V1Deployment;
  expect(spec?.replicas).toBe(2);
  expect(find("PodDisruptionBudget", "hangar")).toMatchObject({
    apiVersion: "policy/v1",
    spec: { minAvailable: 1, selector: { matchLabels: spec?.selector.matchLabels } },
  });
  const [coordinator] = spec?.template.spec?.containers ?? [];
  expect(coordinator?.readinessProbe?.httpGet?.path).toBe("/healthz");
  // Where Redis is away, /healthz says so, and no replica is started again for it.
  expect(coordinator?.livenessProbe?.tcpSocket).toBeDefined();
});

test("every container is as locked as a sandbox, and every image is pinned", () => {
  const pods: V1PodSpec[] = [
    (find("Deployment", "hangar") as V1Deployment).spec!.template.spec!,
    (find("StatefulSet", "redis") as V1StatefulSet).spec!.template.spec!,
  ];
  for (const pod of pods) {
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
    for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
      expect(container.securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
      expect(container.image).toMatch(/:\d+\.\d+\.\d+[\w.-]*$|@sha256:/);
      expect(container.resources?.limits?.["memory"]).toBeDefined();
    }
  }
});

test("no right over the cluster, none in Hangar's own namespace, none by a wildcard, and no secret is read", () => {
  expect(all.filter(({ kind }) => kind.startsWith("ClusterRole"))).toEqual([]);
  const roles = all.filter(({ kind }) => kind === "Role");
  for (const { metadata, ...role } of roles) {
    expect(metadata.namespace).not.toBe("hangar");
    expect(JSON.stringify(role)).not.toContain("*");
  }
  const rules = roles.flatMap(({ rules }) => rules as { resources: string[]; verbs: string[] }[]);
  const onSecrets = rules.filter(({ resources }) => resources.includes("secrets")).flatMap(({ verbs }) => verbs);
  expect(onSecrets.toSorted()).toEqual(["create", "delete", "patch"]);
});

test("what docs/kubernetes.md says of the install holds: the Secret has what the pods take of it, and the overlay renders", async () => {
  const page = await readFile(folder("../../docs/kubernetes.md"), "utf8");
  const dir = await mkdtemp(join(tmpdir(), "hangar-install-"));
  try {
    const script = /```sh\n(umask[\s\S]*?)```/.exec(page)?.[1] ?? "";
    const lines = script.split("\n").filter((line) => !/^kubectl (?:apply|create namespace)/.test(line));
    const text = lines.join("\n").replace("create secret", "create --dry-run=client --output=json secret");
    const ran = await run("sh", ["-euc", text], { cwd: dir, env: process.env as Record<string, string> });
    expect(ran.code, ran.stderr).toBe(0);
    expect((await readdir(dir)).toSorted()).toEqual(["identity.txt", "redis-password", "redis-url", "token"]);
    const secret = JSON.parse(ran.stdout) as { metadata: object; data: Record<string, string> };
    expect(secret.metadata).toMatchObject({ name: "hangar", namespace: "hangar" });
    for (const [, key] of JSON.stringify(all).matchAll(/"secretKeyRef":\{"key":"([^"]+)"/g)) {
      expect(secret.data).toHaveProperty([key!]);
    }
    expect(Buffer.from(secret.data["identity.txt"]!, "base64").toString()).toContain("AGE-SECRET-KEY-1");

    const overlay = /```yaml\n# kustomization.yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
    const base = /resources: \[(\S+)\]/.exec(overlay)?.[1] ?? "";
    await writeFile(join(dir, "kustomization.yaml"), overlay.replace(base, relative(dir, folder("base"))));
    const rendered = JSON.stringify(await renderAt(dir));
    expect(rendered).toContain("gs://YOUR-BUCKET");
    expect(rendered).toContain("YOUR-REGISTRY/hangar-coordinator:0.1.0");
    expect(rendered).not.toContain("registry.example");
    expect(rendered).toContain('"HANGAR_DRIVER":"kubernetes"');
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
