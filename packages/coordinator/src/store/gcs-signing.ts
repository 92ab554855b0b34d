/** Google Cloud Storage's signed URLs, version 4 (GOOG4-RSA-SHA256), signed without a key at hand. */
import { createHash } from "node:crypto";
import { HangarError } from "@hangar/shared";
import { z } from "zod";

/** Signs as a service account. */
export interface GcsIdentity {
  /** The service account's address. */
  email(): Promise<string>;
  /** RSA PKCS #1 v1.5 with SHA-256. */
  sign(bytes: Buffer): Promise<Buffer>;
  /** An OAuth token for requests of one's own. */
  token(): Promise<string>;
}

export interface ToSign {
  readonly method: "GET" | "PUT";
  /** `https://storage.googleapis.com/bucket/object`. */
  readonly url: URL;
  /** Lower-case names; they must be sent with the request as they are here. */
  readonly headers: Readonly<Record<string, string>>;
  readonly seconds: number;
  readonly at: Date;
}

export async function signGcsUrl(identity: GcsIdentity, request: ToSign): Promise<string> {
  const { url, text } = stringToSign(await identity.email(), request);
  const signature = await identity.sign(Buffer.from(text));
  return `${url}&X-Goog-Signature=${signature.toString("hex")}`;
}

/** The URL but for its signature, and the text that is to be signed. */
export function stringToSign(email: string, request: ToSign): { url: string; text: string } {
  const time = request.at.toISOString().replace(/[:-]|\.\d{3}/g, "");
  const scope = `${time.slice(0, 8)}/auto/storage/goog4_request`;
  const headers = Object.entries({ ...request.headers, host: request.url.host }).sort(([a], [b]) => (a < b ? -1 : 1));
  const names = headers.map(([name]) => name).join(";");
  const query = Object.entries({
    "X-Goog-Algorithm": "GOOG4-RSA-SHA256",
    "X-Goog-Credential": `${email}/${scope}`,
    "X-Goog-Date": time,
    "X-Goog-Expires": String(request.seconds),
    "X-Goog-SignedHeaders": names,
  })
    .map(([name, value]) => `${name}=${encode(value)}`)
    .join("&");
  const canonical = [
    request.method,
    request.url.pathname,
    query,
    ...headers.map(([name, value]) => `${name}:${value.trim().replace(/\s+/g, " ")}`),
    "",
    names,
    "UNSIGNED-PAYLOAD",
  ].join("\n");
  const digest = createHash("sha256").update(canonical).digest("hex");
  return {
    url: `${request.url.origin}${request.url.pathname}?${query}`,
    text: ["GOOG4-RSA-SHA256", time, scope, digest].join("\n"),
  };
}

const encode = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

export interface GoogleEndpoints {
  /** The metadata server: where a pod or machine learns who it is. */
  readonly metadata: string;
  readonly iam: string;
}

export const GOOGLE: GoogleEndpoints = {
  metadata: "http://metadata.google.internal",
  iam: "https://iamcredentials.googleapis.com",
};

const Token = z.object({ access_token: z.string().min(1), expires_in: z.number() });
const SignedBlob = z.object({ signedBlob: z.string().min(1) });
const TIMEOUT_MS = 10_000;

/**
 * Who this pod is by Workload Identity. No key lies anywhere: tokens come from the metadata server, and signatures from the
 * IAM API, for which the service account needs the role Service Account Token Creator on itself.
 */
export function workloadIdentity(endpoints: GoogleEndpoints = GOOGLE, now: () => number = Date.now): GcsIdentity {
  let email: Promise<string> | null = null;
  let token: { value: string; until: number } | null = null;

  const metadata = async (path: string): Promise<string> => {
    const url = `${endpoints.metadata}/computeMetadata/v1/instance/service-accounts/default/${path}`;
    return await text(url, { headers: { "metadata-flavor": "Google" } }, "the metadata server");
  };
  const freshToken = async (): Promise<string> => {
    if (token !== null && token.until > now()) return token.value;
    const { access_token, expires_in } = Token.parse(JSON.parse(await metadata("token")));
    token = { value: access_token, until: now() + (expires_in - 60) * 1000 };
    return access_token;
  };
  const address = async (): Promise<string> => {
    email ??= metadata("email").catch((error: unknown) => {
      email = null;
      throw error;
    });
    return await email;
  };

  return {
    email: address,
    token: freshToken,
    async sign(bytes) {
      const url = `${endpoints.iam}/v1/projects/-/serviceAccounts/${encodeURIComponent(await address())}:signBlob`;
      const headers = { authorization: `Bearer ${await freshToken()}`, "content-type": "application/json" };
      const body = JSON.stringify({ payload: bytes.toString("base64") });
      const answer = await text(url, { method: "POST", headers, body }, "the IAM API");
      return Buffer.from(SignedBlob.parse(JSON.parse(answer)).signedBlob, "base64");
    },
  };
}

async function text(
  url: string,
  init: { method?: string; headers: Record<string, string>; body?: string },
  who: string,
): Promise<string> {
  let answer: Response;
  let said: string;
  try {
    answer = await fetch(url, { ...init, redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
    said = await answer.text();
  } catch (cause) {
    throw new HangarError("store_unavailable", `Google's ${who.replace(/^the /, "")} cannot be reached`, { cause });
  }
  if (answer.ok) return said.trim();
  const hint =
    answer.status === 403 && who === "the IAM API"
      ? ": give the service account the role Service Account Token Creator on itself"
      : "";
  throw new HangarError(
    "store_unavailable",
    `Google's ${who.replace(/^the /, "")} refused (HTTP ${answer.status})${hint}`,
  );
}
