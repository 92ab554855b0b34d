/**
 * The image builder port: `cloud-build.ts`, `buildkit.ts`. What is asked for goes by its content, so that any replica may ask
 * again at any time, and a start that waits for an image needs no other record than that it asks again.
 */
import { createHash } from "node:crypto";
import { HangarError } from "@hangar/shared";
import type { KubernetesPod } from "@hangar/shared";

export interface ImageRequest {
  /** Of the content: 16 hexadecimal digits. Two that are equal are built once. */
  readonly tag: string;
  /** Where it is pushed: `registry/hangar-environment:tag`. */
  readonly name: string;
  readonly dockerfile: string;
  /** The Dockerfile's HANGAR_SANDBOX_IMAGE. */
  readonly base: string;
}

export interface ImageBuilder {
  /**
   * Begins the build, joins the one that is under way, or finds that it is done. Idempotent. A build that failed is told once it
   * was, and begun again when it is asked for later on. Throws HangarError where that cannot be found out.
   */
  ensure(request: ImageRequest): Promise<"ready" | "building" | { readonly failed: string }>;
}

/** None: there is nothing to build. HangarError `invalid_request` where there is nothing to build it on. */
export function imageRequest(
  kubernetes: KubernetesPod | null,
  { registry, base }: { readonly registry: string; readonly base: string | null },
): ImageRequest | null {
  if (!kubernetes?.build) return null;
  const on = kubernetes.image ?? base;
  if (on === null) {
    throw new HangarError(
      "invalid_request",
      "The environment's image is built on another: set HANGAR_SANDBOX_IMAGE, or kubernetes.image",
    );
  }
  const { build } = kubernetes;
  const dockerfile = "dockerfile" in build ? build.dockerfile : ofScript(build.script, kubernetes.run_as_user);
  const tag = createHash("sha256")
    .update(JSON.stringify([on, dockerfile]))
    .digest("hex")
    .slice(0, 16);
  return { tag, name: `${registry}/hangar-environment:${tag}`, dockerfile, base: on };
}

/** Without a build context: the script travels in the Dockerfile, in letters that no parser of either takes for its own. */
function ofScript(script: string, user: number): string {
  const encoded = Buffer.from(script).toString("base64");
  return [
    "ARG HANGAR_SANDBOX_IMAGE",
    "FROM ${HANGAR_SANDBOX_IMAGE}",
    "USER 0:0",
    `RUN echo ${encoded} | base64 -d >/tmp/hangar-setup && sh -eu /tmp/hangar-setup && rm /tmp/hangar-setup`,
    `USER ${user}:${user}`,
    "",
  ].join("\n");
}
