/**
 * A stand-in for a Kubernetes API server, on loopback: pods, secrets, events, jobs and network policies of one namespace, with
 * lists, watches, conflicts and 410. For what a one-node test cluster cannot show; the driver's other tests run on a real one.
 */
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";

// What an API server holds is of any shape.
export type Json = { [key: string]: any }; // oxlint-disable-line typescript/no-explicit-any

const KINDS: Readonly<Record<string, string>> = {
  pods: "Pod",
  secrets: "Secret",
  events: "Event",
  networkpolicies: "NetworkPolicy",
  jobs: "Job",
  // As the definitions of GKE Pod Snapshots have them.
  podsnapshotpolicies: "PodSnapshotPolicy",
  podsnapshotmanualtriggers: "PodSnapshotManualTrigger",
  podsnapshots: "PodSnapshot",
};

export class StandInApi {
  /** By `<kind>/<name>`. */
  readonly objects = new Map<string, Json>();
  /** `GET pods`, `WATCH pods 12`, `POST pods` … as they came. */
  readonly requests: string[] = [];
  /** Answers instead of the server: a status and what a Status object says. */
  refuse: (request: string) => { code: number; message: string; reason?: string } | null = () => null;
  /** Watches from a version before this one are answered 410. */
  oldest = 0;
  private version = 100;
  private readonly log: { version: number; kind: string; type: string; object: Json }[] = [];
  private readonly watches = new Set<{ kind: string; response: ServerResponse; matches: (object: Json) => boolean }>();
  private readonly server = createServer((request, response) => void this.answer(request, response));
  private dir = "";
  private port = 0;

