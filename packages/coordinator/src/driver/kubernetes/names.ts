/** Names, labels and annotations: what finds every pod of this installation again, whoever made it. */
import type { SandboxSpec } from "../driver.ts";

export const LABEL = {
  managedBy: "app.kubernetes.io/managed-by",
  component: "app.kubernetes.io/component",
  /** Which Hangar of those that share the namespace. */
  instance: "app.kubernetes.io/instance",
  session: "hangar.dev/session",
  generation: "hangar.dev/generation",
  /** Which egress rules hold; `open`: none. */
  egress: "hangar.dev/egress",
} as const;

export const CONTAINER = "sandbox";
/** The key of the daemon's token in the Secret that goes by the pod's name. */
export const TOKEN_KEY = "token";

export const ownLabels = (instance: string): Record<string, string> => ({
  [LABEL.managedBy]: "hangar",
  [LABEL.component]: "sandbox",
  [LABEL.instance]: instance,
});

export const sandboxLabels = (
  instance: string,
  spec: Pick<SandboxSpec, "session" | "generation">,
): Record<string, string> => ({
  ...ownLabels(instance),
  [LABEL.session]: spec.session,
  [LABEL.generation]: String(spec.generation),
});

export const selector = (instance: string): string =>
  Object.entries(ownLabels(instance))
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
