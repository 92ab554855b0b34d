/** What is asked of the cluster for one sandbox: its pod, and the Secret and NetworkPolicies beside it. Pure. */
import { createHash } from "node:crypto";
import type { V1NetworkPolicy, V1Pod, V1Secret, V1Toleration } from "@kubernetes/client-node";
import { AGENT_ENV, AGENT_MALLOC, AGENT_NODE_FLAGS, HangarError } from "@hangar/shared";
import type { KubernetesPod } from "@hangar/shared";
import type { SandboxSpec } from "../driver.ts";
import { homeVariables } from "../local-env.ts";
import { CONTAINER, LABEL, ownLabels, RESTORE_FROM, TOKEN_KEY } from "./names.ts";

export interface PodSettings {
  readonly instance: string;
  readonly namespace: string;
  /** Where the environment names none. */
  readonly image: string | null;
}

/** The same in every sandbox, whatever its image. What is in the image at these paths is hidden. */
export const PATHS = {
  workspace: "/workspace",
  home: "/home/hangar",
  tmp: "/tmp",
  state: "/var/lib/hangar/state",
} as const;
/** Each its own emptyDir: the folder that is mounted belongs to root, so the daemon makes its own below where it must. */
const MOUNTS = { workspace: "/workspace", home: "/home", tmp: "/tmp", state: "/var/lib/hangar" } as const;

/** What a pod is made for: a start of a session, or to wait for one. */
export type PodSpec = Pick<SandboxSpec, "id" | "env"> & {
  readonly labels: Readonly<Record<string, string>>;
  readonly snapshot?: string | null;
};

export function podOf(spec: PodSpec, wanted: KubernetesPod, settings: PodSettings): V1Pod {
  const image = wanted.image ?? settings.image;
  if (image === null) {
    const line = "No sandbox image is named: set HANGAR_SANDBOX_IMAGE, or kubernetes.image in the environment";
    throw new HangarError("cluster_refused", line);
  }
  return {
    metadata: {
      name: spec.id,
      namespace: settings.namespace,
      labels: {
        ...ownLabels(settings.instance),
        ...spec.labels,
        [LABEL.egress]: egressName(wanted.egress),
        ...(wanted.hot_resume && { [LABEL.hot]: "true" }),
      },
      // An autoscaler that packs nodes would end live sessions for it.
      annotations: {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        ...(spec.snapshot && { [RESTORE_FROM]: spec.snapshot }),
      },
    },
    spec: {
      // A daemon that was killed, for want of memory say, goes on in the same pod with the same folders.
      restartPolicy: "OnFailure",
      terminationGracePeriodSeconds: wanted.termination_grace_seconds,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...(wanted.service_account !== null && { serviceAccountName: wanted.service_account }),
      ...(wanted.runtime_class !== null && { runtimeClassName: wanted.runtime_class }),
      ...(wanted.priority_class !== null && { priorityClassName: wanted.priority_class }),
      nodeSelector: wanted.node_selector,
      tolerations: wanted.tolerations.map(toleration),
      imagePullSecrets: wanted.image_pull_secrets.map((name) => ({ name })),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: wanted.run_as_user,
        runAsGroup: wanted.run_as_user,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [
        {
          name: CONTAINER,
          image,
          imagePullPolicy: wanted.image_pull_policy,
          // The image's entry point is `hangar-agent`, behind an init that reaps.
          args: ["run"],
          workingDir: MOUNTS.workspace,
          env: Object.entries(variables(spec, wanted)).map(([name, value]) =>
            name === AGENT_ENV.token
              ? { name, valueFrom: { secretKeyRef: { name: spec.id, key: TOKEN_KEY } } }
              : { name, value },
          ),
          resources: { requests: wanted.requests, limits: wanted.limits },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: wanted.read_only_root,
            capabilities: { drop: ["ALL"] },
          },
          lifecycle: { preStop: { exec: { command: ["hangar-agent", "end"] } } },
          terminationMessagePolicy: "FallbackToLogsOnError",
          volumeMounts: Object.entries(MOUNTS).map(([name, mountPath]) => ({ name, mountPath })),
        },
      ],
      volumes: Object.keys(MOUNTS).map((name) => ({ name, emptyDir: {} })),
    },
  };
}

