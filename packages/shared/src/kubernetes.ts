/** An environment's `kubernetes` block: what its sandboxes' pods ask of the cluster. Names are those of the Pod API. */
import { z } from "zod";

/** A DNS label or subdomain, as Kubernetes names objects. */
const ObjectName = z
  .string()
  .max(253)
  .regex(/^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/, "not a name that Kubernetes accepts");

const LabelKey = z
  .string()
  .max(317)
  .regex(
    /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?\/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/,
    "not a label key that Kubernetes accepts",
  );
const LabelValue = z
  .string()
  .regex(/^(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$/, "not a label value that Kubernetes accepts");

/** `500m`, `2`, `4Gi`. */
const Quantity = z
  .string()
  .max(40)
  .regex(/^[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/, "not a quantity: give 500m, 2 or 4Gi");
const Resources = z.record(LabelKey, Quantity);

export const ImageName = z
  .string()
  .max(500)
  .regex(/^[a-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?$/, "not the name of a container image");

const Toleration = z.strictObject({
  /** None: every taint. */
  key: LabelKey.optional(),
  operator: z.enum(["Exists", "Equal"]).default("Equal"),
  value: LabelValue.optional(),
  /** None: every effect. */
  effect: z.enum(["NoSchedule", "PreferNoSchedule", "NoExecute"]).optional(),
  /** Of `NoExecute` alone: how long it stays on a tainted node. None: for good. */
  toleration_seconds: z.number().int().min(0).max(86_400).optional(),
});

/** An address range that sandboxes may connect to. */
const EgressRule = z.strictObject({
  cidr: z.union([z.cidrv4(), z.cidrv6()]),
  /** TCP ports; none: all of them. */
  ports: z.array(z.number().int().min(1).max(65_535)).max(100).optional(),
});

/** What Hangar builds a sandbox image from, in the cluster's registry, tagged by its content. */
const ImageBuild = z.union(
  [
    /** Its first lines are `ARG HANGAR_SANDBOX_IMAGE` and `FROM ${HANGAR_SANDBOX_IMAGE}`, or what ends the same way. */
    z.strictObject({ dockerfile: z.string().min(1).max(65_536) }),
    /** A shell script that root runs in the sandbox image. */
    z.strictObject({ script: z.string().min(1).max(65_536) }),
  ],
  { error: "give { dockerfile: … } or { script: … }" },
);
export type ImageBuild = z.infer<typeof ImageBuild>;

export const KubernetesPod = z.strictObject({
  /** None: the image is taken as it is. Else built on it, by `HANGAR_IMAGE_BUILDER`. */
  build: ImageBuild.nullable().default(null),
  /** None: `HANGAR_SANDBOX_IMAGE`. Its entry point is `hangar-agent`. */
  image: ImageName.nullable().default(null),
  image_pull_policy: z.enum(["Always", "IfNotPresent", "Never"]).default("IfNotPresent"),
  image_pull_secrets: z.array(ObjectName).max(20).default([]),
  node_selector: z.record(LabelKey, LabelValue).default({}),
  tolerations: z.array(Toleration).max(50).default([]),
  /** Such as `gvisor`. */
  runtime_class: ObjectName.nullable().default(null),
  priority_class: ObjectName.nullable().default(null),
  /** Its token is never given to a sandbox. */
  service_account: ObjectName.nullable().default(null),
  /** A memory request without a limit leaves the pod unbounded; a limit without a request counts as both. */
  requests: Resources.default({ cpu: "500m", memory: "1Gi", "ephemeral-storage": "1Gi" }),
  /** `ephemeral-storage` bounds workspace, home and /tmp together; a sandbox over it is evicted. */
  limits: Resources.default({ memory: "4Gi", "ephemeral-storage": "20Gi" }),
  /** The user and group that everything runs as; never root. */
  run_as_user: z.number().int().min(1).max(2_147_483_647).default(1000),
  /** False where the image must write outside of /workspace, /home and /tmp. */
  read_only_root: z.boolean().default(true),
  /** How long a pod that is told to end has for its last checkpoint. A spot machine may give less. */
  termination_grace_seconds: z.number().int().min(10).max(3600).default(60),
  /**
   * A suspend keeps the processes too, as a GKE Pod Snapshot, and an open goes on with them where it can be restored; else it
   * starts from the checkpoint as ever. Needs `runtime_class: gvisor` and `HANGAR_KUBERNETES_SNAPSHOTS`.
   */
  hot_resume: z.boolean().default(false),
  /** `open`: anywhere. Else these, name servers and Hangar itself alone, as a NetworkPolicy. */
  egress: z.union([z.literal("open"), z.array(EgressRule).max(200)]).default("open"),
});
export type KubernetesPod = z.infer<typeof KubernetesPod>;
