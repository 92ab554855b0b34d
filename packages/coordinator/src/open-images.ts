/** What builds environments' images, as settings say. */
import { HangarError } from "@hangar/shared";
import type { Config } from "./config.ts";
import type { Images } from "./images/building-driver.ts";
import { workloadIdentity } from "./store/gcs-signing.ts";

/** HangarError `invalid_request` names the setting that is missing. */
export async function openImages(config: Config): Promise<Images> {
  const { image_registry: registry, sandbox_image: base } = config;
  if (config.image_builder === "off") return { builder: null, registry, base };
  if (registry === null) throw missing("HANGAR_IMAGE_REGISTRY", config.image_builder);
  if (config.image_builder === "cloudbuild") {
    const { cloud_build: parent, cloud_build_service_account: serviceAccount } = config;
    if (parent === null) throw missing("HANGAR_CLOUD_BUILD", config.image_builder);
    // Never the default one: that is whoever the project says, and may reach the checkpoints.
    if (serviceAccount === null) throw missing("HANGAR_CLOUD_BUILD_SERVICE_ACCOUNT", config.image_builder);
    const { cloudBuild } = await import("./images/cloud-build.ts");
    const identity = workloadIdentity();
    return { builder: cloudBuild({ parent, serviceAccount, token: () => identity.token() }), registry, base };
  }
  if (config.driver !== "kubernetes") {
    throw new HangarError("invalid_request", "HANGAR_IMAGE_BUILDER=buildkit needs HANGAR_DRIVER=kubernetes");
  }
  const { connectCluster } = await import("./driver/kubernetes/client.ts");
  const { buildKit } = await import("./images/buildkit.ts");
  const { kubeconfig, kubernetes_context: context, image_build_namespace: namespace } = config;
  const { core, batch } = connectCluster({ kubeconfig, context, namespace });
  return { builder: buildKit({ core, batch, namespace, pushSecret: config.image_push_secret }), registry, base };
}

const missing = (variable: string, builder: string): HangarError =>
  new HangarError("invalid_request", `HANGAR_IMAGE_BUILDER=${builder} needs ${variable}: see docs/kubernetes.md`);
