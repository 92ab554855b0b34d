/** Stand-ins on loopback for Cloud Build's API and for a container registry: what these say here was written from their references. */
import { createServer } from "node:http";
import { once } from "node:events";

interface StandInBuild {
  status: string;
  tags: string[];
  images: string[];
  steps: { name: string; entrypoint?: string; args: string[] }[];
  serviceAccount: string;
  finishTime?: string;
  failureInfo?: { detail: string };
}

export interface StandIns {
  readonly endpoint: string;
  /** `127.0.0.1:port/repo`. */
  readonly registry: string;
  readonly builds: StandInBuild[];
  /** Names, with tags, that the registry has. */
  readonly pushed: Set<string>;
  /** What every request is answered with instead. */
  refuse: { status: number; message: string } | null;
  close(): Promise<void>;
}

export const TOKEN = "made-up-token";
export const PARENT = "projects/acme/locations/europe-west1";

export async function standIns(): Promise<StandIns> {
  const builds: StandInBuild[] = [];
  const pushed = new Set<string>();
  const state = { refuse: null as StandIns["refuse"] };
  const server = createServer((request, response) => {
    const answer = (status: number, body: unknown = null) =>
      response.writeHead(status, { "content-type": "application/json" }).end(body === null ? "" : JSON.stringify(body));
    const url = new URL(request.url ?? "", "http://x");
    if (request.headers.authorization !== `Bearer ${TOKEN}`) return answer(401);
    const manifest = /^\/v2\/(.+)\/manifests\/(.+)$/.exec(url.pathname);
    if (manifest) return answer(pushed.has(`${host()}/${manifest[1]}:${manifest[2]}`) ? 200 : 404);
    if (url.pathname !== `/v1/${PARENT}/builds`) return answer(404);
    if (state.refuse) return answer(state.refuse.status, { error: { message: state.refuse.message } });
    if (request.method === "GET") {
      const tag = /^tags="(.+)"$/.exec(url.searchParams.get("filter") ?? "")?.[1] ?? "";
      return answer(200, {
        builds: builds
          .filter(({ tags }) => tags.includes(tag))
          .toReversed()
          .slice(0, 1),
      });
    }
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => {
      builds.push({ ...(JSON.parse(body) as StandInBuild), status: "QUEUED" });
      answer(200, { name: "operations/build" });
    });
    return undefined;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const host = (): string => {
    const address = server.address();
    return `127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  };
  return {
    endpoint: `http://${host()}`,
    registry: `${host()}/acme/hangar`,
    builds,
    pushed,
    get refuse() {
      return state.refuse;
    },
    set refuse(value) {
      state.refuse = value;
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}
