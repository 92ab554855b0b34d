/**
 * An S3 server on loopback that is as strict as Amazon's where it counts: signatures (version 4, in the header or the
 * query), expiry, `If-None-Match: *`, `x-amz-checksum-sha256`, the signed length. Its signature check is written from the
 * protocol's description, apart from the library under test.
 */
import { createHash, createHmac } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";

export const KEY = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "a secret of the test" };
const PAGE = 100;

export class StrictS3 {
  readonly objects = new Map<string, Buffer>();
  /** Answers to give instead, next request first. */
  readonly faults: number[] = [];
  readonly #server: Server;
  endpoint = "";

  private constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async open(): Promise<StrictS3> {
    const s3 = new StrictS3();
    await new Promise<void>((resolve) => {
      s3.#server.listen(0, "127.0.0.1", resolve);
    });
    const address = s3.#server.address();
    if (typeof address === "object" && address) s3.endpoint = `http://127.0.0.1:${address.port}`;
    return s3;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    const url = new URL(request.url ?? "/", this.endpoint);
    const fault = this.faults.shift();
    const refused = fault === undefined ? signatureProblem(request, url, body) : `${fault} Fault`;
    if (refused) return fail(response, refused);
    const [, bucket, ...rest] = url.pathname.split("/");
    const key = rest.join("/");
    if (bucket !== "bucket") return fail(response, "404 NoSuchBucket");
    if (key === "") return this.#list(url, response);
    const there = this.objects.get(key);
    if (request.method === "PUT") return this.#put(request, response, key, body);
    if (request.method === "DELETE") {
      this.objects.delete(key);
      response.writeHead(204).end();
      return;
    }
    if (!there) return fail(response, "404 NoSuchKey");
    const checksum = request.headers["x-amz-checksum-mode"] === "ENABLED" && {
      "x-amz-checksum-sha256": sha256(there, "base64"),
    };
    response.writeHead(200, { "content-length": there.length, ...checksum });
    response.end(request.method === "HEAD" ? undefined : there);
  }

  #put(request: IncomingMessage, response: ServerResponse, key: string, body: Buffer): void {
    if (request.headers["if-none-match"] === "*" && this.objects.has(key))
      return fail(response, "412 PreconditionFailed");
    const checksum = request.headers["x-amz-checksum-sha256"];
    if (checksum !== undefined && checksum !== sha256(body, "base64")) return fail(response, "400 BadDigest");
    this.objects.set(key, body);
    response.writeHead(200).end();
  }

  #list(url: URL, response: ServerResponse): void {
    const prefix = url.searchParams.get("prefix") ?? "";
    const after = url.searchParams.get("continuation-token") ?? "";
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix) && `<${key}` > after).sort();
    const page = keys.slice(0, PAGE);
    const more = keys.length > PAGE;
    const next = `&lt;${page.at(-1)}`;
    response.end(
      `<ListBucketResult><IsTruncated>${more}</IsTruncated>${page.map((key) => `<Contents><Key>${key}</Key></Contents>`).join("")}` +
        `${more ? `<NextContinuationToken>${next}</NextContinuationToken>` : ""}</ListBucketResult>`,
    );
  }
}

/** None: the request is signed with the key, as it is, and in time. */
function signatureProblem(request: IncomingMessage, url: URL, body: Buffer): string | null {
  const query = url.searchParams;
  const header = /^AWS4-HMAC-SHA256 Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
    request.headers.authorization ?? "",
  );
  const [credential, signedHeaders, signature] = header
    ? header.slice(1)
    : [query.get("X-Amz-Credential"), query.get("X-Amz-SignedHeaders"), query.get("X-Amz-Signature")];
  const date = header ? String(request.headers["x-amz-date"]) : query.get("X-Amz-Date");
  if (!credential || !signedHeaders || !signature || !date) return "403 AccessDenied";
  const [id, ...scope] = credential.split("/");
  if (id !== KEY.accessKeyId) return "403 InvalidAccessKeyId";
  const at = Date.parse(date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
  if (!header && Date.now() > at + Number(query.get("X-Amz-Expires")) * 1000) return "403 AccessDenied";
  query.delete("X-Amz-Signature");
  const encode = (text: string): string =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const names = signedHeaders.split(";");
  if (!names.includes("host")) return "403 AccessDenied";
  const payload = header ? String(request.headers["x-amz-content-sha256"]) : "UNSIGNED-PAYLOAD";
  if (header && payload !== "UNSIGNED-PAYLOAD" && payload !== sha256(body, "hex"))
    return "400 XAmzContentSHA256Mismatch";
  const canonical = [
    request.method,
    url.pathname,
    [...query]
      .map(([name, value]) => `${encode(name)}=${encode(value)}`)
      .sort()
      .join("&"),
    ...names.map((name) => `${name}:${String(request.headers[name] ?? "").trim()}`),
    "",
    signedHeaders,
    payload,
  ].join("\n");
  const toSign = ["AWS4-HMAC-SHA256", date, scope.join("/"), sha256(Buffer.from(canonical), "hex")].join("\n");
  const key = scope.reduce<Buffer>(
    (key, piece) => createHmac("sha256", key).update(piece).digest(),
    Buffer.from(`AWS4${KEY.secretAccessKey}`),
  );
  return createHmac("sha256", key).update(toSign).digest("hex") === signature ? null : "403 SignatureDoesNotMatch";
}

const sha256 = (bytes: Buffer, as: "hex" | "base64"): string => createHash("sha256").update(bytes).digest(as);

function fail(response: ServerResponse, said: string): void {
  const [status, code] = said.split(" ");
  response.writeHead(Number(status), { "content-type": "application/xml" }).end(`<Error><Code>${code}</Code></Error>`);
}
