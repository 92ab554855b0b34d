/** A driver whose sandboxes' images are built first, where their environment says so. The start waits, and says for what. */
import { HangarError, START_WAITS } from "@hangar/shared";
import type { KubernetesPod } from "@hangar/shared";
import type { Driver } from "../driver/driver.ts";
import { imageRequest } from "./builder.ts";
import type { ImageBuilder } from "./builder.ts";

export interface Images {
  /** None: this installation builds none. */
  readonly builder: ImageBuilder | null;
  /** In front of built images' names. */
  readonly registry: string | null;
  /** What is built on where the environment names nothing. */
  readonly base: string | null;
}

export function buildingDriver(driver: Driver, images: Images): Driver {
  const built = (kubernetes: KubernetesPod | null) => ensureImage(images, kubernetes);
  const { warm } = driver;
  return {
    ...driver,
    create: async (spec) => driver.create({ ...spec, kubernetes: await built(spec.kubernetes) }),
    warm: warm && {
      ...warm,
      create: async (spec) => warm.create({ ...spec, kubernetes: await built(spec.kubernetes) }),
    },
  };
}

/**
 * The block with its image's name. HangarError `image_building` (worth another try) while it is built, `image_build_failed`
 * with what the build said.
 */
export async function ensureImage(images: Images, kubernetes: KubernetesPod | null): Promise<KubernetesPod | null> {
  if (!kubernetes?.build) return kubernetes;
  if (images.builder === null || images.registry === null) {
    throw new HangarError(
      "invalid_request",
      "The environment's image is to be built, and this Hangar builds none: set HANGAR_IMAGE_BUILDER and HANGAR_IMAGE_REGISTRY",
    );
  }
  const request = imageRequest(kubernetes, { registry: images.registry, base: images.base });
  if (request === null) return kubernetes;
  const state = await images.builder.ensure(request);
  if (state === "building") throw new HangarError("image_building", START_WAITS.image);
  if (state !== "ready") throw new HangarError("image_build_failed", `The image cannot be built: ${state.failed}`);
  return { ...kubernetes, build: null, image: request.name };
}
