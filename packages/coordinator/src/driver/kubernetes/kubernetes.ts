/**
 * The kubernetes driver: a sandbox is a pod that goes by its id, so that no retry by any replica makes a second one.
 *
 * The cluster is the only record of what runs: labels find it again after a restart. Pods and the events about them are
 * watched; `status` and `list` answer from that, and a pod that the watch does not know is asked for by name. While the API
 * server is away, what was known goes on holding, so that sessions in running pods go on.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { PatchStrategy, setHeaderOptions } from "@kubernetes/client-node";
import { AGENT_ENV, HangarError, KubernetesPod } from "@hangar/shared";
import { NO_RESTARTS } from "../driver.ts";
import type { Driver, SandboxStatus } from "../driver.ts";
import { alreadyExists, apiMessage, clusterError, isNotFound } from "./client.ts";
import type { Cluster } from "./client.ts";
import { whyEnded, whyGone, whyRestarted } from "./ended.ts";
import { follow } from "./follow.ts";
import { idOf, LABEL, ownLabels, sandboxLabels, selector } from "./names.ts";
import { ownedBy, PATHS, podOf, secretOf } from "./pod.ts";
import type { PodSpec } from "./pod.ts";
import { makePolicies } from "./policies.ts";
import { startProgress } from "./progress.ts";
import { podSnapshots } from "./snapshots.ts";
import { Heard } from "./heard.ts";
import { EventView, PodView } from "./view.ts";
import { waits, warmPods } from "./warm-pods.ts";

export interface KubernetesDriverOptions {
  readonly cluster: Cluster;
  /** Sets this Hangar's pods apart from another's in the same namespace. */
  readonly instance: string;
  /** Where an environment names none. */
  readonly image: string | null;
  /** The PodSnapshotStorageConfig of GKE Pod Snapshots; none: memory is not kept. */
  readonly snapshots: string | null;
  readonly log: { info(fields: object, message: string): void; warn(fields: object, message: string): void };
  readonly clock?: () => number;
  /** Milliseconds, for tests: see `follow`. */
  readonly backoff?: readonly [number, number];
}

/** A pod that is told to end and is not gone this long after its grace period is on a node that answers nobody. */
const OVERDUE_MS = 30_000;
/** Hangar has taken what it wants by the time it destroys: the daemon only ends its processes. */
const DESTROY_GRACE_SECONDS = 10;
const FIRST_LOOK_MS = 10_000;
/** How many pods that are gone are remembered, with why. */
const REMEMBERED = 1000;

