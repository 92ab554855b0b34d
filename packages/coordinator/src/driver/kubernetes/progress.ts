/** What the start of a pod waits for, in the spec's words (§5.7), or why it cannot succeed. Pure. */
import { START_WAITS, START_WORDS } from "@hangar/shared";
import type { StartProgress } from "../driver.ts";
import { lastLine, oneLine } from "./view.ts";
import type { Container, PodView, Said } from "./view.ts";

/** A registry that is away for a moment is no reason to give up; one that is away for longer is. */
const PULL_PATIENCE_MS = 3 * 60_000;
/** A daemon that ended so often before it was heard of does so for a reason of its own. */
const CRASHES = 3;

/** Null: its container runs, and its daemon says the rest. */
export function startProgress(pod: PodView, said: Said, now: number): StartProgress | null {
  const [container] = pod.status.containerStatuses;
  if (container?.state?.running || container?.state?.terminated) return null;
  const since = conditionOf(pod, "PodScheduled")?.lastTransitionTime ?? pod.metadata.creationTimestamp ?? now;
  const trouble = container ? troubleOf(container, said, now - since) : null;
  if (trouble !== null) return trouble;
  if (pod.spec.nodeName === "") return scheduling(pod, said);
  const pulling = said.get("Pulling");
  const pulled = said.get("Pulled");
  if (pulling && (!pulled || pulled.at < pulling.at)) return waits(START_WAITS.pull);
  return waits(START_WORDS.starting);
}

function scheduling(pod: PodView, said: Said): StartProgress {
  const refused = newest(said, ["FailedScaleUp", "FailedToScaleUpGroup"]);
  const scaling = said.get("TriggeredScaleUp");
  const quota = refused && quotaIn(refused.message);
  if (quota && refused.at >= (scaling?.at ?? 0)) return waits(START_WAITS.quota(quota));
  if (scaling) return waits(START_WAITS.node);
  const scheduled = conditionOf(pod, "PodScheduled");
  if (scheduled?.status === "False" && scheduled.message !== "") {
    return waits(`waiting for a node with room (${oneLine(scheduled.message)})`);
  }
  return waits("waiting for a node");
}

/** `Quota 'SSD_TOTAL_GB' exceeded`, `exceeded quota: pods`, `QUOTA_EXCEEDED … SSD_TOTAL_GB`. */
function quotaIn(message: string): string | null {
  const named =
    /quota '?"?([A-Za-z0-9_.-]+)'?"? exceeded/i.exec(message)?.[1] ??
    /exceeded quota: ([^,\s]+)/.exec(message)?.[1] ??
    /quota.*?\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b(?<!QUOTA_EXCEEDED)/i.exec(message)?.[1];
  return named ?? (/quota/i.test(message) ? "unnamed" : null);
}

function troubleOf(container: Container, said: Said, waitedMs: number): StartProgress | null {
  const waiting = container.state?.waiting;
  if (!waiting) return null;
  // What the kubelet says of a pull that backs off names the image alone; its event names the cause.
  const cause = oneLine(said.get("Failed")?.message || waiting.message || waiting.reason);
  switch (waiting.reason) {
    case "InvalidImageName":
    case "ErrImageNeverPull":
      return failed("image_pull_failed", `The image cannot be pulled: ${oneLine(waiting.message || cause)}`);
    case "ErrImagePull":
    case "ImagePullBackOff":
    case "RegistryUnavailable":
    case "ImageInspectError":
    case "SignatureValidationFailed": {
      const final =
        /not ?found|manifest unknown|unauthori[sz]ed|denied|forbidden|no such image|authentication required/i.test(
          cause,
        ) || waitedMs >= PULL_PATIENCE_MS;
      if (final) return failed("image_pull_failed", `The image cannot be pulled: ${cause}`);
      return waits(`${START_WAITS.pull}, which fails and is tried again (${cause})`);
    }
    case "CrashLoopBackOff": {
      const last = container.lastState?.terminated;
      const how = last ? `exit ${last.exitCode}${last.message === "" ? "" : `: ${lastLine(last.message)}`}` : cause;
      if (container.restartCount >= CRASHES) {
        return failed(
          "sandbox_crashed",
          `The sandbox's daemon does not stay up (${how}): is its image a sandbox image?`,
        );
      }
      return waits(`${START_WORDS.starting}, which fails and is tried again (${how})`);
    }
    case "CreateContainerConfigError":
    case "CreateContainerError":
    case "RunContainerError":
      if (waitedMs >= PULL_PATIENCE_MS) {
        return failed("cluster_refused", `The container cannot be made: ${oneLine(waiting.message || cause)}`);
      }
      return waits(`${START_WORDS.starting}, which fails and is tried again (${oneLine(waiting.message || cause)})`);
    default:
      return null;
  }
}

type Failed = Extract<StartProgress, { failed: string }>;
const waits = (waits: string): StartProgress => ({ waits });
const failed = (code: Failed["code"], failed: string): StartProgress => ({ code, failed });

export const conditionOf = (pod: PodView, type: string) => pod.status.conditions.find((one) => one.type === type);

export function newest(said: Said, reasons: readonly string[]) {
  const found = reasons.flatMap((reason) => said.get(reason) ?? []);
  return found.sort((a, b) => a.at - b.at).at(-1) ?? null;
}