/** PATH is the image's own. */
function variables(spec: PodSpec, wanted: KubernetesPod): Record<string, string> {
  return {
    LANG: "C.UTF-8",
    TERM: "xterm-256color",
    USER: "hangar",
    LOGNAME: "hangar",
    ...homeVariables(PATHS),
    ...AGENT_MALLOC,
    NODE_OPTIONS: AGENT_NODE_FLAGS.join(" "),
    ...spec.env,
    [AGENT_ENV.workspace]: PATHS.workspace,
    [AGENT_ENV.state]: PATHS.state,
    [AGENT_ENV.grace]: String(wanted.termination_grace_seconds),
  };
}

function toleration(given: KubernetesPod["tolerations"][number]): V1Toleration {
  const { toleration_seconds: tolerationSeconds, key, operator, value, effect } = given;
  return {
    // Without a key it is about every taint, which the API takes with this operator alone.
    operator: key === undefined ? "Exists" : operator,
    ...(key !== undefined && { key }),
    ...(value !== undefined && operator === "Equal" && { value }),
    ...(effect !== undefined && { effect }),
    ...(tolerationSeconds !== undefined && { tolerationSeconds }),
  };
}

/** It is there before its pod, which would else wait for it; `owner` is written once the pod is there too. */
export function secretOf(spec: PodSpec, settings: PodSettings): V1Secret {
  return {
    metadata: {
      name: spec.id,
      namespace: settings.namespace,
      labels: { ...ownLabels(settings.instance), ...spec.labels },
    },
    type: "Opaque",
    stringData: { [TOKEN_KEY]: spec.env[AGENT_ENV.token] ?? "" },
  };
}

/** What is owned goes when its pod goes. */
export const ownedBy = (name: string, uid: string) => [
  { apiVersion: "v1", kind: "Pod", name, uid, controller: false, blockOwnerDeletion: false },
];

/** A sandbox dials out and answers nobody. */
export const denyIngress = (settings: PodSettings): V1NetworkPolicy => ({
  metadata: {
    name: `hangar-${settings.instance}-deny-ingress`,
    namespace: settings.namespace,
    labels: ownLabels(settings.instance),
  },
  spec: { podSelector: { matchLabels: ownLabels(settings.instance) }, policyTypes: ["Ingress"], ingress: [] },
});

/** Null: it may connect to anything. One policy serves every sandbox with the same rules. */
export function egressPolicy(
  rules: KubernetesPod["egress"],
  coordinators: readonly string[],
  settings: PodSettings,
): V1NetworkPolicy | null {
  if (rules === "open") return null;
  const name = egressName(rules);
  const labels = { ...ownLabels(settings.instance), [LABEL.egress]: name };
  return {
    metadata: {
      name: `hangar-${settings.instance}-egress-${name}`,
      namespace: settings.namespace,
      labels: ownLabels(settings.instance),
    },
    spec: {
      podSelector: { matchLabels: labels },
      policyTypes: ["Egress"],
      egress: [
        {
          ports: [
            { protocol: "UDP", port: 53 },
            { protocol: "TCP", port: 53 },
          ],
        },
        // Hangar itself: by its pods' labels in the cluster, by address where its URL has one.
        { to: [{ namespaceSelector: {}, podSelector: { matchLabels: COORDINATOR_LABELS } }] },
        ...coordinators.flatMap(addressRule),
        ...rules.map(({ cidr, ports }) => ({
          to: [{ ipBlock: { cidr } }],
          ...(ports !== undefined && { ports: ports.map((port) => ({ protocol: "TCP", port })) }),
        })),
      ],
    },
  };
}

/** What the manifests give the coordinator's pods. */
const COORDINATOR_LABELS = { "app.kubernetes.io/name": "hangar", "app.kubernetes.io/component": "coordinator" };

function addressRule(text: string) {
  const url = URL.parse(text);
  const host = url?.hostname.replace(/^\[|\]$/g, "") ?? "";
  const bits = /^[0-9.]+$/.test(host) ? 32 : host.includes(":") ? 128 : null;
  if (!url || bits === null) return [];
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  return [{ to: [{ ipBlock: { cidr: `${host}/${bits}` } }], ports: [{ protocol: "TCP", port }] }];
}

const egressName = (rules: KubernetesPod["egress"]): string =>
  rules === "open" ? "open" : createHash("sha256").update(JSON.stringify(rules)).digest("hex").slice(0, 12);