  async start(): Promise<string> {
    this.server.listen(this.port, "127.0.0.1");
    await once(this.server, "listening");
    this.port = (this.server.address() as AddressInfo).port;
    if (this.dir !== "") return join(this.dir, "kubeconfig");
    this.dir = await mkdtemp(join(tmpdir(), "hangar-stand-in-api-"));
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${this.port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "u", user: {} }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "boxes" } }],
      "current-context": "x",
    };
    await writeFile(join(this.dir, "kubeconfig"), JSON.stringify(config));
    return join(this.dir, "kubeconfig");
  }

  /** Connections are cut and new ones refused, until `start`. */
  async away(): Promise<void> {
    const closed = once(this.server, "close");
    this.server.close();
    this.server.closeAllConnections();
    this.watches.clear();
    await closed;
  }

  async stop(): Promise<void> {
    if (this.server.listening) await this.away();
    await rm(this.dir, { recursive: true, force: true });
  }

  get(kind: string, name: string): Json | undefined {
    return this.objects.get(`${kind}/${name}`);
  }

  /** As a controller or the kubelet changes it: every watch hears of it. */
  change(kind: string, name: string, change: (object: Json) => void): void {
    const object = structuredClone(this.get(kind, name));
    if (!object) throw new Error(`there is no ${kind}/${name}`);
    change(object);
    this.put("MODIFIED", kind, object);
  }

  /** As a controller makes it. */
  make(kind: string, object: Json): void {
    this.put("ADDED", kind, object);
  }

  event(pod: string, reason: string, message: string): void {
    const at = new Date().toISOString();
    const metadata = { name: `${pod}.${this.version}` };
    const involvedObject = { kind: "Pod", name: pod, uid: this.get("pods", pod)?.["metadata"].uid };
    this.put("ADDED", "events", { metadata, involvedObject, reason, message, firstTimestamp: at, lastTimestamp: at });
  }

  /** Gone at once, as when its node has said so, or a deletion was forced; owned Secrets go with it. */
  drop(kind: string, name: string): void {
    const object = this.get(kind, name);
    if (!object) return;
    this.put("DELETED", kind, object);
    if (kind !== "pods") return;
    for (const secret of this.objects.values()) {
      const owned = secret["metadata"].ownerReferences?.some((owner: Json) => owner["uid"] === object["metadata"].uid);
      if (owned) this.drop("secrets", secret["metadata"].name);
    }
  }

  /** Ends every watch, as a server does now and then. */
  endWatches(): void {
    for (const { response } of this.watches) response.end();
    this.watches.clear();
  }

  get watching(): number {
    return this.watches.size;
  }

  /** Changes that no watch hears of: with `oldest` set, they are only found by a list. */
  quietly(work: () => void): void {
    const watches = [...this.watches];
    this.watches.clear();
    work();
    for (const watch of watches) this.watches.add(watch);
  }

  private put(type: string, kind: string, object: Json): void {
    const version = ++this.version;
    const stored = { ...object, metadata: { ...object["metadata"], resourceVersion: String(version) } };
    if (type === "DELETED") this.objects.delete(`${kind}/${stored.metadata.name}`);
    else this.objects.set(`${kind}/${stored.metadata.name}`, stored);
    this.log.push({ version, kind, type, object: stored });
    for (const watch of this.watches) {
      if (watch.kind === kind && watch.matches(stored)) watch.response.write(line(type, stored));
    }
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://x");
    const [, kind = "", name] = /\/namespaces\/boxes\/([a-z]+)(?:\/([^/]+))?$/.exec(url.pathname) ?? [];
    const method = url.searchParams.get("watch") === "true" ? "WATCH" : (request.method ?? "");
    const from = Number(url.searchParams.get("resourceVersion") ?? 0);
    const what = [method, kind, name ?? (method === "WATCH" ? String(from) : "")].filter(Boolean).join(" ");
    this.requests.push(what);
    const refusal = this.refuse(what);
    if (refusal) return status(response, refusal);
    if (!KINDS[kind]) return status(response, { code: 404, message: `no such page: ${url.pathname}` });
    const matches = matcher(url.searchParams.get("labelSelector"));
    if (method === "WATCH") return this.watch(kind, from, matches, response);
    const body = method === "GET" ? {} : (JSON.parse((await text(request)) || "{}") as Json);
    const found = name === undefined ? undefined : this.get(kind, name);
    if (method === "POST") {
      const wanted: string = body["metadata"].name;
      if (this.get(kind, wanted)) return status(response, { code: 409, message: `${kind} "${wanted}" already exists` });
      const metadata = { ...body["metadata"], uid: `uid-${this.version}`, creationTimestamp: new Date().toISOString() };
      this.put("ADDED", kind, { ...body, metadata, ...(kind === "pods" && { status: { phase: "Pending" } }) });
      return reply(response, 201, this.get(kind, wanted));
    }
    if (name === undefined) {
      const items = [...this.objects.entries()]
        .filter(([key]) => key.startsWith(`${kind}/`))
        .map(([, object]) => object);
      const metadata = { resourceVersion: String(this.version) };
      return reply(response, 200, { kind: `${KINDS[kind]}List`, metadata, items: items.filter(matches) });
    }
    if (!found) return status(response, { code: 404, message: `${kind} "${name}" not found` });
    if (method === "DELETE") {
      if (kind === "pods") this.delete(name, Number(url.searchParams.get("gracePeriodSeconds") ?? 30));
      else this.drop(kind, name);
    }
    if (method === "PUT")
      this.put("MODIFIED", kind, { ...body, metadata: { ...found["metadata"], ...body["metadata"] } });
    if (method === "PATCH") this.put("MODIFIED", kind, merged(found, body));
    return reply(response, 200, this.get(kind, name) ?? found);
  }

  /** A deletion with grace: the kubelet, that is the test, drops it when its processes have ended. */
  delete(name: string, graceSeconds: number): void {
    this.change("pods", name, ({ metadata }) => {
      metadata.deletionTimestamp ??= new Date(Date.now() + graceSeconds * 1000).toISOString();
    });
  }

  private watch(kind: string, from: number, matches: (object: Json) => boolean, response: ServerResponse): void {
    response.writeHead(200, { "content-type": "application/json" });
    if (from < this.oldest) {
      response.end(line("ERROR", { kind: "Status", code: 410, message: "too old resource version" }));
      return;
    }
    response.flushHeaders();
    for (const { version, kind: of, type, object } of this.log) {
      if (version > from && of === kind && matches(object)) response.write(line(type, object));
    }
    const watch = { kind, response, matches };
    this.watches.add(watch);
    response.on("close", () => this.watches.delete(watch));
  }
}

const line = (type: string, object: Json): string => `${JSON.stringify({ type, object })}\n`;

function reply(response: ServerResponse, code: number, body: unknown): void {
  response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(body));
}

const status = (
  response: ServerResponse,
  { code, message, reason }: { code: number; message: string; reason?: string },
) => reply(response, code, { kind: "Status", apiVersion: "v1", status: "Failure", code, message, reason });

function matcher(selector: string | null): (object: Json) => boolean {
  const wanted = (selector ?? "")
    .split(",")
    .filter(Boolean)
    .map((part) => part.split("="));
  return (object) =>
    wanted.every(([key = "", value]) => {
      const label: unknown = object["metadata"].labels?.[key];
      return value === undefined ? label !== undefined : label === value;
    });
}

const merged = (into: Json, patch: Json): Json => {
  const result: Json = { ...into };
  for (const [key, value] of Object.entries(patch)) {
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    result[key] = isObject ? merged(result[key] ?? {}, value as Json) : value;
  }
  return result;
};
