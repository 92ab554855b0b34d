/**
 * Builds by BuildKit, as a Job of the cluster in a namespace of its own, without root. A Job goes by its content, so that no
 * replica makes a second one; one that succeeded stays, and is the record that its image was pushed.
 */
import type { BatchV1Api, CoreV1Api, V1Job } from "@kubernetes/client-node";
import { alreadyExists, clusterError, isNotFound } from "../driver/kubernetes/client.ts";
import type { ImageBuilder, ImageRequest } from "./builder.ts";

export interface BuildKitOptions {
  readonly core: Pick<CoreV1Api, "listNamespacedPod" | "readNamespacedPodLog">;
  readonly batch: Pick<BatchV1Api, "readNamespacedJob" | "createNamespacedJob" | "deleteNamespacedJob">;
  readonly namespace: string;
  /** A Secret of type kubernetes.io/dockerconfigjson there, for the registry; none: it takes pushes from anybody. */
  readonly pushSecret: string | null;
  readonly image?: string;
}

const BUILDKIT = "docker.io/moby/buildkit:v0.17.3-rootless";
const BUILD_SECONDS = 1800;

export function buildKit(options: BuildKitOptions): ImageBuilder {
  const { core, batch, namespace } = options;
  return {
    async ensure(request) {
      const name = `hangar-build-${request.tag}`;
      try {
        const job = await batch.readNamespacedJob({ namespace, name }).catch((error: unknown) => {
          if (isNotFound(error)) return null;
          throw error;
        });
        if (job === null) return await begin(request, name);
        const conditions = job.status?.conditions ?? [];
        const has = (type: string) => conditions.find((one) => one.type === type && one.status === "True");
        if (has("Complete")) return "ready";
        const failed = has("Failed");
        if (!failed) return "building";
        const why = await lastWords(name, failed.message ?? "it failed");
        // Who asks again has it tried again.
        await batch.deleteNamespacedJob({ namespace, name, propagationPolicy: "Background" });
        return { failed: why };
      } catch (error) {
        throw clusterError("the image's build", error);
      }
    },
  };

  async function begin(request: ImageRequest, name: string): Promise<"building"> {
    try {
      await batch.createNamespacedJob({ namespace, body: jobOf(request, name, options) });
    } catch (error) {
      if (!alreadyExists(error)) throw error;
    }
    return "building";
  }

  async function lastWords(job: string, otherwise: string): Promise<string> {
    const pods = await core.listNamespacedPod({ namespace, labelSelector: `job-name=${job}` });
    const pod = pods.items[0]?.metadata?.name;
    if (pod === undefined) return otherwise;
    const log = await core.readNamespacedPodLog({ namespace, name: pod, tailLines: 20 }).catch(() => "");
    const lines = log.split("\n").map((line) => line.trim());
    const error = lines.findLast((line) => /^(?:error|ERROR)\b/.test(line)) ?? lines.findLast((line) => line !== "");
    return (error ?? otherwise).slice(0, 400);
  }
}

const LABELS = { "app.kubernetes.io/managed-by": "hangar", "app.kubernetes.io/component": "build" };

export function jobOf(request: ImageRequest, name: string, options: BuildKitOptions): V1Job {
  const secret = options.pushSecret;
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: { name, labels: LABELS },
    spec: {
      backoffLimit: 0,
      activeDeadlineSeconds: BUILD_SECONDS,
      template: {
        metadata: { labels: LABELS },
        spec: {
          restartPolicy: "Never",
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          securityContext: { runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
          containers: [
            {
              name: "buildkit",
              image: options.image ?? BUILDKIT,
              command: [
                "sh",
                "-euc",
                'printf %s "$DOCKERFILE" | base64 -d >/source/Dockerfile; exec buildctl-daemonless.sh "$@"',
                "-",
              ],
              args: [
                "build",
                "--frontend=dockerfile.v0",
                "--local=context=/source",
                "--local=dockerfile=/source",
                `--opt=build-arg:HANGAR_SANDBOX_IMAGE=${request.base}`,
                `--output=type=image,name=${request.name},push=true`,
              ],
              // Its own user namespaces are what a rootless BuildKit needs, which seccomp and AppArmor profiles forbid by default.
              env: [
                { name: "BUILDKITD_FLAGS", value: "--oci-worker-no-process-sandbox" },
                // Not as it is: Kubernetes has a meaning for `$(NAME)` of its own.
                { name: "DOCKERFILE", value: Buffer.from(request.dockerfile).toString("base64") },
              ],
              securityContext: { seccompProfile: { type: "Unconfined" }, appArmorProfile: { type: "Unconfined" } },
              resources: { requests: { cpu: "1", memory: "2Gi" }, limits: { memory: "8Gi" } },
              volumeMounts: [
                { name: "source", mountPath: "/source" },
                { name: "state", mountPath: "/home/user/.local/share/buildkit" },
                ...(secret === null ? [] : [{ name: "push", mountPath: "/home/user/.docker", readOnly: true }]),
              ],
            },
          ],
          volumes: [
            { name: "source", emptyDir: {} },
            { name: "state", emptyDir: {} },
            ...(secret === null
              ? []
              : [
                  {
                    name: "push",
                    secret: { secretName: secret, items: [{ key: ".dockerconfigjson", path: "config.json" }] },
                  },
                ]),
          ],
        },
      },
    },
  };
}
