/** Which store a setting names. */
import type { Config } from "./config.ts";
import { openGcsStore } from "./store/gcs.ts";
import { workloadIdentity } from "./store/gcs-signing.ts";
import { patientStore } from "./store/patient.ts";
import { openS3Store, probeS3 } from "./store/s3.ts";
import type { UrlSigner } from "./store/signing.ts";
import type { Store } from "./store/store.ts";
import { openVolumeStore, type VolumeStore } from "./store/volume.ts";

export interface OpenedStore {
  readonly store: Store;
  /** Where this replica serves the store's URLs itself. */
  readonly volume: VolumeStore | null;
  /** What the store does not enforce, for the log and `status`. */
  readonly warnings: readonly string[];
}

/** The folder of a volume store; none: the store is a bucket. */
export const volumeRoot = (config: Pick<Config, "session_store">): string | null =>
  config.session_store.startsWith("volume:") ? config.session_store.slice("volume:".length) : null;

export async function openStore(
  config: Pick<Config, "session_store" | "s3">,
  here: { url: string; signer: UrlSigner },
): Promise<OpenedStore> {
  const root = volumeRoot(config);
  if (root !== null) {
    const volume = await openVolumeStore({ root, baseUrl: here.url, signer: here.signer });
    return { store: volume, volume, warnings: [] };
  }
  const { protocol, host: bucket, pathname } = new URL(config.session_store);
  const place = { bucket, prefix: pathname.replace(/^\/+|\/+$/g, "") };
  if (protocol === "gs:") {
    const store = patientStore(openGcsStore({ ...place, identity: workloadIdentity() }));
    return { store, volume: null, warnings: [] };
  }
  const store = patientStore(openS3Store({ ...place, ...config.s3 }));
  return { store, volume: null, warnings: await probeS3(store) };
}
