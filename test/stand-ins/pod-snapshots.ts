/**
 * GKE Pod Snapshots (`podsnapshot.gke.io/v1`), stood in for. The definitions are written from the public reference's tables of
 * fields; GKE's own were not at hand. The API and its controller are a stand-in: it takes what fits the definitions, "takes" a
 * snapshot of a pod that the policy selects by saying so, and restores nothing.
 */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { z } from "zod";
import { asObject, asText } from "./server.ts";

const GROUP = "podsnapshot.gke.io";
const VERSION = "v1";

type Schema = { [key: string]: unknown };
const string = { type: "string" };
const object = (properties: Schema, required: string[] = Object.keys(properties)): Schema => ({
  type: "object",
  properties,
  required,
});
const strings = { type: "object", additionalProperties: string };
const conditions = {
  type: "array",
  items: object({ type: string, status: string, reason: string, message: string }, ["type", "status"]),
};

const KINDS: Readonly<Record<string, { kind: string; scope: "Cluster" | "Namespaced"; spec: Schema; status: Schema }>> =
  {
    podsnapshotstorageconfigs: {
      kind: "PodSnapshotStorageConfig",
      scope: "Cluster",
      spec: object({ snapshotStorageConfig: object({ gcs: object({ bucket: string, path: string }, ["bucket"]) }) }),
      status: object({ conditions }, []),
    },
    podsnapshotpolicies: {
      kind: "PodSnapshotPolicy",
      scope: "Namespaced",
      spec: object({
        storageConfigName: string,
        selector: object({ matchLabels: strings }),
        triggerConfig: object({
          type: { type: "string", enum: ["workload", "manual"] },
          postCheckpoint: { type: "string", enum: ["resume", "stop"] },
        }),
      }),
      status: object({ conditions }, []),
    },
    podsnapshotmanualtriggers: {
      kind: "PodSnapshotManualTrigger",
      scope: "Namespaced",
      spec: object({ targetPod: string }),
      status: object({ snapshotCreated: object({ name: string }), conditions }, []),
    },
    podsnapshots: {
      kind: "PodSnapshot",
      scope: "Namespaced",
      spec: object({ policyName: string }, []),
      status: object({ conditions }, []),
    },
  };

