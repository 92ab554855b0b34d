/** Whether a registry has an image, by the OCI distribution API. */
import { HangarError } from "@hangar/shared";

const TIMEOUT_MS = 10_000;
const ACCEPT = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");

/** `name`: `host/path:tag`. `token`: an OAuth token for it. HangarError `store_unavailable` where it does not say. */
export async function hasImage(name: string, token: string): Promise<boolean> {
  const [, host = "", path = "", tag = ""] = /^([^/]+)\/(.+):([^:/]+)$/.exec(name) ?? [];
  // As docker does: without TLS on this machine alone.
  const scheme = /^(?:localhost|127\.\d+\.\d+\.\d+)(?::\d+)?$/.test(host) ? "http" : "https";
  let status: number;
  try {
    const answer = await fetch(`${scheme}://${host}/v2/${path}/manifests/${tag}`, {
      method: "HEAD",
      headers: { accept: ACCEPT, authorization: `Bearer ${token}` },
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    status = answer.status;
  } catch (cause) {
    throw new HangarError("cluster_unavailable", `The registry ${host} cannot be reached; tried again`, { cause });
  }
  if (status === 200) return true;
  if (status === 404) return false;
  const line = `The registry ${host} refuses to say whether it has an image (HTTP ${status}): give the coordinator the role Artifact Registry Reader`;
  throw new HangarError(status >= 500 || status === 429 ? "cluster_unavailable" : "cluster_refused", line);
}
