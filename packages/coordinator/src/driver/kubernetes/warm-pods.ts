/**
 * Pods that wait for a session. One is named by its own id, with a label that says so; a claim gives it the labels of the
 * session's start as well, by which it is found from then on. Who may claim which is decided in Redis before.
 */
import { PatchStrategy, setHeaderOptions } from "@kubernetes/client-node";
import type { KubernetesPod } from "@hangar/shared";
import type { SandboxStatus, WarmDriver } from "../driver.ts";
import { clusterError, isNotFound } from "./client.ts";
import type { Cluster } from "./client.ts";
import { LABEL, sandboxLabels } from "./names.ts";
import type { PodSpec } from "./pod.ts";
import { PodView } from "./view.ts";

export interface WarmPodsDeps {
  readonly cluster: Cluster;
  readonly make: (spec: PodSpec, kubernetes: KubernetesPod | null) => Promise<void>;
  readonly status: (id: string) => Promise<SandboxStatus | null>;
  /** As the watch knows it. */
  readonly known: (id: string) => PodView | null;
  readonly all: () => Iterable<PodView>;
  /** Takes over what the API server answered, ahead of the watch. */
  readonly keep: (pod: PodView) => void;
  readonly remove: (id: string) => Promise<void>;
}

/** A pod that no session has. */
export const waits = ({ metadata: { labels } }: PodView): boolean =>
  labels[LABEL.warm] !== undefined && labels[LABEL.session] === undefined;

export function warmPods(deps: WarmPodsDeps): WarmDriver {
  const { core, namespace } = deps.cluster;
  const status: WarmDriver["status"] = async (id) => {
    const there = await deps.status(id);
    return there?.id === id ? there : null;
  };
  return {
    create: (spec) => deps.make({ ...spec, labels: { [LABEL.warm]: spec.id } }, spec.kubernetes),
    list: async () => {
      const waiting = [...deps.all()].filter(waits);
      return (await Promise.all(waiting.map(({ metadata }) => status(metadata.name)))).filter((one) => one !== null);
    },
    status,
    async claim(id, as) {
      if (deps.known(as.id)?.metadata.name === id) return true;
      const there = await status(id);
      if (there !== null && (there.state !== "running" || there.restarts.count > 0)) return false;
      try {
        const labels = sandboxLabels(as);
        const body = { metadata: { labels } };
        deps.keep(PodView.parse(await core.patchNamespacedPod({ namespace, name: id, body }, MERGE)));
        return true;
      } catch (error) {
        if (isNotFound(error)) return false;
        throw clusterError(`the claim of the pod ${id}`, error);
      }
    },
    async destroy(id) {
      const there = await status(id);
      if (there !== null) await deps.remove(id);
    },
  };
}

const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
