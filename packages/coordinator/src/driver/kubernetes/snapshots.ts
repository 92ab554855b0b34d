/**
 * GKE Pod Snapshots (`podsnapshot.gke.io/v1`): one manual trigger for each, named by its pod; the controller answers in the trigger's
 * status with the PodSnapshot that it makes. A pod with that name in an annotation is restored from it, where it is of the same
 * specification; else it starts from nothing, and nobody says so.
 */
import type { CustomObjectsApi } from "@kubernetes/client-node";
import { z } from "zod";
import type { Snapshots } from "../driver.ts";
import { alreadyExists, clusterError, isNotFound } from "./client.ts";
import type { Cluster } from "./client.ts";
import { LABEL, ownLabels } from "./names.ts";
import type { PodSettings } from "./pod.ts";

const GROUP = { group: "podsnapshot.gke.io", version: "v1" } as const;
const API = `${GROUP.group}/${GROUP.version}`;

const Trigger = z.object({
  status: z.object({ snapshotCreated: z.object({ name: z.string() }).nullish() }).nullish(),
});
const Condition = z.object({
  type: z.string(),
  status: z.string(),
  reason: z.string().nullish(),
  message: z.string().nullish(),
});
const Snapshot = z.object({ status: z.object({ conditions: z.array(Condition).nullish() }).nullish() });

export function podSnapshots(
  { custom, namespace }: Pick<Cluster, "custom" | "namespace">,
  settings: PodSettings,
  /** The PodSnapshotStorageConfig that says in which bucket they lie. */
  storage: string,
  nameOf: (sandbox: string) => string,
): Snapshots {
  const triggers = { ...GROUP, namespace, plural: "podsnapshotmanualtriggers" };
  const snapshots = { ...GROUP, namespace, plural: "podsnapshots" };
  let policy: Promise<void> | null = null;

  return {
    async take(sandbox) {
      const name = nameOf(sandbox);
      try {
        await (policy ??= putPolicy(custom, namespace, settings, storage));
        const body = {
          apiVersion: API,
          kind: "PodSnapshotManualTrigger",
          metadata: { name },
          spec: { targetPod: name },
        };
        await custom.createNamespacedCustomObject({ ...triggers, body }).catch(unlessThere);
        const trigger = Trigger.parse(await custom.getNamespacedCustomObject({ ...triggers, name }));
        const made = trigger.status?.snapshotCreated?.name;
        if (made === undefined) return "pending";
        const snapshot = Snapshot.parse(await custom.getNamespacedCustomObject({ ...snapshots, name: made }));
        const ready = snapshot.status?.conditions?.find(({ type }) => type === "Ready");
        if (ready?.status === "True") return { ready: made };
        const isOver = ready?.status === "False" && /fail|error|invalid/i.test(ready.reason ?? "");
        return isOver ? { failed: `${ready.reason}: ${ready.message ?? ""}` } : "pending";
      } catch (error) {
        policy = null;
        throw clusterError(`a snapshot of the pod ${name}`, error);
      }
    },
    async remove(name) {
      try {
        await custom.deleteNamespacedCustomObject({ ...snapshots, name }).catch(unlessGone);
      } catch (error) {
        throw clusterError(`the end of the snapshot ${name}`, error);
      }
    },
  };
}

/** Which pods may be kept: those whose environment asks for it. */
async function putPolicy(
  custom: CustomObjectsApi,
  namespace: string,
  settings: PodSettings,
  storageConfigName: string,
): Promise<void> {
  const metadata = { name: `hangar-${settings.instance}`, namespace, labels: ownLabels(settings.instance) };
  const spec = {
    storageConfigName,
    selector: { matchLabels: { ...ownLabels(settings.instance), [LABEL.hot]: "true" } },
    triggerConfig: { type: "manual", postCheckpoint: "resume" },
  };
  const body = { apiVersion: API, kind: "PodSnapshotPolicy", metadata, spec };
  await custom
    .createNamespacedCustomObject({ ...GROUP, namespace, plural: "podsnapshotpolicies", body })
    .catch(unlessThere);
}

function unlessThere(error: unknown): void {
  if (!alreadyExists(error)) throw error;
}
function unlessGone(error: unknown): void {
  if (!isNotFound(error)) throw error;
}
