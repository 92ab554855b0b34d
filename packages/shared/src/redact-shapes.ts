/** Credentials that are known by their shape, whoever they belong to. */
import type { Range } from "./redact-matcher.ts";

const KEY_WORDS = "(?:OPENSSH |RSA |EC |DSA |ENCRYPTED |PGP )*PRIVATE KEY(?: BLOCK)?";

/** Each costs a bounded look from wherever it may begin: what a sandbox says may be made to be slow to look at.
 * The whole match is hidden, or, where there is one, its group `hide` alone. */
const SHAPES: readonly RegExp[] = [
  // Anthropic, OpenAI and those that took their form
  /\bsk-(?=[A-Za-z0-9_-]{0,200}[0-9A-Z])[A-Za-z0-9][A-Za-z0-9_-]{15,}/g,
  // GitHub: classic, app, OAuth, refresh; fine-grained
  /\b(?:gh[oprsu]_[A-Za-z0-9_]{20,}|github_pat_[A-Za-z0-9_]{20,})/g,
  /\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{16,}/g,
  /\bxox[a-z](?:\.[a-z]+)?-[A-Za-z0-9-]{10,}/g,
  /\bxapp-\d-[A-Za-z0-9-]{10,}/g,
  /\bhooks\.slack\.com\/services\/(?<hide>[A-Za-z0-9/]{20,})/g,
  // AWS: key ids, and what their secrets and session tokens are called
  /\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b/g,
  /\baws_?(?:secret_?access_?key|session_?token)\b["']?\s*[:=]\s*["']?(?<hide>[A-Za-z0-9/+=]{30,})/gi,
  /["'](?:SecretAccessKey|SessionToken)["']\s*:\s*["'](?<hide>[A-Za-z0-9/+=]{30,})/g,
  // Google: API keys, OAuth tokens, client secrets
  /\bAIza[A-Za-z0-9_-]{35}/g,
  /\bya29\.[A-Za-z0-9._-]{20,}/g,
  /\bGOCSPX-[A-Za-z0-9_-]{20,}/g,
  /\bnpm_[A-Za-z0-9]{30,}/g,
  /\bpypi-[A-Za-z0-9_-]{40,}/g,
  /\bhf_[A-Za-z0-9]{30,}/g,
  /\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}/g,
  /AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{20,}/g,
  // JSON Web Tokens
  /\beyJ[A-Za-z0-9_-]{8,1024}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
  /\bBearer\s+(?=[A-Za-z0-9+/_.=~-]{0,200}\d)(?<hide>[A-Za-z0-9+/_.=~-]{16,})/gi,
  /\bauthorization["']?\s*[:=]\s*["']?(?:basic|token)\s+(?<hide>[A-Za-z0-9+/_.=~-]{8,})/gi,
  /\bx-(?:api-key|goog-api-key|auth-token)["']?\s*[:=]\s*["']?(?<hide>[^\s"',;]{12,})/gi,
  // User and password in any URL; a signed URL's signature, which is the permission
  /\b[a-z][a-z0-9+.-]{0,30}:\/\/(?<hide>[^/\s@'"]+)@/gi,
  /[?&](?:sig|X-Goog-Signature|X-Amz-Signature|X-Amz-Security-Token|access_token|token)=(?<hide>[^&\s'"]+)/gi,
];

export function shapeRanges(text: string): Range[] {
  const ranges: Range[] = [];
  for (const shape of SHAPES) {
    for (const match of text.matchAll(shape)) {
      const hide = match.groups?.["hide"] ?? match[0];
      const start = match.index + match[0].lastIndexOf(hide);
      ranges.push({ start, end: start + hide.length });
    }
  }
  return [...ranges, ...keyRanges(text)];
}

/** Private keys, from their first line to their last. One whose end is cut off is hidden as far as it looks like one. */
function keyRanges(text: string): Range[] {
  const ranges: Range[] = [];
  const ends = text.matchAll(KEY_END);
  let end = ends.next();
  for (const begin of text.matchAll(KEY_BEGIN)) {
    const body = begin.index + begin[0].length;
    if ((ranges.at(-1)?.end ?? 0) > begin.index) continue;
    while (!end.done && end.value.index < body) end = ends.next();
    if (end.done) {
      KEY_TEXT.lastIndex = body;
      ranges.push({ start: begin.index, end: body + (KEY_TEXT.exec(text)?.[0].length ?? 0) });
    } else ranges.push({ start: begin.index, end: end.value.index + end.value[0].length });
  }
  return ranges;
}

/** At a text's end, the beginning of what the next piece may make one of the shapes. */
const UNFINISHED: readonly RegExp[] = [
  /(?:\bsk-|\bgh[oprsu]_|\bgithub_pat_|\bgl[a-z]{2,5}-|\bxox[a-z]|\bxapp-|\bhooks\.slack\.com\/|\b(?:AKIA|ASIA|ABIA|ACCA)|\bAIza|\bya29\.|\bGOCSPX-|\bnpm_|\bpypi-|\bhf_|\b[sr]k_(?:live|test)_|AGE-SECRET-KEY|\beyJ|[?&](?:sig|token|access_token|X-[A-Za-z-]+)=)[^\s"'`<>]*$/,
  /\b[a-z][a-z0-9+.-]{1,20}:\/\/[^/\s@'"]*$/i,
  /\b(?:Bearer|authorization["']?\s*[:=]\s*["']?(?:basic|token)?|x-(?:api-key|goog-api-key|auth-token)["']?\s*[:=]|aws_?(?:secret_?access_?key|session_?token)["']?\s*[:=])\s*["']?[^\s"',;]*$/i,
  /-----B[A-Z -]{0,50}$/,
];
const KEY_BEGIN = new RegExp(`-----BEGIN ${KEY_WORDS}-----`, "g");
const KEY_END = new RegExp(`-----END ${KEY_WORDS}-----`, "g");
const KEY_TEXT = /[A-Za-z0-9+/=\s\\:,-]*/y;

/** Where it begins; the text's length: nowhere. */
export function unfinishedShape(text: string): number {
  let from = text.length;
  // What is unfinished at the end has no room for much more than this before it.
  const tail = Math.max(0, text.length - 4096);
  const end = text.slice(tail);
  for (const shape of UNFINISHED) {
    const at = shape.exec(end)?.index;
    if (at !== undefined) from = Math.min(from, tail + at);
  }
  const key = [...text.matchAll(KEY_BEGIN)].at(-1);
  if (key && text.slice(key.index).search(KEY_END) === -1) from = Math.min(from, key.index);
  return from;
}