/** CustomResourceDefinitions, for an API server. */
export const POD_SNAPSHOT_DEFINITIONS = Object.entries(KINDS).map(([plural, { kind, scope, spec, status }]) => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: `${plural}.${GROUP}` },
  spec: {
    group: GROUP,
    scope,
    names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` },
    versions: [
      {
        name: VERSION,
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: object({ spec, status }, ["spec"]) },
      },
    ],
  },
}));

/** What is sent, as the definition has it and with no other field. Throws where it is not. */
export function parsePodSnapshot(plural: string, sent: unknown): { metadata: { name: string }; spec: Schema } {
  const { kind, spec } = KINDS[plural] ?? { kind: "", spec: {} };
  const sentObject = z.strictObject({
    apiVersion: z.literal(`${GROUP}/${VERSION}`),
    kind: z.literal(kind),
    metadata: z.looseObject({ name: z.string() }),
    spec: z.fromJSONSchema(closed(spec)),
  });
  return sentObject.parse(sent) as { metadata: { name: string }; spec: Schema };
}

/** A definition's schema says which fields there may be by leaving others out. */
function closed(schema: Schema): Schema {
  const properties = schema["properties"] as Record<string, Schema> | undefined;
  if (properties === undefined) return schema;
  const inner = Object.entries(properties).map(([name, of]) => [name, closed(of)] as const);
  return { ...schema, properties: Object.fromEntries(inner), additionalProperties: false };
}

export interface PodSnapshotApi {
  readonly port: number;
  /** By `<plural>/<name>`. */
  readonly objects: ReadonlyMap<string, { spec: Schema }>;
  /** `POST podsnapshotpolicies by USER`, as an API server in front passed them on. */
  readonly requests: string[];
  /** The `Ready` condition of snapshots that are taken from now on. */
  ready: { status: "True" | "False"; reason: string; message: string };
  close(): Promise<void>;
}

/**
 * The API and the controller, as an extension of an API server (an APIService), on loopback with a certificate of its own.
 * `labelsOf`: of a pod of the namespace.
 */
export async function startPodSnapshotApi(
  labelsOf: (namespace: string, pod: string) => Promise<Record<string, string>>,
): Promise<PodSnapshotApi> {
  const objects = new Map<string, { metadata: { name: string }; spec: Schema; status?: Schema }>();
  const requests: string[] = [];
  const api = { ready: { status: "True", reason: "AllSnapshotsAvailable", message: "" } as PodSnapshotApi["ready"] };

  /** The stand-in controller: only pods that a policy selects are taken. */
  const take = async (namespace: string, target: string): Promise<Schema> => {
    const labels = await labelsOf(namespace, target);
    const selects = ([key, { spec }]: [string, { spec: Schema }]): boolean =>
      key.startsWith("podsnapshotpolicies/") &&
      Object.entries(asObject(asObject(spec["selector"])["matchLabels"])).every(([name, is]) => labels[name] === is);
    if (![...objects].some(selects))
      return { conditions: [{ type: "Triggered", status: "False", reason: "NoPolicy" }] };
    const name = `snapshot-of-${target}`;
    objects.set(`podsnapshots/${name}`, {
      metadata: { name },
      spec: {},
      status: { conditions: [{ type: "Ready", ...api.ready }] },
    });
    return { snapshotCreated: { name } };
  };

  const answerTo = async (method: string, path: string, body: string): Promise<[number, unknown]> => {
    if (path === `/apis/${GROUP}/${VERSION}`) return [200, DISCOVERY];
    const [, namespace = "", plural = "", name] =
      new RegExp(`^/apis/${GROUP}/${VERSION}/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?$`).exec(path) ?? [];
    const of = KINDS[plural];
    if (of === undefined) return [404, status(404, "NotFound", `no such page: ${path}`)];
    const whole = (key: string) => ({ apiVersion: `${GROUP}/${VERSION}`, kind: of.kind, ...objects.get(key) });
    if (method === "POST" && name === undefined) {
      const sent = parsePodSnapshot(plural, JSON.parse(body));
      const key = `${plural}/${sent.metadata.name}`;
      if (objects.has(key)) return [409, status(409, "AlreadyExists", `${key} already exists`)];
      const made = plural === "podsnapshotmanualtriggers" ? await take(namespace, asText(sent.spec["targetPod"])) : {};
      objects.set(key, { metadata: { ...sent.metadata }, spec: sent.spec, status: made });
      return [201, whole(key)];
    }
    const key = `${plural}/${name}`;
    if (!objects.has(key)) return [404, status(404, "NotFound", `${key} not found`)];
    if (method === "GET") return [200, whole(key)];
    if (method === "DELETE") {
      objects.delete(key);
      return [200, status(200, "", "")];
    }
    return [405, status(405, "MethodNotAllowed", method)];
  };

  const server = createServer(await certificate(), (request, response) => {
    const path = new URL(request.url ?? "", "https://x").pathname;
    const method = request.method ?? "";
    const plural = /\/namespaces\/[^/]+\/([a-z]+)/.exec(path)?.[1];
    if (plural !== undefined) requests.push(`${method} ${plural} by ${asText(request.headers["x-remote-user"])}`);
    void text(request)
      .then((body) => answerTo(method, path, body))
      .catch((error: unknown): [number, unknown] => [422, status(422, "Invalid", String(error))])
      .then(([code, answer]) =>
        response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(answer)),
      );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return Object.assign(api, {
    port: (server.address() as AddressInfo).port,
    objects,
    requests,
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  });
}

/** What there is to ask for: no lists, so that a cluster's own controllers do not follow it. */
const DISCOVERY = {
  kind: "APIResourceList",
  apiVersion: "v1",
  groupVersion: `${GROUP}/${VERSION}`,
  resources: Object.entries(KINDS)
    .filter(([, { scope }]) => scope === "Namespaced")
    .map(([name, { kind }]) => ({
      name,
      singularName: kind.toLowerCase(),
      namespaced: true,
      kind,
      verbs: ["create", "delete", "get"],
    })),
};

const status = (code: number, reason: string, message: string): object => ({
  kind: "Status",
  apiVersion: "v1",
  status: code < 400 ? "Success" : "Failure",
  code,
  reason,
  message,
});

async function certificate(): Promise<{ key: Buffer; cert: Buffer }> {
  const dir = await mkdtemp(join(tmpdir(), "hangar-certificate-"));
  try {
    const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    const args = ["req", "-x509", ...kind, "-subj", "/CN=localhost", "-keyout", key, "-out", cert];
    await promisify(execFile)("openssl", args);
    return { key: await readFile(key), cert: await readFile(cert) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
