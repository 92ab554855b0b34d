/** Which driver a setting names. */
import { homedir } from "node:os";
import type { Config } from "./config.ts";
import type { Driver } from "./driver/driver.ts";
import { createLocalDriver } from "./driver/local.ts";
import type { Log } from "./telemetry.ts";

export interface Here {
  readonly dataDir: string;
  /** The user's own environment, without Hangar's settings. */
  readonly host: Readonly<Record<string, string | undefined>>;
  /** The folder of a volume store. */
  readonly root: string | null;
  readonly log: Log;
}

export async function openDriver(config: Config, { dataDir, host, root, log }: Here): Promise<Driver> {
  if (config.driver === "kubernetes") {
    // Loaded only where it is used: it takes a third of a second and a lot of memory.
    const { createKubernetesDriver } = await import("./driver/kubernetes/kubernetes.ts");
    const { connectCluster } = await import("./driver/kubernetes/client.ts");
    const { kubeconfig, kubernetes_context: context, kubernetes_namespace: namespace } = config;
    return createKubernetesDriver({
      cluster: connectCluster({ kubeconfig, context, namespace }),
      instance: config.kubernetes_instance,
      image: config.sandbox_image,
      snapshots: config.kubernetes_snapshots,
      log,
    });
  }
  return createLocalDriver({
    dataDir,
    env: host,
    userHome: host["HOME"] || homedir(),
    hidden: root === null ? [] : [root],
    isolation: config.isolation,
  });
}
