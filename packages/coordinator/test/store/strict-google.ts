/**
 * Google on loopback, as far as a store sees it: the metadata server, the IAM API's signBlob, and a bucket that checks
 * signatures (version 4, with a key pair of its own), expiry, tokens, generation and length. The signature check is written
 * from the protocol's description, apart from the code under test.
 */
import { createHash, generateKeyPairSync, sign, verify, type KeyObject } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";

const EMAIL = "hangar@project.iam.gserviceaccount.com";
const TOKEN = "ya29.test-token";
const PAGE = 50;

export class StrictGoogle {
  readonly objects = new Map<string, { bytes: Buffer; generation: number }>();
  readonly seen: string[] = [];
  /** A request whose path ends so is answered 403. */
  refuse: string | null = null;
  url = "";
  #generation = 1_700_000_000_000_000;
  readonly #keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async open(): Promise<StrictGoogle> {
    const google = new StrictGoogle();
    await new Promise<void>((resolve) => {
      google.#server.listen(0, "127.0.0.1", resolve);
    });
    const address = google.#server.address();
    if (typeof address === "object" && address) google.url = `http://127.0.0.1:${address.port}`;
    return google;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    const url = new URL(request.url ?? "/", this.url);
    this.seen.push(`${request.method} ${url.pathname}`);
    if (this.refuse !== null && url.pathname.endsWith(this.refuse)) return fail(response, 403, "Refused");
    if (url.pathname.startsWith("/computeMetadata/")) return metadata(request, url, response);
    if (url.pathname === `/v1/projects/-/serviceAccounts/${encodeURIComponent(EMAIL)}:signBlob`)
      return this.#signBlob(request, body, response);
    const authorized = request.headers.authorization === `Bearer ${TOKEN}`;
    if (!authorized && !signatureHolds(request, url, this.#keys.publicKey))
      return fail(response, 403, "SignatureDoesNotMatch");
    this.#object(request, url, body, response);
  }

  #signBlob(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
    if (request.headers.authorization !== `Bearer ${TOKEN}`) return fail(response, 401, "Unauthorized");
    const { payload } = JSON.parse(body.toString()) as { payload: string };
    const signature = sign("sha256", Buffer.from(payload, "base64"), this.#keys.privateKey);
    response.end(JSON.stringify({ keyId: "1", signedBlob: signature.toString("base64") }));
  }

  #object(request: IncomingMessage, url: URL, body: Buffer, response: ServerResponse): void {
    const key = url.pathname.replace(/^\/bucket\/?/, "");
    if (key === "") return this.#list(url, response);
    const there = this.objects.get(key);
    if (request.method === "PUT") {
      const [least = 0, most = Infinity] = String(request.headers["x-goog-content-length-range"] ?? "0,99999999")
        .split(",")
        .map(Number);
      if (request.headers["x-goog-if-generation-match"] === "0" && there)
        return fail(response, 412, "PreconditionFailed");
      if (body.length < least || body.length > most) return fail(response, 400, "EntityTooLarge");
      this.objects.set(key, { bytes: body, generation: this.#generation++ });
      response.writeHead(200).end();
      return;
    }
    if (!there) return fail(response, 404, "NoSuchKey");
    if (request.method === "DELETE") {
      this.objects.delete(key);
      response.writeHead(204).end();
      return;
    }
    response.writeHead(200, { "content-length": there.bytes.length, "x-goog-generation": there.generation });
    response.end(request.method === "HEAD" ? undefined : there.bytes);
  }

  #list(url: URL, response: ServerResponse): void {
    const prefix = url.searchParams.get("prefix") ?? "";
    const after = url.searchParams.get("continuation-token") ?? "";
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
    const page = keys.slice(0, PAGE);
    const more = keys.length > PAGE ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : "";
    const contents = page.map((key) => `<Contents><Key>${key}</Key></Contents>`).join("");
    response.end(`<ListBucketResult><IsTruncated>${more !== ""}</IsTruncated>${contents}${more}</ListBucketResult>`);
  }
}

function metadata(request: IncomingMessage, url: URL, response: ServerResponse): void {
  if (request.headers["metadata-flavor"] !== "Google") return fail(response, 403, "Forbidden");
  const token = JSON.stringify({ access_token: TOKEN, expires_in: 3600, token_type: "Bearer" });
  response.end(url.pathname.endsWith("/email") ? `${EMAIL}\n` : token);
}

function signatureHolds(request: IncomingMessage, url: URL, key: KeyObject): boolean {
  const query = url.searchParams;
  const [signature, credential, date] = [
    query.get("X-Goog-Signature"),
    query.get("X-Goog-Credential"),
    query.get("X-Goog-Date"),
  ];
  if (!signature || !credential || !date || query.get("X-Goog-Algorithm") !== "GOOG4-RSA-SHA256") return false;
  const at = Date.parse(date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
  if (Date.now() > at + Number(query.get("X-Goog-Expires")) * 1000 || !credential.startsWith(`${EMAIL}/`)) return false;
  const names = (query.get("X-Goog-SignedHeaders") ?? "").split(";");
  const extra = Object.keys(request.headers).filter((name) => name.startsWith("x-goog-") && !names.includes(name));
  if (!names.includes("host") || extra.length > 0) return false;
  const canonical = [
    request.method,
    url.pathname,
    url.search
      .slice(1)
      .split("&")
      .filter((pair) => !pair.startsWith("X-Goog-Signature="))
      .sort()
      .join("&"),
    ...names.map((name) => `${name}:${String(request.headers[name] ?? "")}`),
    "",
    names.join(";"),
    "UNSIGNED-PAYLOAD",
  ].join("\n");
  const digest = createHash("sha256").update(canonical).digest("hex");
  const text = ["GOOG4-RSA-SHA256", date, credential.slice(EMAIL.length + 1), digest].join("\n");
  return verify("sha256", Buffer.from(text), key, Buffer.from(signature, "hex"));
}

function fail(response: ServerResponse, status: number, code: string): void {
  response.writeHead(status, { "content-type": "application/xml" }).end(`<Error><Code>${code}</Code></Error>`);
}
