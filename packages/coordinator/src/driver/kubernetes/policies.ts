/** NetworkPolicies: nobody connects to a sandbox; where a sandbox may connect to is its environment's to say. */
import type { V1NetworkPolicy } from "@kubernetes/client-node";
import type { KubernetesPod } from "@hangar/shared";
import { alreadyExists, apiMessage, clusterError, statusOf } from "./client.ts";
import type { Cluster } from "./client.ts";
import { denyIngress, egressPolicy } from "./pod.ts";
import type { PodSettings } from "./pod.ts";

export interface Policies {
  /** How sandboxes are kept apart, in one line. Where this Hangar may not make the policy, the line says so. */
  denyIngress(): Promise<string>;
  /** Before the pod, which would else have a moment without it. Throws where it cannot be made. */
  allowEgress(rules: KubernetesPod["egress"], coordinators: readonly string[]): Promise<void>;
}

export function makePolicies(
  { networking, namespace }: Cluster,
  settings: PodSettings,
  log: { warn(fields: object, message: string): void },
): Policies {
  /** Those that this process has put in place. */
  const done = new Map<string, Promise<void>>();

  const put = async (body: V1NetworkPolicy): Promise<void> => {
    try {
      await networking.createNamespacedNetworkPolicy({ namespace, body });
    } catch (error) {
      if (!alreadyExists(error)) throw error;
      await networking.replaceNamespacedNetworkPolicy({ namespace, name: body.metadata?.name ?? "", body });
    }
  };

  return {
    async denyIngress() {
      const kept = `pods in the namespace ${namespace}: not root, no capabilities, no service-account token`;
      try {
        await put(denyIngress(settings));
        return `${kept}, ingress denied by a NetworkPolicy`;
      } catch (error) {
        const failure = clusterError("the NetworkPolicy that denies ingress", error);
        if (!failure.retryable && statusOf(error) !== 403) throw failure;
        log.warn({ error: apiMessage(error) }, "the NetworkPolicy that denies ingress to sandboxes could not be made");
        return `${kept}; ingress as the namespace has it`;
      }
    },
    async allowEgress(rules, coordinators) {
      const policy = egressPolicy(rules, coordinators, settings);
      if (policy === null) return;
      const key = JSON.stringify(policy);
      const putting = done.get(key) ?? put(policy);
      done.set(key, putting);
      try {
        await putting;
      } catch (error) {
        done.delete(key);
        throw error;
      }
    },
  };
}
