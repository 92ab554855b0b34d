/** Names, labels and annotations: what finds every pod of this installation again, whoever made it. */
import { sandboxIdOf } from "@hangar/shared";
import type { SandboxSpec } from "../driver.ts";

export const LABEL = {
  managedBy: "app.kubernetes.io/managed-by",
  component: "app.kubernetes.io/component",
  /** Which Hangar of those that share the namespace. */
  instance: "app.kubernetes.io/instance",
  session: "hangar.dev/session",
  generation: "hangar.dev/generation",
  /** Of a pod that was made to wait for a session: its own id, which is its name. */
  warm: "hangar.dev/warm",
  /** Of a pod whose memory a suspend may keep. */
  hot: "hangar.dev/hot-resume",
  /** Which egress rules hold; `open`: none. */
  egress: "hangar.dev/egress",
} as const;

/** On a pod: the PodSnapshot that it is to be restored from. */
export const RESTORE_FROM = "podsnapshot.gke.io/ps-name";

export const CONTAINER = "sandbox";
/** The key of the daemon's token in the Secret that goes by the pod's name. */
export const TOKEN_KEY = "token";

export const ownLabels = (instance: string): Record<string, string> => ({
  [LABEL.managedBy]: "hangar",
  [LABEL.component]: "sandbox",
  [LABEL.instance]: instance,
});

/** A session's sandbox goes by its session and generation, whatever its pod is named; one that waits by its name. */
export const idOf = (name: string, labels: Readonly<Record<string, string>>): string => {
  const session = labels[LABEL.session];
  return labels[LABEL.warm] === undefined || session === undefined
    ? name
    : sandboxIdOf(session, Number(labels[LABEL.generation]));
};

/** A start's. */
export const sandboxLabels = (spec: Pick<SandboxSpec, "session" | "generation">): Record<string, string> => ({
  [LABEL.session]: spec.session,
  [LABEL.generation]: String(spec.generation),
});

export const selector = (instance: string): string =>
  Object.entries(ownLabels(instance))
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
