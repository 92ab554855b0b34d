/** The cluster's API: how it is reached, one deadline for every request, and what its refusals mean for a session. */
import {
  ApiException,
  BatchV1Api,
  CoreV1Api,
  CustomObjectsApi,
  createConfiguration,
  KubeConfig,
  NetworkingV1Api,
  ServerConfiguration,
  Watch,
} from "@kubernetes/client-node";
import { HangarError, START_WAITS } from "@hangar/shared";
import { z } from "zod";

export interface Cluster {
  readonly batch: BatchV1Api;
  readonly core: CoreV1Api;
  readonly custom: CustomObjectsApi;
  readonly networking: NetworkingV1Api;
  readonly watch: Watch;
  readonly namespace: string;
}

export interface ClusterOptions {
  /** None: the service account of the pod that this runs in. */
  readonly kubeconfig: string | null;
  /** None: the kubeconfig's context of that name; else its current one. */
  readonly context?: string | null;
  /** None: the context's, else `default`. */
  readonly namespace: string | null;
}

const REQUEST_MS = 15_000;

/** HangarError `invalid_request` where the configuration cannot be used. Nothing is asked of the cluster yet. */
export function connectCluster(options: ClusterOptions): Cluster {
  const config = new KubeConfig();
  try {
    if (options.kubeconfig === null) config.loadFromCluster();
    else config.loadFromFile(options.kubeconfig);
    if (options.context) config.setCurrentContext(options.context);
    const server = config.getCurrentCluster()?.server;
    if (server === undefined) throw new Error("it names no current cluster");
    const configuration = createConfiguration({
      baseServer: new ServerConfiguration(server, {}),
      authMethods: { default: config },
      promiseMiddleware: [
        {
          pre: (request) => {
            request.setSignal(AbortSignal.timeout(REQUEST_MS));
            return Promise.resolve(request);
          },
          post: (response) => Promise.resolve(response),
        },
      ],
    });
    const inContext = config.getContextObject(config.getCurrentContext())?.namespace;
    return {
      batch: new BatchV1Api(configuration),
      core: new CoreV1Api(configuration),
      custom: new CustomObjectsApi(configuration),
      networking: new NetworkingV1Api(configuration),
      watch: new Watch(config),
      namespace: options.namespace ?? (inContext?.trim() || "default"),
    };
  } catch (error) {
    const where = options.kubeconfig ?? "the pod's service account";
    const why = error instanceof Error ? error.message : String(error);
    throw new HangarError("invalid_request", `The cluster cannot be reached with ${where}: ${why}`, { cause: error });
  }
}

/** HTTP status of a refusal; none: the API server did not answer. */
export const statusOf = (error: unknown): number | null => (error instanceof ApiException ? error.code : null);
export const isNotFound = (error: unknown): boolean => statusOf(error) === 404;
export const alreadyExists = (error: unknown): boolean => statusOf(error) === 409;

const Status = z.object({ message: z.string(), reason: z.string().optional() });

/** What the API server said, in one line. */
export function apiMessage(error: unknown): string {
  if (error instanceof ApiException) {
    const body: unknown = error.body;
    const status = Status.safeParse(typeof body === "string" ? parseJson(body) : body);
    return (status.success ? status.data.message : `status ${error.code}`).replace(/\s+/g, " ").trim().slice(0, 400);
  }
  if (!(error instanceof Error)) return String(error);
  // undici says "fetch failed" and keeps what failed as the cause.
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `${error.message}${cause}`.replace(/\s+/g, " ").trim().slice(0, 400);
}

/**
 * `cluster_unavailable` and `quota_exhausted` are worth another try; `cluster_refused` is not, since what was asked for is
 * what is wrong.
 */
export function clusterError(doing: string, error: unknown): HangarError {
  if (error instanceof HangarError) return error;
  const status = statusOf(error);
  const message = apiMessage(error);
  const quota = /exceeded quota: ([^,\s]+)/.exec(message)?.[1];
  if (quota !== undefined) {
    return new HangarError("quota_exhausted", `${START_WAITS.quota(quota)}: ${afterQuota(message)}`, {
      cause: error,
    });
  }
  if (status === null || status === 429 || status >= 500 || status === 408 || isTransient(status, message)) {
    const line = `the cluster's API server cannot be reached (${message}); tried again`;
    return new HangarError("cluster_unavailable", line, { cause: error });
  }
  return new HangarError("cluster_refused", `The cluster refuses ${doing}: ${message}`, { cause: error });
}

/** A conflict is settled by trying again; so is a service account that is made at this moment. */
const isTransient = (status: number, message: string): boolean =>
  status === 409 ||
  (status === 401 && message !== "") ||
  /no API token found for service account|serviceaccount "default" not found/.test(message);

const afterQuota = (message: string): string => message.replace(/^.*?exceeded quota: [^,\s]+,?\s*/, "");

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
