/** Keeps secrets out of what people and logs are shown: summaries, errors, events. Transcripts are never redacted. */

export type Redact = (text: string) => string;

/** Values shorter than this are too likely to be ordinary words. */
const SHORTEST = 6;

/** Tokens that are known by their shape, whoever they belong to. */
const SHAPES: readonly RegExp[] = [
  /\bsk-(?:ant-)?[A-Za-z0-9][A-Za-z0-9_-]{15,}/g,
  /\b(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})/g,
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\bAIza[A-Za-z0-9_-]{35}/g,
  /\bya29\.[A-Za-z0-9._-]{20,}/g,
  /\bxox[a-z]-[A-Za-z0-9-]{10,}/g,
  /\bnpm_[A-Za-z0-9]{30,}/g,
  /AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{20,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
];
const USER_INFO = /([a-z][a-z0-9+.-]*:\/\/)[^/\s@'"]+@/gi;
/** Signed URLs: the signature is the permission. */
const SIGNATURE = /([?&](?:sig|X-Goog-Signature|X-Amz-Signature|X-Amz-Security-Token|access_token|token)=)[^&\s'"]+/gi;

/** Hides every given value (also each of its lines, and as URLs and JSON write it), and what looks like a credential. */
export function redactor(secrets: Iterable<string>): Redact {
  const values = [...new Set([...secrets].flatMap(spellings))]
    .filter((value) => value.length >= SHORTEST)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let safe = text;
    for (const value of values) safe = safe.replaceAll(value, "***");
    for (const shape of SHAPES) safe = safe.replace(shape, "***");
    return safe.replace(USER_INFO, "$1***@").replace(SIGNATURE, "$1***");
  };
}

function spellings(value: string): string[] {
  const plain = [value, ...value.split("\n")].map((line) => line.trim());
  return plain.flatMap((line) => [line, encodeURIComponent(line), JSON.stringify(line).slice(1, -1), base64(line)]);
}

const base64 = (line: string): string => (line.length >= SHORTEST ? Buffer.from(line).toString("base64") : "");
