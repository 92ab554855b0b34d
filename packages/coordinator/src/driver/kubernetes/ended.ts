/** Why a pod ended, or ends, or was started again in place: one line for people. Pure. */
import { conditionOf, newest } from "./progress.ts";
import { lastLine, oneLine } from "./view.ts";
import type { PodView, Said } from "./view.ts";

/** `DisruptionTarget` conditions, from Kubernetes 1.26 on. */
const DISRUPTIONS: Readonly<Record<string, string>> = {
  PreemptionByScheduler: "preempted for a pod of higher priority",
  DeletionByTaintManager: "its node was tainted or became unreachable",
  EvictionByEvictionAPI: "evicted, as by a node drain",
  DeletionByPodGC: "its node is gone",
  TerminationByKubelet: "ended by its node",
};

/** Reasons of the pod's status, then of events, for older ones; an event's message says more. */
const REASONS: Readonly<Record<string, string>> = {
  Evicted: "evicted by its node",
  NodeLost: "its node is gone",
  NodeShutdown: "its node shut down",
  Terminated: "its node shut down",
  Shutdown: "its node shut down",
  Preempting: "preempted by its node for a critical pod",
  Preempted: "preempted for a pod of higher priority",
  TaintManagerEviction: "its node was tainted or became unreachable",
  NodeNotReady: "its node is not ready",
  DeadlineExceeded: "its deadline is over",
  UnexpectedAdmissionError: "its node refused it",
  OutOfmemory: "its node had no room",
  OutOfcpu: "its node had no room",
  NodeAffinity: "its node does not fit any more",
};

export function whyEnded(pod: PodView, said: Said): string | null {
  const { status, metadata, spec } = pod;
  const disruption = conditionOf(pod, "DisruptionTarget");
  const node = spec.nodeName === "" ? "" : ` (node ${spec.nodeName})`;
  if (disruption?.status === "True") {
    const words = DISRUPTIONS[disruption.reason] ?? disruption.reason;
    const more = status.message || (disruption.reason === "TerminationByKubelet" ? disruption.message : "");
    return withMore(`${words}${node}`, more);
  }
  const known = REASONS[status.reason];
  if (known !== undefined) return withMore(`${known}${node}`, status.message);
  const [container] = status.containerStatuses;
  const ended = container?.state?.terminated ?? (container?.state?.waiting ? container.lastState?.terminated : null);
  if (ended?.reason === "OOMKilled") return "out of memory: raise its memory limit";
  const told = whyGone(said, node);
  if (told !== null) return told;
  if (metadata.deletionTimestamp !== null) return "its pod was deleted";
  if (ended) return withMore(`exit ${ended.exitCode}`, lastLine(ended.message));
  return status.reason === "" ? null : withMore(status.reason, status.message);
}

/** Of a pod that nobody saw go, from the events about it alone. */
export function whyGone(said: Said, node = ""): string | null {
  const event = newest(said, Object.keys(REASONS));
  const reason = Object.keys(REASONS).find((one) => event !== null && said.get(one) === event);
  return event && reason ? withMore(`${REASONS[reason]}${node}`, event.message) : null;
}

/** Why the container was started again in its pod. */
export function whyRestarted(pod: PodView): string {
  const ended = pod.status.containerStatuses[0]?.lastState?.terminated;
  if (!ended) return "it ended";
  if (ended.reason === "OOMKilled") return "out of memory: raise its memory limit";
  return withMore(`exit ${ended.exitCode}`, lastLine(ended.message));
}

const withMore = (words: string, more: string): string => (more.trim() === "" ? words : `${words}: ${oneLine(more)}`);