export async function createKubernetesDriver(options: KubernetesDriverOptions): Promise<Driver> {
  const { cluster, instance, log } = options;
  const { core, namespace } = cluster;
  const clock = options.clock ?? Date.now;
  const settings = { instance, namespace, image: options.image };
  const stopping = new AbortController();
  const callbacks: ((id: string) => void)[] = [];
  /** By the sandbox's id, which is the pod's name but where it waited for its session. */
  const pods = new Map<string, PodView>();
  const idsByName = new Map<string, string>();
  const heard = new Heard();
  /** Pods that the watch saw go, and how. */
  const gone = new Map<string, SandboxStatus>();
  const policies = makePolicies(cluster, settings, log);
  const listed = Promise.withResolvers<void>();
  /** Whether the pods were listed once: until then, nothing is known of what runs. */
  let isListed = false;

  const isolation = await policies.denyIngress();
  const following = [followPods(), followEvents()];
  await firstLook();

  return {
    name: "kubernetes",
    isolation,
    keepsFolders: false,
    workspace: () => PATHS.workspace,
    canAdopt: () => Promise.resolve(false),
    create: async (spec) => {
      await make({ ...spec, labels: sandboxLabels(spec) }, spec.kubernetes);
      return { adopted: false };
    },
    list: () =>
      isListed
        ? Promise.resolve([...pods.values()].filter((pod) => !waits(pod)).map(statusOfPod))
        : Promise.reject(new HangarError("cluster_unavailable", "the cluster's pods are not known yet")),
    status,
    destroy: remove,
    stop: remove,
    warm: warmPods({
      cluster,
      make,
      status,
      known: (id) => pods.get(id) ?? null,
      all: () => pods.values(),
      keep,
      remove,
    }),
    snapshots:
      options.snapshots === null
        ? null
        : podSnapshots(cluster, settings, options.snapshots, (id) => pods.get(id)?.metadata.name ?? id),
    madeOf: (kubernetes) => kubernetes?.image ?? options.image ?? "",
    onChange: (callback) => void callbacks.push(callback),
    close: async () => {
      stopping.abort();
      await Promise.allSettled(following);
    },
  };

  /** Secret, pod, and the Secret's owner: each may be there already, made by another try or another replica. */
  async function make(spec: PodSpec, kubernetes: KubernetesPod | null): Promise<void> {
    const wanted = kubernetes ?? KubernetesPod.parse({});
    const pod = podOf(spec, wanted, settings);
    try {
      await policies.allowEgress(wanted.egress, (spec.env[AGENT_ENV.url] ?? "").split(" "));
      await putSecret(spec);
      const made = await core
        .createNamespacedPod({ namespace, body: pod })
        .catch((error: unknown) => (alreadyExists(error) ? existing(spec) : Promise.reject(error as Error)));
      const uid = made.metadata?.uid ?? "";
      await core.patchNamespacedSecret(
        { namespace, name: spec.id, body: { metadata: { ownerReferences: ownedBy(spec.id, uid) } } },
        MERGE,
      );
    } catch (error) {
      throw clusterError(`the pod ${spec.id}`, error);
    }
  }

  async function putSecret(spec: PodSpec): Promise<void> {
    const body = secretOf(spec, settings);
    try {
      await core.createNamespacedSecret({ namespace, body });
    } catch (error) {
      if (!alreadyExists(error)) throw error;
      // Its owner stays as it is.
      await core.patchNamespacedSecret({ namespace, name: spec.id, body: { stringData: body.stringData } }, MERGE);
    }
  }

  /** The pod of that name, which must be of that start of that session. */
  async function existing(spec: PodSpec) {
    const found = await core.readNamespacedPod({ namespace, name: spec.id });
    const labels = found.metadata?.labels ?? {};
    const wanted = { ...ownLabels(instance), ...spec.labels };
    if (Object.entries(wanted).every(([key, value]) => labels[key] === value)) return found;
    const line = `A pod named ${spec.id} is in the namespace ${namespace} and is not this Hangar's: see HANGAR_KUBERNETES_INSTANCE`;
    throw new HangarError("cluster_refused", line);
  }

  async function status(id: string): Promise<SandboxStatus | null> {
    const known = pods.get(id);
    if (known) return statusOfPod(known);
    const before = gone.get(id);
    if (before) return before;
    try {
      const found = await find(id);
      return found ? statusOfPod(found) : (gone.get(id) ?? unseen(id));
    } catch (error) {
      throw clusterError(`a look at the pod ${id}`, error);
    }
  }

  /** Asks the API server: by name, and by the labels of a pod that waited under another. */
  async function find(id: string): Promise<PodView | null> {
    try {
      const found = PodView.parse(await core.readNamespacedPod({ namespace, name: id }));
      return idOf(id, found.metadata.labels) === id ? found : null;
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    const { session, generation } = startOf(id) ?? {};
    if (session === undefined || generation === undefined) return null;
    const labels = { ...sandboxLabels({ session, generation }), [LABEL.instance]: instance };
    const labelSelector = `${LABEL.warm},${Object.entries(labels)
      .map((pair) => pair.join("="))
      .join(",")}`;
    const [found] = (await core.listNamespacedPod({ namespace, labelSelector })).items;
    return found === undefined ? null : PodView.parse(found);
  }

  /** One that went while nobody here watched, where events tell of it. */
  function unseen(id: string): SandboxStatus | null {
    const start = startOf(id);
    const detail = whyGone(heard.of(id));
    if (start === null || detail === null) return null;
    return { id, ...start, state: "left", detail, start: null, restarts: NO_RESTARTS };
  }

  /** Of one that is not there: no error. The pod's end takes the Secret with it; one without an owner is taken here. */
  async function remove(id: string): Promise<void> {
    const end = (deleted: Promise<unknown>): Promise<unknown> =>
      deleted.catch((error: unknown) => {
        if (!isNotFound(error)) throw clusterError(`the end of ${id}`, error);
      });
    const known = pods.get(id) ?? (await find(id).catch(() => null));
    const name = known?.metadata.name ?? id;
    await end(core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: DESTROY_GRACE_SECONDS }));
    await end(core.deleteNamespacedSecret({ namespace, name }));
    gone.delete(id);
    if (!pods.has(id)) heard.forget(id);
  }

  function statusOfPod(pod: PodView): SandboxStatus {
    const { name, labels, deletionTimestamp } = pod.metadata;
    const said = heard.of(name);
    const [container] = pod.status.containerStatuses;
    const isOver =
      pod.status.phase === "Failed" ||
      pod.status.phase === "Succeeded" ||
      (deletionTimestamp !== null &&
        (Boolean(container?.state?.terminated) ||
          pod.spec.nodeName === "" ||
          clock() > deletionTimestamp + OVERDUE_MS));
    const state = isOver ? "left" : deletionTimestamp === null ? "running" : "ending";
    return {
      id: idOf(name, labels),
      session: labels[LABEL.session] ?? "",
      generation: Number(labels[LABEL.generation] ?? 0),
      state,
      detail: state === "running" ? null : whyEnded(pod, said),
      start: state === "running" ? startProgress(pod, said, clock()) : null,
      restarts: { count: container?.restartCount ?? 0, why: container?.restartCount ? whyRestarted(pod) : "" },
    };
  }

  function followPods(): Promise<void> {
    const labelSelector = selector(instance);
    return follow<PodView>({
      watch: cluster.watch,
      path: `/api/v1/namespaces/${namespace}/pods`,
      labelSelector,
      list: async () => {
        const answer = await core.listNamespacedPod({ namespace, labelSelector });
        return { version: answer.metadata?.resourceVersion ?? "", items: answer.items };
      },
      parse: (object) => PodView.parse(object),
      listed: (items) => {
        const present = new Set(items.map((pod) => pod.metadata.name));
        for (const pod of pods.values()) if (!present.has(pod.metadata.name)) forget(pod);
        for (const pod of items) keep(pod);
        isListed = true;
        listed.resolve();
      },
      changed: (kind, pod) => (kind === "DELETED" ? forget(pod) : keep(pod)),
      troubled: (error) => log.warn({ error: apiMessage(error) }, "the cluster's pods cannot be watched; tried again"),
      recovered: () => log.info({}, "the cluster's pods are watched again"),
      signal: stopping.signal,
      ...(options.backoff && { backoff: options.backoff }),
    });
  }

  function followEvents(): Promise<void> {
    const fieldSelector = "involvedObject.kind=Pod";
    return follow<EventView>({
      watch: cluster.watch,
      path: `/api/v1/namespaces/${namespace}/events`,
      fieldSelector,
      list: async () => {
        const answer = await core.listNamespacedEvent({ namespace, fieldSelector });
        return { version: answer.metadata?.resourceVersion ?? "", items: answer.items };
      },
      parse: (object) => EventView.parse(object),
      listed: (items) => items.forEach(hear),
      changed: (kind, event) => (kind === "DELETED" ? undefined : hear(event)),
      troubled: (error) =>
        log.warn({ error: apiMessage(error) }, "the cluster's events cannot be watched; tried again"),
      recovered: () => undefined,
      signal: stopping.signal,
      ...(options.backoff && { backoff: options.backoff }),
    });
  }

  function keep(pod: PodView): void {
    const { name, labels } = pod.metadata;
    const id = idOf(name, labels);
    const before = idsByName.get(name);
    // The watch may still tell of a pod as it was before it was claimed.
    if (before !== undefined && before !== id && id === name) return;
    if (before !== undefined && before !== id) pods.delete(before);
    gone.delete(id);
    pods.set(id, pod);
    idsByName.set(name, id);
    tell(id);
  }

  function forget(pod: PodView): void {
    const { name } = pod.metadata;
    const id = idsByName.get(name) ?? name;
    idsByName.delete(name);
    if (!pods.delete(id)) return;
    const last = statusOfPod(pod);
    const detail = whyEnded(pod, heard.of(name)) ?? "its pod was deleted";
    gone.set(id, { ...last, state: "left", detail, start: null, restarts: NO_RESTARTS });
    heard.forget(name);
    for (const oldest of gone.keys()) {
      if (gone.size <= REMEMBERED) break;
      gone.delete(oldest);
    }
    tell(id);
  }

  function hear(event: EventView): void {
    const { name } = event.involvedObject;
    const id = idsByName.get(name);
    if (heard.take(event) && id !== undefined) tell(id);
  }

  function tell(id: string): void {
    for (const callback of callbacks) callback(id);
  }

  /** A coordinator whose cluster is away starts all the same; one that may not list pods has no use. */
  async function firstLook(): Promise<void> {
    try {
      await core.listNamespacedPod({ namespace, labelSelector: selector(instance), limit: 1 });
      await Promise.race([listed.promise, sleep(FIRST_LOOK_MS, undefined, { ref: false })]);
    } catch (error) {
      const failure = clusterError("a look at its pods", error);
      if (failure.retryable) return;
      stopping.abort();
      throw failure;
    }
  }
}

/** Of a sandbox's id, which is a function of them. */
function startOf(id: string): { session: string; generation: number } | null {
  const [, hex, generation] = /^sbx-([0-9a-f]{8})-g([0-9]+)$/.exec(id) ?? [];
  return hex === undefined ? null : { session: `ses-${hex}`, generation: Number(generation) };
}

const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
